"""Compiled selection of the best children of all nodes in a document's beam."""

from __future__ import annotations

from typing import Any

import numpy as np

from polytag.kernels.compiler import kernel, njit
from polytag.kernels.lanes import LANES, count_from, lanes_from, lowest_bit
from polytag.kernels.sorting import heap_sort

_NOTHING = np.int32(-(2**31))
_LOW = np.int64(0xFFFFFFFF)
_FLIP = np.int32(0x7FFFFFFF)  # the bits of a negative float32 that are flipped in its order, an int32 that compares like it
_FEW = 256  # up to this number, keys are sorted by comparing each with all


@njit(inline="always")  # type: ignore[untyped-decorator]
def log_score(margin: Any, kind: int) -> Any:
    """The log-probability of a margin: -max(0, 1 - margin)^kind for kind 1 to 4, the log-sigmoid for kind 0."""
    if kind == 0:
        return np.float32(-np.log1p(np.exp(-margin))) if margin > -30 else np.float32(margin)
    gap = np.float32(1.0) - margin
    gap = gap if gap > 0 else np.float32(0.0)
    worth = gap
    for power in range(2, 5):  # a fixed number of steps, so that the loop over margins is vectorised
        worth *= gap if kind >= power else np.float32(1.0)
    return -worth


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _to_orders(margins: Any, bits: Any, row: int, width: int, above: Any, kind: int, orders: Any, at: int) -> None:
    """Write the scores of a node's children to ``orders[at:]``, as int32 with the same order."""
    if kind == 0:
        for c in range(width):
            margins[row, c] = above + log_score(margins[row, c], 0)
    else:
        for c in range(width):
            margins[row, c] = above + log_score(margins[row, c], max(kind, 1))
    for c in range(width):
        orders[at + c] = bits[row, c] ^ ((bits[row, c] >> 31) & _FLIP)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _limit(orders: Any, size: int, wanted: int) -> Any:
    """A limit that at least ``wanted`` orders reach, and few more except for ties; all reach it if there are fewer."""
    low, high = np.int64(_NOTHING) + 1, np.int64(2**31)  # invariant: enough orders reach low, too few reach high
    if count_from(orders, size, low) <= wanted:
        return np.int32(low)
    while high - low > 1:
        middle = (low + high) >> 1
        count = count_from(orders, size, np.int32(middle))
        if count >= wanted:
            low = middle
            if count <= wanted + (wanted >> 2) + 4:  # sorting a few more is cheaper than counting again
                break
        else:
            high = middle
    return np.int32(low)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _sort(keys: Any, count: int) -> None:
    """Sort the first keys of ``keys[0]``; a few by counting the smaller ones of each, which is vectorised and has no branches."""
    if count > _FEW:
        heap_sort(keys[0], count)
        return
    for i in range(count):
        place = 0
        for j in range(i):
            place += keys[0, j] <= keys[0, i]
        for j in range(i + 1, count):
            place += keys[0, j] < keys[0, i]
        keys[1, place] = keys[0, i]
    for i in range(count):
        keys[0, i] = keys[1, i]


@kernel(
    "void(int32[:,::1],float32[:,::1],float32[:,::1],int32[:,::1],int64[::1],int64,int32[::1],int32[::1],int64[:,::1],"
    "int32[:,::1],float32[:,::1],int32[:,::1])"
)
def choose(
    nodes: Any, scores: Any, margins: Any, bits: Any, child_starts: Any, kind: int, names: Any, orders: Any, keys: Any,
    found: Any, values: Any, value_bits: Any,
) -> None:  # fmt: skip
    """The best children of the nodes in each document's beam; margins are replaced by scores, and their padding is not used.

    ``scores`` (documents, beam) are the scores of the nodes. ``found`` and ``values`` (documents, wanted) are outputs, best
    first, ties by name, padded with -1; ``names`` has the id of every child. ``bits`` and ``value_bits`` are the memory of
    ``margins`` and ``values`` as integers.

    ``orders`` and ``keys`` (2, .) are buffers for all children of one document. A key has the inverted score in its high bits and
    the name in its low bits. So the smallest key is the best child, and ties are ordered by name.
    """
    beam, wanted, width = nodes.shape[1], found.shape[1], margins.shape[1]
    size = beam * width
    for i in range(len(nodes)):
        for at in range(size):
            orders[at] = _NOTHING
        for b in range(beam):
            node = nodes[i, b]
            if node >= 0:
                above = scores[i, b] + np.float32(0.0)  # never -0
                own = child_starts[node + 1] - child_starts[node]
                _to_orders(margins, bits, i * beam + b, own, above, kind, orders, b * width)
        limit = _limit(orders, size, wanted)
        count = np.int64(0)
        for at in range(0, size, LANES):
            lanes = lanes_from(orders, at, limit)
            while lanes:
                place = at + lowest_bit(lanes)
                lanes &= lanes - 1
                name = names[child_starts[nodes[i, place // width]] + place % width]
                keys[0, count] = (~np.int64(orders[place]) << 32) | np.int64(name)
                count += 1
        _sort(keys, count)
        count = count if count < wanted else wanted
        for at in range(count):
            found[i, at] = keys[0, at] & _LOW
            order = np.int32(~(keys[0, at] >> 32))
            value_bits[i, at] = order ^ ((order >> 31) & _FLIP)  # the inverse of the map from the bits of a float32 to an order
        for at in range(count, wanted):
            found[i, at] = -1
            values[i, at] = -np.inf
