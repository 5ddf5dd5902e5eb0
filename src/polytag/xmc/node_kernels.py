"""Compiled training of a tree node: sixteen children at once, on the documents of the node."""

from __future__ import annotations

from typing import Any

import numpy as np

from polytag.kernels.compiler import kernel, njit
from polytag.kernels.sorting import sort_part
from polytag.kernels.vectors import WIDTH
from polytag.linear.block_kernels import solve_block

_NOTHING = -1.0  # the margin of a child without positives in its node


@kernel("int64(int64[::1],int32[::1],float32[::1],int32[::1],int32[::1],int64[::1],int32[::1],float32[::1],int32[::1])")
def gather(
    indptr: Any, indices: Any, data: Any, documents: Any, place: Any, own: Any, columns: Any, values: Any, features: Any
) -> int:
    """Write the rows of some documents, with the columns that occur renumbered in order, and return the number of columns.

    ``own``, ``columns`` and ``values`` are the rows, and ``features`` has the columns. ``place`` is all -1 before and after.
    """
    first = np.int64(0)
    count = np.int64(0)
    at = 0
    own[0] = 0
    for i in range(len(documents)):
        for p in range(indptr[documents[i]], indptr[documents[i] + 1]):
            f = indices[p]
            if place[f] < 0:
                place[f] = 0
                features[count] = f
                count += 1
            columns[at] = f
            values[at] = data[p]
            at += 1
        own[i + 1] = at
    sort_part(features, first, count)
    for q in range(count):
        place[features[q]] = q
    for p in range(at):
        columns[p] = place[columns[p]]
    for q in range(count):
        place[features[q]] = -1
    return int(count)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _mark(
    documents: Any, t_indptr: Any, t_indices: Any, u_indptr: Any, u_indices: Any, easier: Any, first: int, width: int, signs: Any
) -> int:
    """Set ``signs`` (documents, WIDTH) for the children from ``first`` on; return the number of positives."""
    positives = 0
    for i in range(len(documents)):
        for j in range(WIDTH):
            signs[i, j] = -1
        for q in range(t_indptr[documents[i]], t_indptr[documents[i] + 1]):
            child = t_indices[q] - first
            if 0 <= child < width:
                signs[i, child] = 1
                positives += 1
        if len(u_indptr) > 0:
            for q in range(u_indptr[documents[i]], u_indptr[documents[i] + 1]):
                child = u_indices[q] - first
                if 0 <= child < width:
                    signs[i, child] = 0
        if len(easier) > 0:
            for j in range(WIDTH):
                signs[i, j] *= easier[documents[i]]
    return positives


@kernel(
    "int64(int64[::1],int32[::1],float32[::1],float32[::1],int32[::1],int64[::1],int32[::1],int64[::1],int32[::1],float32[::1],"
    "int64,int64,float32[::1],float64,"
    "float64,int64,float64,int64,float32[::1],int32[::1],float32[:,::1],float32[:,::1],float32[:,::1],float32[:,::1],"
    "float32[:,::1],int32[::1],uint16[::1],float32[::1])"
)
def solve_children(
    indptr: Any, indices: Any, data: Any, squares: Any, documents: Any, t_indptr: Any, t_indices: Any, u_indptr: Any,
    u_indices: Any, easier: Any, first: int, last: int, strength: Any, negative: float, tolerance: float, max_passes: int,
    prune: float, seed: int, bias: Any, active: Any, signs: Any, alpha: Any, weights: Any, room: Any, links: Any, features: Any,
    children: Any, values: Any,
) -> int:  # fmt: skip
    """Train the separators of children first..last, sixteen at a time; return the number of entries (feature, child, weight).

    ``strength`` has C for the positives of every child. ``bias`` (children), ``features``, ``children`` and ``values`` are
    outputs. ``active`` (documents), ``signs`` and ``alpha`` (documents, WIDTH), ``weights`` (features, WIDTH) and ``room``
    (8, WIDTH) are buffers. ``links`` (0, 0) says that children are independent. ``u_indptr`` and ``u_indices`` are the pairs that
    nobody judged, whose sign is 0. ``easier`` is 1 / weight of the documents, a factor of their signs. All three are empty if
    every document counts the same and everything is judged.
    """
    inverse, own = room[5:7], room[7]
    count = 0
    for start in range(first, last, WIDTH):
        width = WIDTH if last - start > WIDTH else last - start
        for i in range(len(documents)):
            active[i] = i
            for j in range(WIDTH):
                alpha[i, j] = 0
        positives = _mark(documents, t_indptr, t_indices, u_indptr, u_indices, easier, start, width, signs)
        if positives == 0:
            for j in range(width):
                bias[start - first + j] = _NOTHING
            continue
        for j in range(WIDTH):
            own[j] = 0
            inverse[0, j] = 0.5 / negative
            inverse[1, j] = 0.5 / strength[start + j] if j < width else 0.5 / negative
        for f in range(len(weights)):
            for j in range(WIDTH):
                weights[f, j] = 0
        solve_block(
            indptr, indices, data, indptr[1:], squares, active, signs, inverse, weights, own, alpha, links, room, tolerance,
            max_passes, seed,
        )  # fmt: skip
        for j in range(width):
            bias[start - first + j] = own[j]
        for f in range(len(weights)):
            for j in range(width):
                if abs(weights[f, j]) > prune:
                    features[count] = f
                    children[count] = start - first + j
                    values[count] = weights[f, j]
                    count += 1
    return count


@kernel("int64(int32[::1],uint16[::1],float32[::1],int32[::1],int64[::1],int32[::1],uint32[::1],uint16[::1],float32[::1])")
def by_feature(
    features: Any, children: Any, values: Any, names: Any, counts: Any, rows: Any, starts: Any, out_children: Any, out_values: Any
) -> int:
    """Group entries by feature: feature ids, offsets of the rows, children, weights; return the number of rows.

    ``counts`` (features + 1, zeros) is a buffer.
    """
    for p in range(len(features)):
        counts[features[p] + 1] += 1
    used = 0
    for f in range(len(names)):
        counts[f + 1] += counts[f]
        if counts[f + 1] > counts[f]:
            rows[used] = names[f]
            starts[used] = counts[f]
            used += 1
    for p in range(len(features)):
        q = counts[features[p]]
        out_children[q] = children[p]
        out_values[q] = values[p]
        counts[features[p]] += 1
    return used
