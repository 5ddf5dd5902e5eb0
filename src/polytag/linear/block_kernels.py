"""Compiled loops over sparse rows. They release the GIL, so that threads run them in parallel."""

from __future__ import annotations

from typing import Any

import numpy as np

from polytag.kernels.compiler import kernel, njit
from polytag.kernels.sorting import sort_part
from polytag.kernels.vectors import WIDTH, add_to_block, row_times_block

REST = 0.1  # steps below this share of the tolerance are skipped


# The helpers of ``solve_block`` are inlined, so that calls cost nothing.


@njit(inline="always")  # type: ignore[untyped-decorator]
def _next_random(state: Any) -> Any:
    """The next state of an xorshift generator."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    return state ^ (state << np.uint64(17))


@njit(inline="always")  # type: ignore[untyped-decorator]
def _taken(active: Any, at: int, other: int) -> Any:
    """Exchange two documents; return the one that is at the first place then."""
    i = active[other]
    active[other] = active[at]
    active[at] = i
    return i


@njit(inline="always")  # type: ignore[untyped-decorator]
def _add_links(margin: Any, links: Any, signs: Any, i: int) -> None:
    """Add the links of every true label of document i to the margins of the later labels."""
    for q in range(WIDTH):
        if signs[i, q] > 0:
            for j in range(q + 1, WIDTH):
                margin[j] += links[q, j]


@njit(inline="always")  # type: ignore[untyped-decorator]
def _move_links(links: Any, step: Any, signs: Any, i: int) -> None:
    """Update the links from the true labels of document i to the later labels."""
    for q in range(WIDTH):
        if signs[i, q] > 0:
            for j in range(q + 1, WIDTH):
                links[q, j] += step[j]


@njit(inline="always")  # type: ignore[untyped-decorator]
def _look(
    i: int, margin: Any, signs: Any, alpha: Any, inverse: Any, square: Any, chained: bool,
    high: Any, low: Any, fresh: Any, step: Any,
) -> Any:  # fmt: skip
    """Compute the update by document i for every label: the new alpha in ``fresh``, the step of the weights in ``step``.

    ``high`` and ``low`` are the running maximum and minimum of the projected gradients. Returns the largest absolute one. In a
    chain, a true label is a feature of the later labels and adds to the document's squared norm.
    """
    change = np.float32(0.0)
    for j in range(WIDTH):
        a = alpha[i, j]
        sign = signs[i, j]
        slack = inverse[1, j] if sign > 0 else inverse[0, j]
        gradient = sign * margin[j] - np.float32(1.0) + slack * a
        projected = gradient if a > 0 else min(gradient, np.float32(0.0))
        high[j] = max(high[j], projected)
        low[j] = min(low[j], projected)
        change = max(change, abs(projected))
        fresh[j] = max(a - gradient / (square + slack), np.float32(0.0))
        if chained and sign > 0:
            square += np.float32(1.0)
        step[j] = (fresh[j] - a) * sign
    return change


@njit(inline="always")  # type: ignore[untyped-decorator]
def _look_judged(
    i: int, margin: Any, signs: Any, alpha: Any, inverse: Any, square: Any, chained: bool,
    high: Any, low: Any, fresh: Any, step: Any,
) -> Any:  # fmt: skip
    """The same where documents have weights, or nobody judged some labels, which do not change.

    It is a function of its own, so that the results without weights stay the same to the bit.
    """
    change = np.float32(0.0)
    for j in range(WIDTH):
        a = alpha[i, j]
        mark = signs[i, j]
        sign = np.float32(1.0) if mark > 0 else np.float32(-1.0)
        slack = (inverse[1, j] if mark > 0 else inverse[0, j]) * abs(mark)
        gradient = np.float32(0.0) if mark == 0 else sign * margin[j] - np.float32(1.0) + slack * a
        projected = gradient if a > 0 else min(gradient, np.float32(0.0))
        high[j] = max(high[j], projected)
        low[j] = min(low[j], projected)
        change = max(change, abs(projected))
        fresh[j] = max(a - gradient / (square + slack), np.float32(0.0))
        if chained and mark > 0:
            square += np.float32(1.0)
        step[j] = (fresh[j] - a) * sign
    return change


@njit(inline="always")  # type: ignore[untyped-decorator]
def _weighted(rows: Any, signs: Any) -> bool:
    """Whether any sign is neither 1 nor -1."""
    for i in rows:
        for j in range(WIDTH):
            if abs(signs[i, j]) != 1:
                return True
    return False


@njit(inline="always")  # type: ignore[untyped-decorator]
def _widest(high: Any, low: Any) -> Any:
    """The largest range of the projected gradients of a label."""
    worst = np.float32(0.0)
    for j in range(WIDTH):
        worst = max(worst, high[j] - low[j])
    return worst


@kernel(
    "int64(int64[::1],int32[::1],float32[::1],int64[::1],float32[::1],int32[::1],float32[:,::1],float32[:,::1],"
    "float32[:,::1],float32[::1],float32[:,::1],float32[:,::1],float32[:,::1],float64,int64,int64)",
    fastmath=True,
)
def solve_block(
    indptr: Any, indices: Any, data: Any, ends: Any, squares: Any, active: Any, signs: Any, inverse: Any,
    weights: Any, bias: Any, alpha: Any, links: Any, room: Any, tolerance: float, max_passes: int, seed: int,
) -> int:  # fmt: skip
    """Dual coordinate descent for WIDTH labels at once: L2-regularised squared hinge with a bias term.

    ``signs`` (documents, WIDTH) is 1 where a label is true, else -1, each divided by the weight of the document; 0 where nobody
    judged the label. ``inverse`` (2, WIDTH) is 1/2C of negatives and positives.
    ``weights`` (features, WIDTH), ``bias`` (WIDTH) and ``alpha`` (documents, WIDTH) are updated in place, so that the solution
    for one C initialises the next. With ``links`` (WIDTH, WIDTH) the labels form a chain: a true label of the block is a feature
    of the later labels. With ``links`` (0, 0) they are independent.

    A document whose gradients are all below a fraction of the tolerance is skipped until the next complete pass (shrinking).
    Only a complete pass can end the optimisation. Returns the number of passes. ``active`` has the documents to train on, and
    is shuffled; ``room`` (5, WIDTH) is a buffer.
    """
    size = len(active)
    high, low, margin, fresh, step = room[0], room[1], room[2], room[3], room[4]
    state = np.uint64(seed) * np.uint64(2685821657736338717) + np.uint64(88172645463325252)
    negligible = np.float32(REST * tolerance)
    chained = links.shape[0] > 0
    weighted = _weighted(active, signs)
    for passes in range(1, max_passes + 1):
        for j in range(WIDTH):
            high[j] = -np.inf
            low[j] = np.inf
        complete = size == len(active)
        at = 0
        while at < size:
            state = _next_random(state)
            i = _taken(active, at, at + np.int64(state % np.uint64(size - at)))
            for j in range(WIDTH):
                margin[j] = bias[j]
            row_times_block(margin, weights, indices, data, indptr[i], ends[i])
            if chained:
                _add_links(margin, links, signs, i)
            if weighted:
                change = _look_judged(i, margin, signs, alpha, inverse, squares[i], chained, high, low, fresh, step)
            else:
                change = _look(i, margin, signs, alpha, inverse, squares[i], chained, high, low, fresh, step)
            if change > negligible:
                for j in range(WIDTH):
                    bias[j] += step[j]
                    alpha[i, j] = fresh[j]
                add_to_block(weights, step, indices, data, indptr[i], ends[i])
                if chained:
                    _move_links(links, step, signs, i)
                at += 1
            else:  # skipped until the next complete pass
                size -= 1
                active[at] = active[size]
                active[size] = i
        worst = _widest(high, low)
        if complete and worst <= tolerance:
            return passes
        if worst <= tolerance or size == 0:
            size = len(active)
    return max_passes


@kernel(
    "void(int64[::1],int32[::1],float32[::1],int64,int64,float32[:,:,::1],float32[:,::1],int32[:,::1],float32[::1],float32[:,::1])",
    fastmath=True,
)
def score_blocks(
    indptr: Any, indices: Any, data: Any, start: int, stop: int, blocks: Any, bias: Any, columns: Any, margin: Any, out: Any
) -> None:
    """Margins of documents start..stop for dense blocks (blocks, features, WIDTH); a block stays in cache for all documents.

    ``bias`` is (blocks, WIDTH); column j of block b is label ``columns[b, j]``, or unused where that is -1. ``margin`` (WIDTH) is
    a buffer.
    """
    for b in range(blocks.shape[0]):
        block = blocks[b]
        for i in range(start, stop):
            for j in range(WIDTH):
                margin[j] = bias[b, j]
            row_times_block(margin, block, indices, data, indptr[i], indptr[i + 1])
            for j in range(WIDTH):
                if columns[b, j] >= 0:
                    out[i - start, columns[b, j]] = margin[j]


@kernel(
    "void(int64[::1],int32[::1],float32[::1],int64,int64,int64[::1],int32[::1],float32[::1],float32[::1],float32[:,::1])",
    fastmath=True,
)
def score_sparse(
    indptr: Any, indices: Any, data: Any, start: int, stop: int, w_indptr: Any, w_indices: Any, w_data: Any, bias: Any, out: Any
) -> None:
    """Margins of documents start..stop for sparse weights (features, labels)."""
    for i in range(start, stop):
        row = out[i - start]
        for j in range(len(bias)):
            row[j] = bias[j]
        for p in range(indptr[i], indptr[i + 1]):
            value = data[p]
            for q in range(w_indptr[indices[p]], w_indptr[indices[p] + 1]):
                row[w_indices[q]] += value * w_data[q]


@kernel("void(int64[::1],int32[::1],float32[::1],int64,int64,float32[:,:,::1])")
def fill_blocks(indptr: Any, indices: Any, data: Any, start: int, stop: int, blocks: Any) -> None:
    """Write the rows start..stop of sparse weights into dense blocks of columns, which must be zero."""
    for row in range(start, stop):
        for p in range(indptr[row], indptr[row + 1]):
            column = np.uint32(indices[p])
            blocks[column // WIDTH, row, column % WIDTH] = data[p]


@kernel("void(float32[:,::1],int64,int32[:,::1],float32[:,::1])")
def best_of_rows(table: Any, k: int, labels: Any, values: Any) -> None:
    """The k largest entries of every row, best first, ties by column; insertion sort, which is cheap for small k."""
    for i in range(table.shape[0]):
        count = 0
        for c in range(table.shape[1]):
            value = table[i, c]
            if count == k and value <= values[i, k - 1]:
                continue
            at = count if count < k else k - 1
            count = min(count + 1, k)
            while at > 0 and values[i, at - 1] < value:
                values[i, at] = values[i, at - 1]
                labels[i, at] = labels[i, at - 1]
                at -= 1
            values[i, at] = value
            labels[i, at] = c


@kernel("void(float32[:,::1],int64[::1],float32[:,::1])", fastmath=True)
def run_chain(table: Any, order: Any, links: Any) -> None:
    """Greedy inference in a classifier chain: every predicted label adds its links to the margins of the later labels.

    ``links[a, b]`` is the weight of label a as a feature of label b.
    """
    for i in range(table.shape[0]):
        for label in order:
            if table[i, label] > 0:
                for later in range(table.shape[1]):
                    table[i, later] += links[label, later]


@kernel("int64(int32[:,::1],float32[:,::1],int64[::1],int64[::1],int64[::1],float32[::1],int64[::1],int32[::1],float32[::1])")
def labels_of_sets(
    found: Any, margins: Any, set_indptr: Any, set_indices: Any, seen: Any, best: Any, indptr: Any, indices: Any, values: Any
) -> int:
    """The label scores of every document from its best label sets: the margin of the best set that contains the label.

    ``found`` and ``margins`` (documents, sets) are sorted best first, so the first set that contains a label decides.
    ``seen`` (-1) and ``best`` (labels) are buffers.
    """
    count = 0
    for i in range(found.shape[0]):
        first = count
        for s in range(found.shape[1]):
            for p in range(set_indptr[found[i, s]], set_indptr[found[i, s] + 1]):
                label = set_indices[p]
                if seen[label] != i:
                    seen[label] = i
                    best[label] = margins[i, s]
                    indices[count] = label
                    count += 1
        sort_part(indices, first, count)
        for p in range(first, count):
            values[p] = best[indices[p]]
        indptr[i + 1] = count
    return count
