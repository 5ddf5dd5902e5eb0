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


def _marks(scores: Scores, limits: NDArray[np.float32], least: int) -> NDArray[np.uint8]:
    """Per entry: 0 not kept, 1 reaches its limit, 2 among the least best of its document."""
    m = scores.matrix
    keep = np.zeros(len(m.data), dtype=np.uint8)
    _apply(m.indptr, m.indices, m.data, limits, least, keep)
    return keep


def apply(scores: Scores, limits: NDArray[np.float32], least: int) -> csr_array:
    """Labels that reach their limit (one for all, or one each), and always the ``least`` best ones."""
    m = scores.matrix
    keep = _marks(scores, limits, least) > 0
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    indptr = kept_before[m.indptr].astype(np.int64)
    indices = m.indices[keep]
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
    order = np.argsort(-x[free], kind="stable")
    x, gained = x[free][order], np.concatenate([[0], np.cumsum(hit[free][order])])
    forced = ~free
    found = hit[forced].sum() + gained
    taken = forced.sum() + np.arange(len(x) + 1)
    return _back(scores.kind, np.array([_cut(x, int(np.argmax(_possible(x, 2 * found / np.maximum(1, taken + truth.nnz)))))]))


class Evidence(NamedTuple):
    """What held-out scores say: the best common threshold, each label's own best one, and how many documents that rests on."""

    base: float
    own: NDArray[np.float64]
    positives: NDArray[np.float64]
    kind: Kind

    def limits(self, pseudo: float) -> NDArray[np.float32]:
        """A threshold per label, pulled towards the common one by ``pseudo`` documents' worth of evidence."""
        weight = self.positives / (self.positives + pseudo)
        return _back(self.kind, weight * self.own + (1 - weight) * self.base)


def evidence(scores: Scores, truth: csr_array, metric: str, least: int) -> Evidence:
    """Look for the common threshold and for every label's own."""
    n_labels = int(truth.shape[1])
    base = float(_forward(scores.kind, common(scores, truth, metric, least))[0])
    x, hit, free = _entries(scores, truth, least)
    labels = scores.matrix.indices
    positives = np.bincount(truth.indices, minlength=n_labels).astype(np.float64)
    own = np.full(n_labels, base)
    order = np.lexsort((-x, labels))
    if metric != "macro_f1":
        order = order[free[order]]
    if len(order):
        groups = _Groups(labels[order], x[order], hit[order])
        if metric == "macro_f1":
            own[groups.labels] = groups.best(lambda g: 2 * g.found / np.maximum(1, g.taken + positives[g.owner]))
        else:
            own[groups.labels] = _best_together(groups, hit, free, truth.nnz)
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


def _best_together(groups: _Groups, hit: NDArray[Any], free: NDArray[Any], total: int) -> NDArray[np.float64]:
    """Thresholds of all labels that maximise micro-F1 together (Dinkelbach: an entry pays if it is right more often than F/2)."""
    forced_hits, forced = hit[~free].sum(), (~free).sum()
    score = 0.5
    cuts = np.empty(0)
    for _ in range(20):
        half = score / 2
        cuts = groups.best(lambda g, half=half: g.found - half * g.taken)
        at = groups.chosen[groups.chosen >= 0]
        new = 2 * (forced_hits + groups.found[at].sum()) / max(1, forced + groups.taken[at].sum() + total)
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
