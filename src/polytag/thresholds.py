"""Choosing thresholds on held-out scores, and applying them; everything works on the stored entries alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.calibration import entries_in, logit
from polytag.scores import Kind, Scores

_LOWEST = 0.05  # an F1 below which the search for thresholds does not look


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _apply(indptr: Any, indices: Any, data: Any, limits: Any, least: int, keep: Any) -> None:
    """Mark the entries that reach their label's limit, and the ``least`` best ones of every document."""
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
            keep[best] = 2  # taken as one of the best, whatever the limit says


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _kept(indptr: Any, keep: Any, out_indptr: Any) -> Any:
    """The places of the marked entries, and how many there are up to the end of every document."""
    count = 0
    for mark in keep:
        count += mark > 0
    places = np.empty(count, dtype=np.int64)
    count = 0
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            if keep[p] > 0:
                places[count] = p
                count += 1
        out_indptr[i + 1] = count
    return places


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _sink(heap: Any, x: Any, at: int, size: int) -> None:
    """Let the entry at the top of a heap's part sink until the smallest value stands there again."""
    moved = heap[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and x[heap[child + 1]] < x[heap[child]]:
            child += 1
        if x[heap[child]] >= x[moved]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moved


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _best_in_order(places: Any, x: Any, heap: Any) -> None:
    """Fill the heap with the best of these places, in falling order: a heap of the best so far, the worst of them on top."""
    size = len(heap)
    heap[:] = places[:size]
    for at in range(size // 2 - 1, -1, -1):
        _sink(heap, x, at, size)
    for p in places[size:]:
        if x[p] > x[heap[0]]:
            heap[0] = p
            _sink(heap, x, 0, size)
    for last in range(size - 1, 0, -1):  # the worst goes to the end, then the next one before it
        heap[0], heap[last] = heap[last], heap[0]
        _sink(heap, x, 0, last)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _falling(labels: Any, x: Any, used: Any, most: Any) -> Any:
    """The used entries label by label: of each label at most its ``most`` best ones, in falling order."""
    ends = np.zeros(len(most) + 1, dtype=np.int64)
    for p in range(len(labels)):
        if used[p]:
            ends[labels[p] + 1] += 1
    for label in range(len(most)):
        ends[label + 1] += ends[label]
    at = ends[:-1].copy()
    places = np.empty(ends[-1], dtype=np.int64)
    for p in range(len(labels)):
        if used[p]:
            places[at[labels[p]]] = p
            at[labels[p]] += 1
    out = np.empty(ends[-1], dtype=np.int64)
    count = 0
    for label in range(len(most)):
        size = min(most[label], ends[label + 1] - ends[label])
        if size > 0:
            _best_in_order(places[ends[label] : ends[label + 1]], x, out[count : count + size])
            count += size
    return out[:count]


def _marks(scores: Scores, limits: NDArray[np.float32], least: int) -> NDArray[np.uint8]:
    """Per entry: 0 not kept, 1 reaches its limit, 2 among the least best of its document."""
    m = scores.matrix
    keep = np.zeros(len(m.data), dtype=np.uint8)
    _apply(m.indptr, m.indices, m.data, limits, least, keep)
    return keep


def apply(scores: Scores, limits: NDArray[np.float32], least: int) -> csr_array:
    """Labels that reach their limit (one for all, or one each), and always the ``least`` best ones."""
    m = scores.matrix
    keep = _marks(scores, limits, least)
    indptr = np.zeros(len(m.indptr), dtype=np.int64)
    indices = m.indices[_kept(m.indptr, keep, indptr)]
    return csr_array((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=m.shape)


def select(scores: Scores, rows: NDArray[np.bool_]) -> Scores:
    """The scores of some documents."""
    m = scores.matrix
    entries = np.repeat(rows, np.diff(m.indptr))
    indptr = np.concatenate([[0], np.cumsum(np.diff(m.indptr)[rows])])
    matrix = csr_array((m.data[entries], m.indices[entries], indptr), shape=(int(rows.sum()), m.shape[1]))
    decoded = None if scores.decoded is None else scores.decoded[rows]
    return replace(scores, matrix=matrix, decoded=decoded, log_probability=None)


def common(scores: Scores, truth: csr_array, metric: str, least: int) -> NDArray[np.float32]:
    """The one threshold that is best for the metric, given that the ``least`` best labels are always taken."""
    if metric == "subset_accuracy":
        return _back(scores.kind, np.array([_best_for_sets(scores, truth, least)]))
    if metric == "macro_f1":
        return _back(scores.kind, np.array([_best_for_labels(scores, truth, least)]))
    x, hit, free = _entries(scores, truth, least)
    return _back(scores.kind, np.array([_best_for_all(x[free], hit[free], hit[~free], truth.nnz)[0]]))


class Evidence(NamedTuple):
    """What held-out scores say: the best common threshold, each label's own best one, and how many documents that rests on."""

    base: float
    own: NDArray[np.float64]
    positives: NDArray[np.float64]
    kind: Kind

    @property
    def common(self) -> NDArray[np.float32]:
        """The common threshold alone."""
        return _back(self.kind, np.array([self.base]))

    def limits(self, pseudo: float) -> NDArray[np.float32]:
        """A threshold per label, pulled towards the common one by ``pseudo`` documents' worth of evidence."""
        weight = self.positives / (self.positives + pseudo)
        return _back(self.kind, weight * self.own + (1 - weight) * self.base)


def evidence(scores: Scores, truth: csr_array, metric: str, least: int) -> Evidence:
    """Look for the common threshold and for every label's own."""
    n_labels = int(truth.shape[1])
    x, hit, free = _entries(scores, truth, least)
    positives = np.bincount(truth.indices, minlength=n_labels).astype(np.float64)
    if metric == "micro_f1":
        base, reached = _best_for_all(x[free], hit[free], hit[~free], truth.nnz)
    else:
        base, reached = float(_forward(scores.kind, common(scores, truth, metric, least))[0]), _LOWEST
    own = np.full(n_labels, base)
    used = np.ones_like(free) if metric == "macro_f1" else free
    # more than 2 / F entries for each true one cannot pay: even if all true ones are among them, F would be lower
    most = np.ceil(positives * 2 / max(reached, _LOWEST)).astype(np.int64) + 2
    order = _falling(scores.matrix.indices, x, used, most)
    if len(order):
        groups = _Groups(scores.matrix.indices[order], x[order], hit[order])
        if metric == "macro_f1":
            own[groups.labels] = groups.best(lambda g: 2 * g.found / np.maximum(1, g.taken + positives[g.owner]))
        else:
            own[groups.labels] = _best_together(groups, hit[~free], truth.nnz, reached)
    return Evidence(base, own, positives, scores.kind)


def per_label(scores: Scores, truth: csr_array, metric: str, least: int, pseudo: float) -> NDArray[np.float32]:
    """Each label's best threshold, pulled towards the common one by ``pseudo`` documents' worth of evidence."""
    return evidence(scores, truth, metric, least).limits(pseudo)


class _Groups:
    """Entries sorted by label and falling score, with running counts within each label."""

    def __init__(self, labels: NDArray[Any], x: NDArray[Any], hit: NDArray[Any]) -> None:
        self.x, self.owner = x, labels
        first = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
        self.first, self.labels = first, labels[first]
        sizes = np.diff(np.append(first, len(labels)))
        hits = np.cumsum(hit)
        self.found = hits - np.repeat(np.concatenate([[0], hits[first[1:] - 1]]), sizes)
        self.taken = np.arange(len(x)) - np.repeat(first, sizes) + 1

    def best(self, value: Any) -> NDArray[np.float64]:
        """For every label, the threshold after the entry with the largest value; above all of them if none is positive."""
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


def _best_for_all(x: NDArray[Any], hit: NDArray[Any], always: NDArray[Any], total: int) -> tuple[float, float]:
    """The threshold with the highest micro-F1, and that F1; ``always`` says whether the entries taken in any case are true."""
    if len(x) > 4 * total:
        bar = np.partition(x, len(x) - max(1, total))[len(x) - max(1, total)]
        taken = x >= bar
        reached = 2 * (always.sum() + hit[taken].sum()) / max(1, len(always) + taken.sum() + total)
        most = int(total * (2 / max(reached, _LOWEST) - 1)) + 2  # with more entries F1 is lower, however true they are
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
    """Thresholds of all labels that maximise micro-F1 together (Dinkelbach: an entry pays if it is right more often than F/2)."""
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


def _best_for_labels(scores: Scores, truth: csr_array, least: int) -> float:
    """The threshold with the highest mean F1 of the labels: an entry that is taken changes the F1 of its own label alone."""
    x, hit, free = _entries(scores, truth, least)
    order = np.lexsort((-x, free, scores.matrix.indices))  # within each label, what is always taken comes first
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


def _best_for_sets(scores: Scores, truth: csr_array, least: int) -> float:
    """The threshold at which most documents get exactly their true set: a sweep over each document's interval."""
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
    """Of every stored entry: its value on an unbounded scale, whether it is true, whether the threshold decides it."""
    never = np.full(1, np.inf, dtype=np.float32)
    return _forward(scores.kind, scores.matrix.data), entries_in(scores, truth), _marks(scores, never, least) == 0


def _possible(x: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Rule out cuts between equal scores: no threshold makes them."""
    cut = np.concatenate([[True], x[1:] != x[:-1], [True]]) if len(x) else np.ones(1, dtype=bool)
    return np.where(cut, values, -np.inf)


def _cut(x: NDArray[Any], place: int) -> float:
    """A threshold that keeps the first ``place`` of falling scores: halfway to the next one."""
    if not len(x):
        return 0.0
    if place == 0:
        return float(x[0] + 1.0)
    return float(x[-1] - 1.0) if place == len(x) else float((x[place - 1] + x[place]) / 2)


_FARTHEST = float(logit(np.ones(1))[0])


def _forward(kind: Kind, values: NDArray[Any]) -> NDArray[np.float64]:
    return logit(values) if kind == "probability" else np.asarray(values, dtype=np.float64)


def _back(kind: Kind, x: NDArray[np.float64]) -> NDArray[np.float32]:
    if kind == "margin":
        return x.astype(np.float32)
    p = np.where(x < -_FARTHEST, 0.0, 1 / (1 + np.exp(-x)))  # so that a probability of 0 can be taken, and one of 1 left out
    return np.where(x > _FARTHEST, 2.0, p).astype(np.float32)
