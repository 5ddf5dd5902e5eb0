"""Compiled tree search: one step of beam search for any number of documents, and scores of given labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from polytag.kernels.compiler import njit
from polytag.kernels.half_precision import as_single
from polytag.kernels.vectors import add_rows, expect_row
from polytag.xmc.select import choose, log_score

ROOM = 1 << 18  # size of the buffer for dense rows of a node


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _find(rows: Any, first: int, last: int, feature: int) -> int:
    """The index of a feature in the sorted rows first..last, or its insertion point."""
    while first < last:
        middle = (first + last) >> 1
        if rows[middle] < feature:
            first = middle + 1
        else:
            last = middle
    return first


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _add_entries(margins: Any, at: int, begin: int, stop: int, children: Any, weights: Any, value: Any) -> None:
    """Add the entries begin..stop of a feature's row, times the feature's value, to the margins of a node's children."""
    for q in range(begin, stop):
        margins[at, children[q]] += value * as_single(weights[q])


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _write_out(wide: Any, slot: int, begin: int, stop: int, children: Any, weights: Any) -> None:
    """Write the entries begin..stop of a row as a dense row."""
    for c in range(wide.shape[1]):
        wide[slot, c] = 0
    for q in range(begin, stop):
        wide[slot, children[q]] = as_single(weights[q])


@njit(nogil=True, fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def _search_margins(
    indptr: Any, indices: Any, data: Any, document: int, node: int, row_starts: Any, entry_starts: Any, rows: Any, starts: Any,
    children: Any, weights: Any, margins: Any, at: int,
) -> None:  # fmt: skip
    """Add the products of one document with a node to ``margins[at]``; each feature is looked up by binary search."""
    low, last = row_starts[node], row_starts[node + 1]
    base, end = entry_starts[node], entry_starts[node + 1]
    for p in range(indptr[document], indptr[document + 1]):
        low = _find(rows, low, last, indices[p])
        if low == last:
            break
        if rows[low] == indices[p]:
            stop = base + starts[low + 1] if low + 1 < last else end
            _add_entries(margins, at, base + starts[low], stop, children, weights, data[p])


@njit(nogil=True, fastmath=True, cache=True)  # type: ignore[untyped-decorator]
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
        slots[count], factors[count] = -2 - row, data[p]
        count += row != -1
    add_rows(margins, at, wide, slots, factors, count)
    return used


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _node_margins(
    indptr: Any, indices: Any, data: Any, document: int, node: int, child_starts: Any, row_starts: Any, entry_starts: Any,
    rows: Any, starts: Any, children: Any, weights: Any, bias: Any, place: Any, placed: bool, wide: Any, used: int, slots: Any,
    factors: Any, margins: Any, at: int,
) -> int:  # fmt: skip
    """Set ``margins[at]`` to the margins of a node's children for one document; return the occupied slots of ``wide``."""
    for c in range(child_starts[node + 1] - child_starts[node]):
        margins[at, c] = bias[child_starts[node] + c]
    if not placed:
        _search_margins(
            indptr, indices, data, document, node, row_starts, entry_starts, rows, starts, children, weights, margins, at
        )  # fmt: skip
        return used
    used = _placed_margins(
        indptr, indices, data, document, node, row_starts, entry_starts, starts, children, weights, place, wide, used, slots,
        factors, margins, at,
    )  # fmt: skip
    return used


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _room(n: int, indptr: Any, begin: int, scratch: Any, width: int) -> Any:
    """Buffers: dense rows of this width, and the slots and factors of the longest of n documents from ``begin``."""
    longest = 1
    for d in range(begin, begin + n):
        longest = max(longest, indptr[d + 1] - indptr[d])
    count = len(scratch) // max(width, 1)
    wide = scratch[: count * width].reshape((count, width))
    return wide, np.empty(longest, dtype=np.int32), np.empty(longest, dtype=np.float32)


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def place_rows(node: int, words: int, row_starts: Any, rows: Any, place: Any) -> bool:
    """Write the row indices of a node into ``place`` if that pays for this number of lookups; return whether it did."""
    first, last = row_starts[node], row_starts[node + 1]
    if words * 4 <= last - first:  # a binary search costs about four times as much as writing an index
        return False
    for r in range(first, last):
        place[rows[r]] = r
    return True


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def clear_rows(node: int, row_starts: Any, rows: Any, place: Any) -> None:
    """Reset ``place`` to -1."""
    for r in range(row_starts[node], row_starts[node + 1]):
        place[rows[r]] = -1


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def beam_step(
    indptr: Any, indices: Any, data: Any, begin: int, nodes: Any, scores: Any, child_starts: Any, row_starts: Any,
    entry_starts: Any, rows: Any, starts: Any, children: Any, weights: Any, bias: Any, kind: int, names: Any, place: Any,
    scratch: Any, margins: Any, found: Any, values: Any,
) -> None:  # fmt: skip
    """One step of beam search: from the nodes in each document's beam to the best of their children.

    ``nodes`` and ``scores`` (documents, beam) belong to documents begin, begin + 1, ... and are padded with -1. ``margins``
    (documents * beam, width) and ``scratch`` are buffers. ``found`` and ``values`` (documents, wanted) are outputs, best first,
    ties by name; ``names`` has the id of every child.
    """
    n, beam = nodes.shape
    flat = nodes.ravel()
    order = _by_node(flat, len(child_starts) - 1)
    wide, slots, factors = _room(n, indptr, begin, scratch, margins.shape[1])
    at = 0
    while at < len(order):
        node = flat[order[at]]
        stop = at
        words = 0
        while stop < len(order) and flat[order[stop]] == node:
            d = begin + order[stop] // beam
            words += indptr[d + 1] - indptr[d]
            stop += 1
        placed = place_rows(node, words, row_starts, rows, place)
        used = 0
        for p in range(at, stop):
            if p + 1 < stop:
                expect_row(margins, order[p + 1])
            used = _node_margins(
                indptr, indices, data, begin + order[p] // beam, node, child_starts, row_starts, entry_starts, rows, starts,
                children, weights, bias, place, placed, wide, used, slots, factors, margins, order[p],
            )  # fmt: skip
        if placed:
            clear_rows(node, row_starts, rows, place)
        at = stop
    choose(nodes, scores, margins, child_starts, kind, names, found, values)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _by_node(flat: Any, count: int) -> Any:
    """The positions of all nodes that are not -1, grouped by node."""
    ends = np.zeros(count + 2, dtype=np.int64)
    for node in flat:
        if node >= 0:
            ends[node + 2] += 1
    for node in range(2, count + 2):
        ends[node] += ends[node - 1]
    order = np.empty(ends[-1], dtype=np.int64)
    for p in range(len(flat)):
        if flat[p] >= 0:
            order[ends[flat[p] + 1]] = p
            ends[flat[p] + 1] += 1
    return order


@njit(nogil=True, fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def given_step(
    indptr: Any, indices: Any, data: Any, begin: int, end: int, above: Any, nodes: Any, scores: Any, below: Any, wanted: Any,
    child_starts: Any, row_starts: Any, entry_starts: Any, rows: Any, starts: Any, children: Any, weights: Any, bias: Any,
    kind: int, place: Any, scratch: Any, margins: Any, values: Any,
) -> None:  # fmt: skip
    """Scores of given children, from the scores of their parents, for documents begin..end.

    ``nodes`` with their ``scores``, and the ``wanted`` children, are sparse rows with the offsets ``above`` and ``below``. Both
    are sorted, so the children of a node are contiguous. ``margins`` (1, width) and ``scratch`` are buffers. ``values``, the
    output, has a score for every wanted child.
    """
    first, count = above[begin], above[end] - above[begin]
    owner, begins = np.empty(count, dtype=np.int64), np.empty(count + 1, dtype=np.int64)
    q = below[begin]
    for document in range(begin, end):
        for p in range(above[document], above[document + 1]):
            owner[p - first], begins[p - first] = document, q
            while q < below[document + 1] and wanted[q] < child_starts[nodes[p] + 1]:
                q += 1
    begins[count] = q
    order = _by_node(nodes[first : first + count], len(child_starts) - 1)
    wide, slots, factors = _room(end - begin, indptr, begin, scratch, margins.shape[1])
    at = 0
    while at < count:
        node = nodes[first + order[at]]
        stop = at
        words = 0
        while stop < count and nodes[first + order[stop]] == node:
            words += indptr[owner[order[stop]] + 1] - indptr[owner[order[stop]]]
            stop += 1
        placed = place_rows(node, words, row_starts, rows, place)
        used = 0
        for p in order[at:stop]:
            used = _node_margins(
                indptr, indices, data, owner[p], node, child_starts, row_starts, entry_starts, rows, starts, children, weights,
                bias, place, placed, wide, used, slots, factors, margins, 0,
            )  # fmt: skip
            for q in range(begins[p], begins[p + 1]):
                values[q] = scores[first + p] + log_score(margins[0, wanted[q] - child_starts[node]], kind)
        if placed:
            clear_rows(node, row_starts, rows, place)
        at = stop


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def mean_of_searches(labels: Any, logs: Any, searches: int, found: Any, values: Any) -> None:
    """The best labels by the mean probability over several searches, whose results are concatenated (documents, all).

    A label that a search did not find has probability 0 in it. ``found`` and ``values`` are outputs, best first, padded with -1.
    """
    for i in range(len(labels)):
        order = np.argsort(labels[i], kind="mergesort")
        at = count = 0
        while at < len(order):
            name, total = labels[i, order[at]], 0.0
            while at < len(order) and labels[i, order[at]] == name:
                total += np.exp(np.float64(logs[i, order[at]]))
                at += 1
            if name >= 0:
                _insert(found[i], values[i], count, name, np.log(max(total / searches, 1e-37)))
                count += 1
        for at in range(min(count, found.shape[1]), found.shape[1]):
            found[i, at] = -1
            values[i, at] = -np.inf


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
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


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
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
