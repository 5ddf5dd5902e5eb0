"""Compiled training of a tree node: sixteen children at once, on the documents of the node."""

from __future__ import annotations

from typing import Any

import numpy as np

from polytag.kernels.compiler import njit
from polytag.kernels.vectors import WIDTH
from polytag.linear.block_kernels import solve_block

_NOTHING = -1.0  # the margin of a child without positives in its node


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def gather(indptr: Any, indices: Any, data: Any, documents: Any, place: Any) -> Any:
    """The rows of some documents, with the columns that occur renumbered in order; ``place`` is all -1 before and after."""
    own = np.zeros(len(documents) + 1, dtype=np.int64)
    for i in range(len(documents)):
        own[i + 1] = own[i] + indptr[documents[i] + 1] - indptr[documents[i]]
    columns, values = np.empty(own[-1], dtype=np.int32), np.empty(own[-1], dtype=np.float32)
    features = np.empty(min(own[-1], len(place)), dtype=np.int32)
    count = at = 0
    for d in documents:
        for p in range(indptr[d], indptr[d + 1]):
            f = indices[p]
            if place[f] < 0:
                place[f] = 0
                features[count] = f
                count += 1
            columns[at], values[at] = f, data[p]
            at += 1
    features = np.sort(features[:count])
    for q in range(count):
        place[features[q]] = q
    for p in range(len(columns)):
        columns[p] = place[columns[p]]
    for f in features:
        place[f] = -1
    return own, columns, values, features


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def mark(documents: Any, t_indptr: Any, t_indices: Any, judged: Any, first: int, width: int, signs: Any) -> int:
    """Set ``signs`` (documents, WIDTH) to 1 where a document has child ``first`` + column, else -1; return the number of 1s.

    ``judged`` has the pairs that nobody judged (indptr, indices), which get 0, and 1 / weight of the documents, a factor of their
    signs; all are empty if every document counts the same and everything is judged.
    """
    found = 0
    signs[:] = -1
    for i in range(len(documents)):
        for q in range(t_indptr[documents[i]], t_indptr[documents[i] + 1]):
            j = t_indices[q] - first
            if 0 <= j < width:
                signs[i, j] = 1
                found += 1
    u_indptr, u_indices, easier = judged
    for i in range(len(documents)):
        if len(u_indptr):
            for q in range(u_indptr[documents[i]], u_indptr[documents[i] + 1]):
                j = u_indices[q] - first
                if 0 <= j < width:
                    signs[i, j] = 0
        if len(easier):
            signs[i, :] *= easier[documents[i]]
    return found


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def solve_children(
    indptr: Any, indices: Any, data: Any, n_features: int, squares: Any, documents: Any, t_indptr: Any, t_indices: Any,
    judged: Any, first: int, last: int, strength: Any, negative: float, tolerance: float, max_passes: int, prune: float,
    seed: int, bias: Any,
) -> Any:  # fmt: skip
    """Train the separators of children first..last, sixteen at a time; return entries (feature, child, weight).

    ``strength`` has C for the positives of every child. ``bias`` (children) is an output.
    """
    n = len(documents)
    signs, alpha = np.empty((n, WIDTH), dtype=np.float32), np.empty((n, WIDTH), dtype=np.float32)
    weights = np.empty((n_features, WIDTH), dtype=np.float32)
    own, inverse = np.zeros(WIDTH, dtype=np.float32), np.empty((2, WIDTH), dtype=np.float32)
    links, rows = np.zeros((0, 0), dtype=np.float32), np.arange(n).astype(np.int32)
    room = 1024
    features, children, values = np.empty(room, np.int32), np.empty(room, np.uint16), np.empty(room, np.float32)
    count = 0
    for start in range(first, last, WIDTH):
        width = min(WIDTH, last - start)
        if mark(documents, t_indptr, t_indices, judged, start, width, signs) == 0:
            bias[start - first : start - first + width] = _NOTHING
            continue
        inverse[0, :] = 0.5 / negative
        inverse[1, :] = 0.5 / negative
        for j in range(width):
            inverse[1, j] = 0.5 / strength[start + j]
        weights[:] = 0
        alpha[:] = 0
        own[:] = 0
        solve_block(
            indptr, indices, data, indptr[1:], squares, rows, signs, inverse, weights, own, alpha, links, tolerance,
            max_passes, seed,
        )  # fmt: skip
        bias[start - first : start - first + width] = own[:width]
        kept = 0
        for f in range(n_features):
            for j in range(width):
                kept += abs(weights[f, j]) > prune
        if count + kept > room:
            room = max(2 * room, count + kept)
            wider = np.empty(room, np.int32), np.empty(room, np.uint16), np.empty(room, np.float32)
            wider[0][:count], wider[1][:count], wider[2][:count] = features[:count], children[:count], values[:count]
            features, children, values = wider
        for f in range(n_features):
            for j in range(width):
                if abs(weights[f, j]) > prune:
                    features[count], children[count], values[count] = f, start - first + j, weights[f, j]
                    count += 1
    return features[:count], children[:count], values[:count]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def by_feature(n_features: int, features: Any, children: Any, values: Any, names: Any) -> Any:
    """Group entries by feature: feature ids, offsets of the rows, children, weights."""
    counts = np.zeros(n_features + 1, dtype=np.int64)
    for f in features:
        counts[f + 1] += 1
    used = 0
    for f in range(n_features):
        used += counts[f + 1] > 0
        counts[f + 1] += counts[f]
    rows, starts = np.empty(used, dtype=np.int32), np.empty(used, dtype=np.uint32)
    at = 0
    for f in range(n_features):
        if counts[f + 1] > counts[f]:
            rows[at], starts[at] = names[f], counts[f]
            at += 1
    sorted_children, sorted_values = np.empty_like(children), np.empty_like(values)
    for p in range(len(features)):
        q = counts[features[p]]
        sorted_children[q], sorted_values[q] = children[p], values[p]
        counts[features[p]] += 1
    return rows, starts, sorted_children, sorted_values


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def train_node(
    indptr: Any, indices: Any, data: Any, squares: Any, documents: Any, t_indptr: Any, t_indices: Any, judged: Any, first: int,
    last: int, strength: Any, negative: float, tolerance: float, max_passes: int, prune: float, seed: int, place: Any,
) -> Any:  # fmt: skip
    """Train all children of a node on its documents; return rows of weights by feature, and the bias of the children."""
    bias = np.empty(last - first, dtype=np.float32)
    own, columns, values, names = gather(indptr, indices, data, documents, place)
    entries = solve_children(
        own, columns, values, len(names), squares[documents], documents, t_indptr, t_indices, judged, first, last, strength,
        negative, tolerance, max_passes, prune, seed, bias,
    )  # fmt: skip
    rows, starts, children, weights = by_feature(len(names), entries[0], entries[1], entries[2], names)
    return rows, starts, children, weights, bias
