"""Compiled tree search: the margins of one step of beam search for any number of documents, and scores of given labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from polytag.kernels.compiler import kernel, njit
from polytag.kernels.half_precision import as_single
from polytag.kernels.vectors import add_rows, expect, expect_row, multiply_add
from polytag.xmc.select import log_score

ROOM = 1 << 18  # size of the buffer for dense rows of a node
_AHEAD = 4  # rows whose entries are prefetched
_LOOKUP = 4  # a binary search costs about as much as writing this number of indices


@njit(inline="always")  # type: ignore[untyped-decorator]
def _add_entries(margins: Any, at: int, begin: int, stop: int, children: Any, weights: Any, value: Any) -> None:
    """Add the entries begin..stop of a feature's row, times the feature's value, to the margins of a node's children."""
    for q in range(begin, stop):
        margins[at, children[q]] = multiply_add(value, as_single(weights[q]), margins[at, children[q]])


@njit(inline="always")  # type: ignore[untyped-decorator]
def _write_out(wide: Any, slot: int, begin: int, stop: int, children: Any, weights: Any) -> None:
    """Write the entries begin..stop of a row as a dense row."""
    for c in range(wide.shape[1]):
        wide[slot, c] = 0
    for q in range(begin, stop):
        wide[slot, children[q]] = as_single(weights[q])


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _search_margins(
    indptr: Any, indices: Any, data: Any, document: int, node: int, row_starts: Any, entry_starts: Any, rows: Any, starts: Any,
    children: Any, weights: Any, slots: Any, factors: Any, margins: Any, at: int,
) -> None:  # fmt: skip
    """Add the products of one document with a node to ``margins[at]``; each feature is looked up by binary search.

    The weights of a large model are seldom in a cache. So the features take every step of the search together, without a branch,
    and what a feature needs next is prefetched: the processor waits for many parts of memory at a time, not for one after the
    other.
    """
    first, last = indptr[document], indptr[document + 1]
    low, end = row_starts[node], row_starts[node + 1]
    base, top = entry_starts[node], entry_starts[node + 1]
    if low == end:
        return
    for p in range(last - first):
        slots[p] = low
    size = end - low
    while size > 1:  # slots: the last row whose feature is not larger, among ``size`` rows
        half = size >> 1
        for p in range(last - first):
            middle = slots[p] + half
            slots[p] = middle if rows[np.uint32(middle)] <= indices[first + p] else slots[p]
        size -= half
    count = 0
    for p in range(last - first):
        row = slots[p]
        expect(starts, row)
        slots[count] = row
        factors[count] = data[first + p]
        count += rows[np.uint32(row)] == indices[first + p]
    for p in range(count + _AHEAD):
        if p < count:
            begin = base + starts[np.uint32(slots[p])]
            expect(children, begin)
            expect(weights, begin)
        if p >= _AHEAD:
            row = slots[p - _AHEAD] + 1
            begin, stop = base + starts[row - 1], base + starts[row] if row < end else top
            _add_entries(margins, at, begin, stop, children, weights, factors[p - _AHEAD])


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _placed_margins(
    indptr: Any, indices: Any, data: Any, document: int, node: int, row_starts: Any, entry_starts: Any, starts: Any,
    children: Any, weights: Any, place: Any, wide: Any, used: int, slots: Any, factors: Any, margins: Any, at: int,
) -> int:  # fmt: skip
    """The same with ``place``, the index of each feature's row: -1, a row, or -2 - slot of a dense row in ``wide``.

    A row is made dense when it is first needed, while slots are free, and added as a vector from then on. The features are added
    in the same order as above, so that the sums are identical. ``used`` slots are occupied before; the return value is the
    number after.
    """
    last, base, end = row_starts[node + 1], entry_starts[node], entry_starts[node + 1]
    count = 0
    for p in range(indptr[document], indptr[document + 1]):
        feature = np.uint32(indices[p])  # for signed indices, numba adds a check for negative ones
        row = place[feature]
        if row >= 0:
            begin, stop = base + starts[row], base + starts[row + 1] if row + 1 < last else end
            if used == len(wide):
                add_rows(margins, at, wide, slots, factors, count)
                count = 0
                _add_entries(margins, at, begin, stop, children, weights, data[p])
                continue
            _write_out(wide, used, begin, stop, children, weights)
            row = -2 - used
            place[feature] = row
            used += 1
        slots[count] = -2 - row
        factors[count] = data[p]
        count += row != -1
    add_rows(margins, at, wide, slots, factors, count)
    return used


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _by_node(flat: Any, ends: Any, order: Any) -> int:
    """Write the positions of all nodes that are not -1, grouped by node, and return their number; ``ends`` are zeros."""
    for p in range(len(flat)):
        if flat[p] >= 0:
            ends[flat[p] + 2] += 1
    for node in range(2, len(ends)):
        ends[node] += ends[node - 1]
    for p in range(len(flat)):
        if flat[p] >= 0:
            order[ends[flat[p] + 1]] = p
            ends[flat[p] + 1] += 1
    return int(ends[len(ends) - 1])


@kernel(
    "void(int64[::1],int32[::1],float32[::1],int64,int32[:,::1],int64[::1],int64[::1],int64[::1],int32[::1],uint32[::1],"
    "uint16[::1],uint16[::1],float32[::1],int32[::1],float32[:,::1],int32[::1],float32[::1],int64[::1],int64[::1],float32[:,::1])"
)
def beam_margins(
    indptr: Any, indices: Any, data: Any, begin: int, nodes: Any, child_starts: Any, row_starts: Any, entry_starts: Any,
    rows: Any, starts: Any, children: Any, weights: Any, bias: Any, place: Any, wide: Any, slots: Any, factors: Any, ends: Any,
    order: Any, margins: Any,
) -> None:  # fmt: skip
    """The margins of all children of the nodes in each document's beam.

    ``nodes`` (documents, beam) belong to documents begin, begin + 1, ... and are padded with -1. ``margins`` (documents * beam,
    width) is the output; the arrays from ``place`` to ``order`` are buffers, of which ``ends`` (nodes + 2) is zero.
    """
    beam = nodes.shape[1]
    flat = nodes.reshape(nodes.size)
    count = _by_node(flat, ends, order)
    at = 0
    while at < count:
        node = np.int64(flat[order[at]])
        stop = at
        words = np.int64(0)
        while stop < count and flat[order[stop]] == node:
            d = begin + order[stop] // beam
            words += indptr[d + 1] - indptr[d]
            stop += 1
        placed = words * _LOOKUP > row_starts[node + 1] - row_starts[node]
        if placed:
            for r in range(row_starts[node], row_starts[node + 1]):
                place[rows[r]] = r
        used = np.int64(0)
        for p in range(at, stop):
            if p + 1 < stop:
                expect_row(margins, order[p + 1])
            for c in range(child_starts[node], child_starts[node + 1]):
                margins[order[p], c - child_starts[node]] = bias[c]
            if placed:
                used = _placed_margins(
                    indptr, indices, data, begin + order[p] // beam, node, row_starts, entry_starts, starts, children, weights,
                    place, wide, used, slots, factors, margins, order[p],
                )  # fmt: skip
            else:
                _search_margins(
                    indptr, indices, data, begin + order[p] // beam, node, row_starts, entry_starts, rows, starts, children,
                    weights, slots, factors, margins, order[p],
                )  # fmt: skip
        if placed:
            for r in range(row_starts[node], row_starts[node + 1]):
                place[rows[r]] = -1
        at = stop


@kernel(
    "void(int64[::1],int32[::1],float32[::1],int64,int64,int64[::1],int32[::1],float32[::1],int64[::1],int32[::1],int64[::1],"
    "int64[::1],int64[::1],int32[::1],uint32[::1],uint16[::1],uint16[::1],float32[::1],int64,int32[::1],float32[:,::1],"
    "int32[::1],float32[::1],int64[::1],int64[::1],int64[::1],int64[::1],float32[:,::1],float32[::1])"
)
def given_step(
    indptr: Any, indices: Any, data: Any, begin: int, end: int, above: Any, nodes: Any, scores: Any, below: Any, wanted: Any,
    child_starts: Any, row_starts: Any, entry_starts: Any, rows: Any, starts: Any, children: Any, weights: Any, bias: Any,
    kind: int, place: Any, wide: Any, slots: Any, factors: Any, ends: Any, order: Any, owner: Any, begins: Any, margins: Any,
    values: Any,
) -> None:  # fmt: skip
    """Scores of given children, from the scores of their parents, for documents begin..end.

    ``nodes`` with their ``scores``, and the ``wanted`` children, are sparse rows with the offsets ``above`` and ``below``. Both
    are sorted, so the children of a node are contiguous. The arrays from ``place`` to ``margins`` (1, width) are buffers.
    ``values``, the output, has a score for every wanted child.
    """
    first, count = above[begin], above[end] - above[begin]
    q = below[begin]
    for document in range(begin, end):
        for p in range(above[document], above[document + 1]):
            owner[p - first] = document
            begins[p - first] = q
            while q < below[document + 1] and wanted[q] < child_starts[nodes[p] + 1]:
                q += 1
    begins[count] = q
    _by_node(nodes[first : first + count], ends, order)
    at = 0
    while at < count:
        node = np.int64(nodes[first + order[at]])
        stop = at
        words = np.int64(0)
        while stop < count and nodes[first + order[stop]] == node:
            words += indptr[owner[order[stop]] + 1] - indptr[owner[order[stop]]]
            stop += 1
        placed = words * _LOOKUP > row_starts[node + 1] - row_starts[node]
        if placed:
            for r in range(row_starts[node], row_starts[node + 1]):
                place[rows[r]] = r
        used, row = np.int64(0), np.int64(0)
        for p in order[at:stop]:
            for c in range(child_starts[node], child_starts[node + 1]):
                margins[row, c - child_starts[node]] = bias[c]
            if placed:
                used = _placed_margins(
                    indptr, indices, data, owner[p], node, row_starts, entry_starts, starts, children, weights, place, wide, used,
                    slots, factors, margins, row,
                )  # fmt: skip
            else:
                _search_margins(
                    indptr, indices, data, owner[p], node, row_starts, entry_starts, rows, starts, children, weights, slots,
                    factors, margins, row,
                )  # fmt: skip
            for q in range(begins[p], begins[p + 1]):
                values[q] = scores[first + p] + log_score(margins[0, wanted[q] - child_starts[node]], kind)
        if placed:
            for r in range(row_starts[node], row_starts[node + 1]):
                place[rows[r]] = -1
        at = stop


@kernel("void(int32[:,::1],float32[:,::1],int64[:,::1],int64,int32[:,::1],float32[:,::1])")
def mean_of_searches(labels: Any, logs: Any, orders: Any, searches: int, found: Any, values: Any) -> None:
    """The best labels by the mean probability over several searches, whose results are concatenated (documents, all).

    ``orders`` has the order of each document's labels by name.
    A label that a search did not find has probability 0 in it. ``found`` and ``values`` are outputs, best first, padded with -1.
    """
    for i in range(len(labels)):
        order = orders[i]
        at = count = 0
        while at < len(order):
            name = labels[i, order[at]]
            total = 0.0
            while at < len(order) and labels[i, order[at]] == name:
                total += np.exp(np.float64(logs[i, order[at]]))
                at += 1
            if name >= 0:
                _insert(found[i], values[i], count, name, np.log(max(total / searches, 1e-37)))
                count += 1
        for at in range(min(count, found.shape[1]), found.shape[1]):
            found[i, at] = -1
            values[i, at] = -np.inf


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _insert(found: Any, values: Any, count: int, name: int, value: float) -> None:
    """Insert a label into the ``count`` seen so far, best first; labels arrive in the order of their names."""
    at = min(count, len(found))
    if at == len(found):
        if value <= values[at - 1]:
            return
        at -= 1
    while at > 0 and values[at - 1] < value:
        values[at] = values[at - 1]
        found[at] = found[at - 1]
        at -= 1
    values[at] = value
    found[at] = name


@kernel("boolean(int64[::1],int64[::1],int64[::1],int32[::1],uint32[::1],uint16[::1],int64)")
def entries_fit(
    child_starts: Any, row_starts: Any, entry_starts: Any, rows: Any, starts: Any, children: Any, n_features: int
) -> bool:
    """Whether all rows, entries and children of all nodes are within bounds."""
    for node in range(len(child_starts) - 1):
        entries, width = entry_starts[node + 1] - entry_starts[node], child_starts[node + 1] - child_starts[node]
        feature, start = np.int64(-1), np.int64(0)
        for r in range(row_starts[node], row_starts[node + 1]):
            if rows[r] <= feature or rows[r] >= n_features or starts[r] < start or starts[r] > entries:
                return False
            feature, start = np.int64(rows[r]), np.int64(starts[r])
        for q in range(entry_starts[node], entry_starts[node + 1]):
            if children[q] >= width:
                return False
    return True
