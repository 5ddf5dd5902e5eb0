"""Compiled selection of the best children of all nodes in a document's beam."""

from __future__ import annotations

from typing import Any

import numpy as np

from polytag.kernels.compiler import njit
from polytag.kernels.lanes import LANES, count_from, lanes_from, lowest_bit

_NOTHING = np.int32(-(2**31))
_LOW = np.int64(0xFFFFFFFF)
_FEW = 256  # up to this number, keys are sorted by comparing each with all


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
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


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _swapped(bits: Any) -> Any:
    """Map the bits of a float32 to an int32 with the same order; the map is its own inverse."""
    return np.int32(bits ^ ((bits >> 31) & 0x7FFFFFFF))


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _to_orders(margins: Any, row: int, width: int, above: Any, kind: int, orders: Any, at: int) -> None:
    """Write the scores of a node's children to ``orders[at:]``, as int32 with the same order."""
    if kind == 0:
        for c in range(width):
            margins[row, c] = above + log_score(margins[row, c], 0)
    else:
        for c in range(width):
            margins[row, c] = above + log_score(margins[row, c], max(kind, 1))
    bits = margins.view(np.int32)
    for c in range(width):
        orders[at + c] = _swapped(bits[row, c])


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
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


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _sort(keys: Any, spare: Any) -> None:
    """Sort keys; a few of them by counting the smaller ones of each, which is vectorised and has no branches."""
    if len(keys) > _FEW:
        keys.sort()
        return
    for i in range(len(keys)):
        place = 0
        for j in range(i):
            place += keys[j] <= keys[i]
        for j in range(i + 1, len(keys)):
            place += keys[j] < keys[i]
        spare[place] = keys[i]
    for i in range(len(keys)):
        keys[i] = spare[i]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def choose(nodes: Any, scores: Any, margins: Any, child_starts: Any, kind: int, names: Any, found: Any, values: Any) -> None:
    """The best children of every document; see ``beam_step``. Margins are replaced by scores; the padding is not used."""
    room = nodes.shape[1] * margins.shape[1]
    orders, keys = np.empty(room, dtype=np.int32), np.empty((2, room), dtype=np.int64)
    for i in range(len(nodes)):
        _best_children(i, nodes, scores, margins, child_starts, kind, names, orders, keys, found[i], values[i])


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _best_children(
    i: int, nodes: Any, scores: Any, margins: Any, child_starts: Any, kind: int, names: Any, orders: Any, keys: Any, found: Any,
    values: Any,
) -> None:  # fmt: skip
    """Write the best children of all nodes in the beam of document i into ``found`` and ``values``, best first.

    ``orders`` and ``keys`` (2, .) are buffers for all children. A key has the inverted score in its high bits and the name in its
    low bits. So the smallest key is the best child, and ties are ordered by name.
    """
    beam, wanted, width = nodes.shape[1], len(found), margins.shape[1]
    size = beam * width
    for at in range(size):
        orders[at] = _NOTHING
    for b in range(beam):
        node = nodes[i, b]
        if node >= 0:
            above = scores[i, b] + np.float32(0.0)  # never -0
            _to_orders(margins, i * beam + b, child_starts[node + 1] - child_starts[node], above, kind, orders, b * width)
    limit = _limit(orders, size, wanted)
    count = 0
    for at in range(0, size, LANES):
        lanes = lanes_from(orders, at, limit)
        while lanes:
            place = at + lowest_bit(lanes)
            lanes &= lanes - 1
            node = nodes[i, place // width]
            name = names[child_starts[node] + place % width]
            keys[0, count] = (~np.int64(orders[place]) << 32) | np.int64(name)
            count += 1
    _sort(keys[0, :count], keys[1])
    count = min(count, wanted)
    value_bits = values.view(np.int32)
    for at in range(count):
        found[at] = keys[0, at] & _LOW
        value_bits[at] = _swapped(np.int32(~(keys[0, at] >> 32)))
    for at in range(count, wanted):
        found[at] = -1
        values[at] = -np.inf
