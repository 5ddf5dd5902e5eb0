"""Choosing thresholds on held-out scores and applying them, on stored entries only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision.calibration import logit
from polytag.kernels.array_views import unlocked
from polytag.kernels.compiler import kernel, njit
from polytag.scores import Kind, Scores

_LOWEST = 0.05  # lower bound of the F1 that the search for thresholds considers


@kernel("void(int64[::1],int64[::1],float32[::1],float32[::1],int64,uint8[::1])")
def _apply(indptr: Any, indices: Any, data: Any, limits: Any, least: int, keep: Any) -> None:
    """Mark the entries that reach their label's threshold, and the ``least`` best ones of every document."""
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        count = 0
        for p in range(first, last):
            limit = limits[0] if len(limits) == 1 else limits[indices[p]]
            keep[p] = data[p] >= limit
            count += keep[p]
        for _ in range(min(least, last - first)):
            best = -1
            for p in range(first, last):
                if keep[p] < 2 and (best < 0 or data[p] > data[best]):
                    best = p
            keep[best] = 2  # one of the best, regardless of the threshold


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _sink(heap: Any, begin: int, x: Any, at: int, size: int) -> None:
    """Sift down entry ``at`` of the heap from ``begin``, so that the smallest value is at the top of that subheap."""
    moved = heap[begin + at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and x[heap[begin + child + 1]] < x[heap[begin + child]]:
            child += 1
        if x[heap[begin + child]] >= x[moved]:
            break
        heap[begin + at] = heap[begin + child]
        at = child
    heap[begin + at] = moved


@kernel("int64(int64[::1],float64[::1],boolean[::1],int64[::1],int64[::1],int64[::1],int64[::1])")
def _descending(labels: Any, x: Any, used: Any, most: Any, ends: Any, places: Any, out: Any) -> int:
    """Write the positions of used entries, grouped by label: at most the ``most`` best ones of each, in descending order.

    Returns their number. The best ones are found by a heap with the worst one on top. ``ends`` (labels + 2, zeros) and ``places``
    are buffers.
    """
    for p in range(len(labels)):
        if used[p]:
            ends[labels[p] + 2] += 1
    for label in range(len(most)):
        ends[label + 2] += ends[label + 1]
    for p in range(len(labels)):
        if used[p]:
            places[ends[labels[p] + 1]] = p
            ends[labels[p] + 1] += 1
    top, count = np.int64(0), np.int64(0)
    for label in range(len(most)):
        first, last = ends[label], ends[label + 1]
        size = most[label] if most[label] < last - first else last - first
        if size <= 0:
            continue
        for p in range(size):
            out[count + p] = places[first + p]
        for at in range(size // 2 - 1, -1, -1):
            _sink(out, count, x, at, size)
        for p in range(first + size, last):
            if x[places[p]] > x[out[count]]:
                out[count] = places[p]
                _sink(out, count, x, top, size)
        for last in range(count + size - 1, count, -1):  # the worst moves to the end, then the next one before it
            worst = out[count]
            out[count] = out[last]
            out[last] = worst
            _sink(out, count, x, top, last - count)
        count += size
    return int(count)


def _marks_of_table(table: NDArray[np.float32], limits: NDArray[np.float32], least: int) -> NDArray[np.uint8]:
    """What ``_marks`` gives, for scores of all labels (documents, labels): numpy is as fast as a kernel, and not compiled."""
    marks = (table >= limits).astype(np.uint8)
    rest = table.copy() if least > 1 else table
    for turn in range(min(least, table.shape[1])):
        best = np.arange(len(table)), rest.argmax(axis=1)
        marks[best] = 2
        if turn + 1 < least:
            rest[best] = -np.inf
    return marks


def _marks(scores: Scores, limits: NDArray[np.float32], least: int) -> NDArray[np.uint8]:
    """Per entry: 0 = not kept, 1 = reaches its threshold, 2 = among the ``least`` best ones of its document."""
    m = scores.matrix
    if m.nnz and scores.is_full and np.isfinite(m.data).all():
        return _marks_of_table(m.data.reshape(m.shape), limits, least).reshape(-1)
    keep = np.zeros(len(m.data), dtype=np.uint8)
    rows = unlocked(m.indptr, np.int64), unlocked(m.indices, np.int64), unlocked(m.data, np.float32)
    _apply(*rows, unlocked(limits, np.float32), least, keep)
    return keep


def apply(scores: Scores, limits: NDArray[np.float32], least: int) -> csr_array:
    """The labels that reach their threshold (one for all, or one per label), and always the ``least`` best ones."""
    m = scores.matrix
    kept = np.flatnonzero(_marks(scores, limits, least))
    indices, indptr = m.indices[kept], np.searchsorted(kept, m.indptr)
    return csr_array((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=m.shape)


def select(scores: Scores, rows: NDArray[np.bool_]) -> Scores:
    """The scores of the selected documents."""
    m = scores.matrix
    entries = np.repeat(rows, np.diff(m.indptr))
    indptr = np.concatenate([[0], np.cumsum(np.diff(m.indptr)[rows])])
    matrix = csr_array((m.data[entries], m.indices[entries], indptr), shape=(int(rows.sum()), m.shape[1]))
    decoded = None if scores.decoded is None else scores.decoded[rows]
    return replace(scores, matrix=matrix, decoded=decoded, log_probability=None)


def common(scores: Scores, truth: csr_array, metric: str, least: int) -> NDArray[np.float32]:
    """The global threshold with the best metric, where the ``least`` best labels are always predicted."""
    if metric == "subset_accuracy":
        return _back(scores.kind, np.array([_best_for_subset_accuracy(scores, truth, least)]))
    if metric == "macro_f1":
        return _back(scores.kind, np.array([_best_for_macro_f1(scores, truth, least)]))
    x, hit, free = _entries(scores, truth, least)
    return _back(scores.kind, np.array([_best_for_micro_f1(x[free], hit[free], hit[~free], truth.nnz)[0]]))


class Evidence(NamedTuple):
    """The best global threshold on held-out scores, the best one of each label, and its number of positive documents."""

    base: float
    own: NDArray[np.float64]
    positives: NDArray[np.float64]
    kind: Kind

    @property
    def common(self) -> NDArray[np.float32]:
        """The global threshold."""
        return _back(self.kind, np.array([self.base]))

    def limits(self, pseudo: float) -> NDArray[np.float32]:
        """A threshold per label, shrunk towards the global one by a pseudo-count of documents."""
        weight = self.positives / (self.positives + pseudo)
        return _back(self.kind, weight * self.own + (1 - weight) * self.base)


def evidence(scores: Scores, truth: csr_array, metric: str, least: int) -> Evidence:
    """Find the best global threshold and the best one of each label."""
    n_labels = int(truth.shape[1])
    x, hit, free = _entries(scores, truth, least)
    positives = np.bincount(truth.indices, minlength=n_labels).astype(np.float64)
    if metric == "micro_f1":
        base, reached = _best_for_micro_f1(x[free], hit[free], hit[~free], truth.nnz)
    else:
        base, reached = float(_forward(scores.kind, common(scores, truth, metric, least))[0]), _LOWEST
    own = np.full(n_labels, base)
    used = np.ones_like(free) if metric == "macro_f1" else free
    # more than 2 / F entries per true one cannot be optimal: F would be lower even if all true ones were among them
    most = np.ceil(positives * 2 / max(reached, _LOWEST)).astype(np.int64) + 2
    order = _best_in_order(scores.matrix.indices, x, used, most)
    if len(order):
        groups = _Groups(scores.matrix.indices[order], x[order], hit[order])
        if metric == "macro_f1":
            own[groups.labels] = groups.best(lambda g: 2 * g.found / np.maximum(1, g.taken + positives[g.owner]))
        else:
            own[groups.labels] = _best_together(groups, hit[~free], truth.nnz, reached)
    return Evidence(base, own, positives, scores.kind)


def _best_in_order(
    labels: NDArray[Any], x: NDArray[np.float64], used: NDArray[np.bool_], most: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The positions of used entries, grouped by label: at most the ``most`` best ones of each, in descending order."""
    ends, places = np.zeros(len(most) + 2, dtype=np.int64), np.empty(len(labels), dtype=np.int64)
    out = np.empty(len(labels), dtype=np.int64)
    return out[: _descending(unlocked(labels, np.int64), x, used, most, ends, places, out)]


class _Groups:
    """Entries sorted by label and descending score, with cumulative counts per label."""

    def __init__(self, labels: NDArray[Any], x: NDArray[Any], hit: NDArray[Any]) -> None:
        self.x, self.owner = x, labels
        first = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
        self.first, self.labels = first, labels[first]
        sizes = np.diff(np.append(first, len(labels)))
        hits = np.cumsum(hit)
        self.found = hits - np.repeat(np.concatenate([[0], hits[first[1:] - 1]]), sizes)
        self.taken = np.arange(len(x)) - np.repeat(first, sizes) + 1

    def best(self, value: Any) -> NDArray[np.float64]:
        """For every label, the threshold below the entry with the largest value; above all entries if none is positive."""
        values = value(self)
        values = np.where(np.append((self.x[1:] != self.x[:-1]) | (self.owner[1:] != self.owner[:-1]), True), values, -np.inf)
        top = np.maximum.reduceat(values, self.first)
        group = np.repeat(np.arange(len(self.first)), np.diff(np.append(self.first, len(values))))
        places = np.flatnonzero(values == top[group])
        at = places[np.unique(group[places], return_index=True)[1]]  # the first best entry of every label
        below = np.minimum(at + 1, len(values) - 1)
        last = group[below] != group[at]
        cuts = np.where(last | (at == below), self.x[at] - 1.0, (self.x[at] + self.x[below]) / 2)
        self.chosen = np.where(top > 0, at, -1)
        return np.where(top > 0, cuts, self.x[self.first] + 1.0)


def _best_for_micro_f1(x: NDArray[Any], hit: NDArray[Any], always: NDArray[Any], total: int) -> tuple[float, float]:
    """The threshold with the highest micro-F1, and that F1; ``always``: whether each entry that is always predicted is true."""
    if len(x) > 4 * total:
        bar = np.partition(x, len(x) - max(1, total))[len(x) - max(1, total)]
        taken = x >= bar
        reached = 2 * (always.sum() + hit[taken].sum()) / max(1, len(always) + taken.sum() + total)
        most = int(total * (2 / max(reached, _LOWEST) - 1)) + 2  # with more entries F1 is lower, even if all are true
        if most < len(x):
            keep = x >= np.partition(x, len(x) - most)[len(x) - most]
            x, hit = x[keep], hit[keep]
    order = np.argsort(-x, kind="stable")
    x = x[order]
    found = always.sum() + np.concatenate([[0], np.cumsum(hit[order])])
    taken = len(always) + np.arange(len(x) + 1)
    values = _possible(x, 2 * found / np.maximum(1, taken + total))
    best = int(np.argmax(values))
    return _cut(x, best), float(values[best])


def _best_together(groups: _Groups, always: NDArray[Any], total: int, reached: float) -> NDArray[np.float64]:
    """Label thresholds that jointly maximise micro-F1 (Dinkelbach: predict an entry if its probability exceeds F / 2)."""
    score = reached
    cuts = np.empty(0)
    for _ in range(20):
        half = score / 2
        cuts = groups.best(lambda g, half=half: g.found - half * g.taken)
        at = groups.chosen[groups.chosen >= 0]
        new = 2 * (always.sum() + groups.found[at].sum()) / max(1, len(always) + groups.taken[at].sum() + total)
        if abs(new - score) < 1e-9:
            break
        score = new
    return cuts


def _best_for_macro_f1(scores: Scores, truth: csr_array, least: int) -> float:
    """The threshold with the highest macro-F1; a predicted entry changes only the F1 of its own label."""
    x, hit, free = _entries(scores, truth, least)
    order = np.lexsort((-x, free, scores.matrix.indices))  # per label, entries that are always predicted come first
    if not len(order):
        return 0.0
    groups = _Groups(scores.matrix.indices[order], x[order], hit[order])
    positives = np.bincount(truth.indices, minlength=int(truth.shape[1]))
    f1 = 2 * groups.found / np.maximum(1, groups.taken + positives[groups.owner])
    before = np.concatenate([[0.0], f1[:-1]])
    before[groups.first] = 0.0
    gain, x = (f1 - before)[free[order]], x[order][free[order]]
    order = np.argsort(-x, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(gain[order])])
    return _cut(x[order], int(np.argmax(_possible(x[order], total))))


def _best_for_subset_accuracy(scores: Scores, truth: csr_array, least: int) -> float:
    """The threshold with the highest subset accuracy, by a sweep over the intervals of the documents."""
    x, hit, free = _entries(scores, truth, least)
    n = len(scores)
    row = np.repeat(np.arange(n), np.diff(scores.matrix.indptr))
    low, high = np.full(n, -np.inf), np.full(n, np.inf)  # exact for thresholds in (low, high]
    np.minimum.at(high, row[free & hit], x[free & hit])
    np.maximum.at(low, row[free & ~hit], x[free & ~hit])
    true = np.diff(truth.indptr)
    stored = np.bincount(row[hit], minlength=n)
    wrong = np.bincount(row[~free & ~hit], minlength=n)
    possible = (low < high) & (stored == true) & (wrong == 0)
    points = np.unique(np.concatenate([low[possible], high[possible], x[:1]]))
    points = points[np.isfinite(points)]
    if not len(points):
        return 0.0
    starts = np.searchsorted(points, low[possible], side="right")
    ends = np.searchsorted(points, high[possible], side="right") + np.isinf(high[possible])  # some are exact above all points
    size = len(points) + 2
    inside = np.cumsum(np.bincount(starts, minlength=size) - np.bincount(ends, minlength=size))[:-1]
    return _cut(points[::-1], len(points) - int(np.argmax(inside)))


def _entries(scores: Scores, truth: csr_array, least: int) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """For every stored entry: its unbounded value, whether it is true, and whether the threshold decides about it."""
    never = np.full(1, np.inf, dtype=np.float32)
    return _forward(scores.kind, scores.matrix.data), scores.hits(truth), _marks(scores, never, least) == 0


def _possible(x: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Exclude cuts between equal scores, which no threshold can separate."""
    cut = np.concatenate([[True], x[1:] != x[:-1], [True]]) if len(x) else np.ones(1, dtype=bool)
    return np.where(cut, values, -np.inf)


def _cut(x: NDArray[Any], place: int) -> float:
    """A threshold that keeps the first ``place`` of descending scores: halfway to the next one."""
    if not len(x):
        return 0.0
    if place == 0:
        return float(x[0] + 1.0)
    return float(x[-1] - 1.0) if place == len(x) else float((x[place - 1] + x[place]) / 2)


_MAX_LOGIT = float(logit(np.ones(1))[0])


def _forward(kind: Kind, values: NDArray[Any]) -> NDArray[np.float64]:
    """Scores on an unbounded scale: log-odds of probabilities, or margins."""
    return logit(values) if kind == "probability" else np.asarray(values, dtype=np.float64)


def _back(kind: Kind, x: NDArray[np.float64]) -> NDArray[np.float32]:
    """The inverse of ``_forward``."""
    if kind == "margin":
        return x.astype(np.float32)
    p = np.where(x < -_MAX_LOGIT, 0.0, 1 / (1 + np.exp(-x)))  # a threshold may include probability 0 or exclude probability 1
    return np.where(x > _MAX_LOGIT, 2.0, p).astype(np.float32)
