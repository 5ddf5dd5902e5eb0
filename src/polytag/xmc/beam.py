"""Compiled search down a tree: one step of the beam for many documents or one, and scores of labels that are given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from polytag.xmc.half import as_single


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _find(rows: Any, first: int, last: int, feature: int) -> int:
    """The place of a feature among sorted rows first..last, or the place where it would stand."""
    while first < last:
        middle = (first + last) >> 1
        if rows[middle] < feature:
            first = middle + 1
        else:
            last = middle
    return first


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _add_row(
    margins: Any, row: int, end_row: int, starts: Any, base: int, end: int, children: Any, weights: Any, value: Any
) -> None:
    """Add one feature's weights, times its value, to the margins of a node's children."""
    stop = base + starts[row + 1] if row + 1 < end_row else end
    for q in range(base + starts[row], stop):
        margins[children[q]] += value * as_single(weights[q])


@njit(nogil=True, fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def node_margins(
    indptr: Any, indices: Any, data: Any, document: int, node: int, child_starts: Any, row_starts: Any, entry_starts: Any,
    rows: Any, starts: Any, children: Any, weights: Any, bias: Any, place: Any, placed: bool, margins: Any,
) -> None:  # fmt: skip
    """Margins of a node's children for one document; ``place`` says where each feature's row is if ``placed``."""
    first, last = row_starts[node], row_starts[node + 1]
    base, end = entry_starts[node], entry_starts[node + 1]
    for c in range(child_starts[node + 1] - child_starts[node]):
        margins[c] = bias[child_starts[node] + c]
    low = first
    for p in range(indptr[document], indptr[document + 1]):
        f = indices[p]
        if placed:
            row = place[f]
            if row >= 0:
                _add_row(margins, row, last, starts, base, end, children, weights, data[p])
        else:
            low = _find(rows, low, last, f)
            if low == last:
                break
            if rows[low] == f:
                _add_row(margins, low, last, starts, base, end, children, weights, data[p])


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def place_rows(node: int, words: int, row_starts: Any, rows: Any, place: Any) -> bool:
    """Note in ``place`` where the rows of a node are if documents with so many words will be read there; whether it was done."""
    first, last = row_starts[node], row_starts[node + 1]
    if words * 4 <= last - first:  # looking a word up costs about four times as much as placing a row
        return False
    for r in range(first, last):
        place[rows[r]] = r
    return True


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def clear_rows(node: int, row_starts: Any, rows: Any, place: Any) -> None:
    """Leave ``place`` as it was."""
    for r in range(row_starts[node], row_starts[node + 1]):
        place[rows[r]] = -1


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def log_score(margin: Any, kind: int) -> Any:
    """Log of what a margin is worth: -max(0, 1 - margin)^kind for kind 1 to 4, the log of the sigmoid for kind 0."""
    if kind == 0:
        return np.float32(-np.log1p(np.exp(-margin))) if margin > -30 else np.float32(margin)
    gap = max(np.float32(1.0) - margin, np.float32(0.0))
    worth = gap
    for _ in range(kind - 1):
        worth *= gap
    return -worth


@njit(nogil=True, fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def beam_step(
    indptr: Any, indices: Any, data: Any, begin: int, nodes: Any, scores: Any, child_starts: Any, row_starts: Any,
    entry_starts: Any, rows: Any, starts: Any, children: Any, weights: Any, bias: Any, kind: int, names: Any, place: Any,
    found: Any, values: Any,
) -> None:  # fmt: skip
    """From the nodes that each document has reached to the best of their children.

    ``nodes`` and ``scores`` (documents, beam) belong to documents begin, begin + 1, ...; -1 where there are fewer. ``found`` and
    ``values`` (documents, wanted) are filled, best first, equal ones by name; ``names`` names every child.
    """
    n, beam = nodes.shape
    flat = nodes.ravel()
    order = np.argsort(flat, kind="mergesort")
    at = 0
    while at < len(order) and flat[order[at]] < 0:
        at += 1
    width = 0
    for p in range(at, len(order)):
        width = max(width, child_starts[flat[order[p]] + 1] - child_starts[flat[order[p]]])
    margins = np.empty((len(order), width), dtype=np.float32)
    while at < len(order):
        node = flat[order[at]]
        stop = at
        words = 0
        while stop < len(order) and flat[order[stop]] == node:
            d = begin + order[stop] // beam
            words += indptr[d + 1] - indptr[d]
            stop += 1
        placed = place_rows(node, words, row_starts, rows, place)
        for p in range(at, stop):
            node_margins(
                indptr, indices, data, begin + order[p] // beam, node, child_starts, row_starts, entry_starts, rows, starts,
                children, weights, bias, place, placed, margins[order[p]],
            )  # fmt: skip
        if placed:
            clear_rows(node, row_starts, rows, place)
        at = stop
    for i in range(n):
        _best_children(i, nodes, scores, margins, child_starts, kind, names, found[i], values[i])


@njit(nogil=True, fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def _best_children(
    i: int, nodes: Any, scores: Any, margins: Any, child_starts: Any, kind: int, names: Any, found: Any, values: Any
) -> None:
    """The best children of all nodes that document i has reached."""
    beam, wanted = nodes.shape[1], len(found)
    count = 0
    for b in range(beam):
        node = nodes[i, b]
        if node < 0:
            continue
        for c in range(child_starts[node + 1] - child_starts[node]):
            value = scores[i, b] + log_score(margins[i * beam + b, c], kind)
            if count == wanted and value < values[wanted - 1]:
                continue
            name = names[child_starts[node] + c]
            if count == wanted and value == values[wanted - 1] and name > found[wanted - 1]:
                continue
            at = count if count < wanted else wanted - 1
            count = min(count + 1, wanted)
            while at > 0 and (values[at - 1] < value or (values[at - 1] == value and found[at - 1] > name)):
                values[at] = values[at - 1]
                found[at] = found[at - 1]
                at -= 1
            values[at] = value
            found[at] = name
    for at in range(count, wanted):
        found[at] = -1
        values[at] = -np.inf


@njit(nogil=True, fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def given_step(
    indptr: Any, indices: Any, data: Any, begin: int, end: int, above: Any, nodes: Any, scores: Any, below: Any, wanted: Any,
    child_starts: Any, row_starts: Any, entry_starts: Any, rows: Any, starts: Any, children: Any, weights: Any, bias: Any,
    kind: int, place: Any, values: Any,
) -> None:  # fmt: skip
    """Scores of given children of the nodes whose scores are known, for documents begin..end.

    ``nodes`` with their ``scores`` and the ``wanted`` children are sparse rows (``above`` and ``below`` say where each document's
    begin), both ascending: the children of a node stand together. ``values`` takes a score for every wanted child.
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
    order = np.argsort(nodes[first : first + count], kind="mergesort")
    width = 0
    for node in nodes[first : first + count]:
        width = max(width, child_starts[node + 1] - child_starts[node])
    margins = np.empty(width, dtype=np.float32)
    at = 0
    while at < count:
        node = nodes[first + order[at]]
        stop = at
        words = 0
        while stop < count and nodes[first + order[stop]] == node:
            words += indptr[owner[order[stop]] + 1] - indptr[owner[order[stop]]]
            stop += 1
        placed = place_rows(node, words, row_starts, rows, place)
        for p in order[at:stop]:
            node_margins(
                indptr, indices, data, owner[p], node, child_starts, row_starts, entry_starts, rows, starts, children,
                weights, bias, place, placed, margins,
            )  # fmt: skip
            for q in range(begins[p], begins[p + 1]):
                values[q] = scores[first + p] + log_score(margins[wanted[q] - child_starts[node]], kind)
        if placed:
            clear_rows(node, row_starts, rows, place)
        at = stop


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def mean_of_searches(labels: Any, logs: Any, searches: int, found: Any, values: Any) -> None:
    """The best labels by the mean probability over several searches, whose results (documents, all) stand side by side.

    A search that has not found a label counts as 0. ``found`` and ``values`` are filled, best first, -1 where there are fewer.
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
    """Put a label among the ``count`` seen so far, best first; they come in the order of their names."""
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
    """Whether no row, entry or child of any node points outside of what there is."""
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
