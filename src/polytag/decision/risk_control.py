"""Thresholds that keep a promise: conformal risk control, risk-controlling sets, and learn then test.

All three rest on one assumption: held-out and new documents are draws from one distribution, and the scores do not depend on the
held-out labels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from polytag.config.promise import Promise
from polytag.errors import DataError
from polytag.kernels.sparse_rows import places_of
from polytag.labels import LabelSet
from polytag.scores import Scores

Floats = NDArray[np.float64]
_LOGITS = np.linspace(12.0, -12.0, 385)  # thresholds that tests try, as log-odds from strict to lenient; fixed before the data
_STARTS = (6.0, 4.0, 3.0, 2.0, 1.0, 0.0, -1.0, -2.0)  # where sequences of tests of the precision start, as log-odds
_CELLS = 20_000_000  # maximum number of entries of a table (documents, thresholds)


class Kept(NamedTuple):
    """A threshold that keeps a promise, and the mean number of predicted labels of held-out documents."""

    threshold: np.float32
    labels_per_document: float


class Sets(NamedTuple):
    """Nested label sets: the entries whose value reaches a threshold.

    An entry that every set has, because documents get a minimum number of labels, has the value infinity.
    """

    documents: NDArray[np.int64]  # (entries,)
    values: NDArray[np.float32]  # (entries,)
    hit: NDArray[np.bool_]  # (entries,) whether the label is true
    true: NDArray[np.int64]  # (documents,) number of true labels
    margins: bool = False  # whether the values are margins, not probabilities

    @classmethod
    def of(cls, scores: Scores, truth: csr_array, labels: LabelSet, least: int, closed: bool) -> Sets:
        """The sets that a decision makes of these scores: at least ``least`` labels, closed under the tree if asked."""
        m = scores.matrix
        values = m.data.copy()
        if least:
            best, _ = scores.ranked(least)
            chosen = csr_array(
                (np.ones(int((best >= 0).sum()), dtype=np.float32), (np.nonzero(best >= 0)[0], best[best >= 0])), shape=m.shape
            )
            chosen.sort_indices()
            values[places_of(m, chosen)[1]] = np.inf
        rows = np.repeat(np.arange(len(scores)), np.diff(m.indptr))
        if closed and labels.has_tree:
            m, rows, values = _raised(m, rows, values, labels)
        hit = places_of(m, truth)[1]
        return cls(rows.astype(np.int64), values, hit, np.diff(truth.indptr).astype(np.int64), scores.kind == "margin")

    def size_at(self, threshold: Any) -> float:
        """The mean number of labels of a document."""
        return float((self.values >= threshold).sum()) / max(1, len(self.true))


def _raised(
    matrix: csr_array, rows: NDArray[Any], values: NDArray[Any], labels: LabelSet
) -> tuple[csr_array, NDArray[Any], NDArray[Any]]:
    """Give every ancestor the best value of its descendants, so that the set at any threshold is closed."""
    closure, columns = labels.closure, matrix.indices
    counts = np.diff(closure.indptr)[columns]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    column = closure.indices[np.repeat(closure.indptr[columns], counts) + within]
    row, value = np.repeat(rows, counts), np.repeat(values, counts)
    order = np.lexsort((-value, column, row))  # the best value of a label first
    row, column, value = row[order], column[order], value[order]
    first = np.ones(len(row), dtype=bool)
    first[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
    row, column, value = row[first], column[first], value[first]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=matrix.shape[0]))])
    return csr_array((value, column.astype(np.int32), indptr), shape=matrix.shape), row, value


def keep(promise: Promise, sets: Sets) -> Kept:
    """The threshold with the smallest sets that keeps a promise of recall, or the largest that keeps one of precision."""
    if promise.goal == "precision":
        threshold = _precise(promise, sets)
    elif promise.confidence is None:
        threshold = _recalled(promise, sets)
    else:
        threshold = _recalled_surely(promise, sets)
    return Kept(threshold, sets.size_at(threshold))


def _recalled(promise: Promise, sets: Sets) -> np.float32:
    """Conformal risk control: the largest threshold with (n R + 1) / (n + 1) <= 1 - level, where R is the mean loss of recall."""
    n, allowed = len(sets.true), 1 - promise.level
    if (n + 1) * allowed < 1:
        raise DataError(
            f"the promise {promise} needs at least {int(np.ceil(1 / allowed - 1e-9)) - 1:,} held-out documents, there are {n:,}; "
            "promise less, or hold out more"
        )
    order = np.argsort(-sets.values[sets.hit], kind="stable")
    values, documents = sets.values[sets.hit][order], sets.documents[sets.hit][order]
    gained = np.cumsum(1 / sets.true[documents].astype(np.float64))  # summed recall when the best i + 1 hits are found
    needed = n - ((n + 1) * allowed - 1) - float((sets.true == 0).sum())
    if needed <= 1e-9:
        return np.float32(np.inf)
    at = int(np.searchsorted(gained, needed - 1e-9))
    if at >= len(gained):
        _out_of_reach(promise, sets)
    return np.float32(values[at])


def _recalled_surely(promise: Promise, sets: Sets) -> np.float32:
    """Risk-controlling sets: the strictest threshold, from the most lenient one on, for which a test rejects a smaller recall."""
    assert promise.confidence is not None
    grid = _grid(sets)[::-1]  # lenient first
    losses = 1 - _shares(sets, grid, of="true")
    passed = _capital(losses, None, 1 - promise.level, promise.confidence) >= 1 / (1 - promise.confidence)
    count = int(np.argmin(passed)) if not passed.all() else len(passed)
    if not count:
        _out_of_reach(promise, sets)
    return np.float32(grid[count - 1])


def _precise(promise: Promise, sets: Sets) -> np.float32:
    """Learn then test: the most lenient threshold for which a test rejects a smaller precision of documents with labels.

    Several sequences of tests, from strict to lenient, share the allowed error; each stops at its first failure.
    """
    assert promise.confidence is not None
    grid = _grid(sets)  # strict first
    shares, sizes = _shares(sets, grid, of="predicted"), _counts(sets, grid)
    error = (1 - promise.confidence) / len(_STARTS)
    passed = _capital(1 - shares, sizes > 0, 1 - promise.level, 1 - error) >= 1 / error
    lenient = -1
    for start in _STARTS:
        at = int(np.searchsorted(-_grid(sets, logits=True), -start))
        length = int(np.argmin(passed[at:])) if not passed[at:].all() else len(passed) - at
        lenient = max(lenient, at + length - 1 if length else -1)
    if lenient < 0:
        raise DataError(
            f"the promise {promise} is out of reach on {len(sets.true):,} held-out documents; promise less, or hold out more"
        )
    return np.float32(grid[lenient])


def _out_of_reach(promise: Promise, sets: Sets) -> None:
    found = np.bincount(sets.documents[sets.hit], minlength=len(sets.true))
    most = float(np.mean(np.where(sets.true > 0, found / np.maximum(sets.true, 1), 1.0)))
    raise DataError(
        f"the promise {promise} is out of reach: all scored labels of {len(sets.true):,} held-out documents have a recall of "
        f"{most:.3f}; promise less"
    )


def _grid(sets: Sets, *, logits: bool = False) -> Floats:
    """The thresholds to try, strict first; fewer for many documents."""
    chosen = _LOGITS[:: 1 + len(sets.true) * len(_LOGITS) // _CELLS]
    return np.asarray(chosen if logits or sets.margins else 1 / (1 + np.exp(-chosen)))


def _table(sets: Sets, grid: Floats, among: NDArray[np.bool_]) -> Floats:
    """(documents, thresholds): the number of entries, among those marked, that reach each threshold; the grid in any order."""
    ascending = np.sort(grid.astype(np.float32))
    reached = np.searchsorted(ascending, sets.values[among], side="right")  # number of thresholds that the entry reaches
    shape = (len(sets.true), len(grid) + 1)
    counts = coo_array((np.ones(len(reached)), (sets.documents[among], reached)), shape=shape).toarray()
    table = counts[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]  # (documents, thresholds ascending)
    return np.asarray(table if grid[0] < grid[-1] else table[:, ::-1])


def _counts(sets: Sets, grid: Floats) -> Floats:
    return _table(sets, grid, np.ones(len(sets.values), dtype=bool))


def _shares(sets: Sets, grid: Floats, *, of: str) -> Floats:
    """(documents, thresholds): the correct labels as a share of the true or of the predicted ones; 1 where there are none."""
    hits = _table(sets, grid, sets.hit)
    whole = np.broadcast_to(sets.true[:, None], hits.shape) if of == "true" else _counts(sets, grid)
    return np.asarray(np.where(whole > 0, hits / np.maximum(whole, 1), 1.0))


def _capital(losses: Floats, used: NDArray[np.bool_] | None, allowed: float, confidence: float) -> Floats:
    """Per column, the largest capital of a bet that the mean loss is below ``allowed``; losses are between 0 and 1.

    If the mean is not below, the capital is a supermartingale, and reaches 1 / error with a chance of at most ``error`` (Ville).
    Two ways to bet share the capital: that of Waudby-Smith and Ramdas, and the approximately growth-optimal one. Every stake
    depends on earlier documents only. A document that is not ``used`` is skipped.
    """
    n, columns = losses.shape
    used = np.ones(losses.shape, dtype=bool) if used is None else used
    limit, steady = 0.9 / (1 - allowed), 2 * np.log(1 / (1 - confidence)) / np.maximum(used.sum(axis=0), 1)
    total, squares, seen = np.full(columns, 0.5), np.full(columns, 0.25), np.ones(columns)
    logs, best = np.zeros((2, columns)), np.zeros(columns)
    for i in np.random.default_rng(0).permutation(n):
        mean, variance = total / seen, np.maximum(squares / seen, 1e-6)
        edge = np.maximum(allowed - mean, 0)
        stakes = np.stack([np.sqrt(steady / variance), edge / (variance + edge**2)]).clip(0, limit)
        gain = np.where(used[i], np.log1p(stakes * (allowed - losses[i])), 0)
        logs += gain
        best = np.maximum(best, np.logaddexp(logs[0], logs[1]) - np.log(2))
        new = used[i]
        seen, total = seen + new, total + new * losses[i]
        squares = squares + new * (losses[i] - total / seen) ** 2
    return np.asarray(np.exp(np.minimum(best, 700)))
