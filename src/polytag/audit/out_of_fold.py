"""Out-of-fold probabilities: every document is scored by a model that was trained without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision.calibration import Platt
from polytag.decision.candidate_curve import log_odds
from polytag.kernels.sparse_rows import stack_rows
from polytag.linear.svm import Problem, Solver, train_separators
from polytag.models.xlinear import XLinear
from polytag.scores import Scores

if TYPE_CHECKING:
    from polytag.labels import LabelSet
    from polytag.run import Run

Fold: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
CANDIDATES = 100  # labels per document that may be missing; a label further down is no suspect
FLAT = 50_000_000  # with more documents x labels, separators over a label tree take the place of one per label
STRENGTH, BALANCE = 0.5, 0.3  # chosen on spoiled draws of reuters and debtags with seeds of 100 and more
_FEWER_LABELS = 50  # candidates of a label tree


class OutOfFold(NamedTuple):
    """Calibrated probabilities of every given or planted label and of the best labels of each document.

    ``found`` says of each entry whether it is among the best labels; a given label may not be.
    """

    scores: Scores
    found: NDArray[np.bool_]


def is_flat(truth: csr_array) -> bool:
    """Whether one separator per label is affordable."""
    return int(truth.shape[0]) * int(truth.shape[1]) <= FLAT


def out_of_fold(
    problem: Problem,
    labels: LabelSet,
    folds: Sequence[Fold],
    planted: csr_array,
    run: Run,
    *,
    candidates: int = CANDIDATES,
    seed: int = 0,
) -> OutOfFold:
    """Train without each fold in turn and score it; documents keep the order of the corpus.

    ``planted`` has pairs of documents and labels that are scored too, whether they are among the best or not.
    """
    asked = csr_array(problem.truth + planted)
    flat = is_flat(problem.truth)
    score = _flat if flat else _tree
    k = min(candidates if flat else min(candidates, _FEWER_LABELS), len(labels))
    parts = [
        score(problem, labels, fold, csr_array(asked[fold[1]]), k, run, seed) for fold in run.track(folds, "out-of-fold scores")
    ]
    margins, found = stack_rows([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    rows = np.concatenate([held for _, held in folds])
    back = np.empty(len(rows), dtype=np.int64)
    back[rows] = np.arange(len(rows))
    order = _entries(margins, back)
    margins = csr_array(margins[back])
    scores = Scores(margins, labels.names, "margin", float("-inf"))
    return OutOfFold(Platt.fit(scores, problem.truth).apply(scores), found[order])


def _flat(
    problem: Problem, labels: LabelSet, fold: Fold, asked: csr_array, k: int, run: Run, seed: int
) -> tuple[csr_array, NDArray[np.bool_]]:
    """One separator per label."""
    solver = Solver(balance=BALANCE, tolerance=0.3, prune=0.01, seed=seed)
    separators = train_separators(problem, [STRENGTH], solver, rows=fold[0])[0]
    features = csr_array(problem.features[fold[1]])
    margins = separators.all(features)  # (documents of the fold, labels)
    best = np.argpartition(-margins, k - 1, axis=1)[:, :k] if k < margins.shape[1] else np.tile(np.arange(k), (len(margins), 1))
    row = np.repeat(np.arange(len(margins)), np.diff(asked.indptr))
    return _union(best, np.take_along_axis(margins, best, 1), asked, margins[row, asked.indices])


def _tree(
    problem: Problem, labels: LabelSet, fold: Fold, asked: csr_array, k: int, run: Run, seed: int
) -> tuple[csr_array, NDArray[np.bool_]]:
    """Separators over a label tree, searched with a beam; the labels asked for are scored too."""
    model = XLinear(seed=seed)
    model.labels = labels
    part = Problem(csr_array(problem.features[fold[0]]), csr_array(problem.truth[fold[0]]))
    forest = model.train_forest(part, run)
    features = csr_array(problem.features[fold[1]])
    best, logs = forest.best(features, k, model.search.beam, model.ranking.worth)
    given = forest.given(features, asked, model.ranking.worth)
    return _union(best, log_odds(logs), asked, log_odds(given.data))


def _union(
    best: NDArray[Any], values: NDArray[Any], asked: csr_array, given: NDArray[Any]
) -> tuple[csr_array, NDArray[np.bool_]]:
    """Entries of the best labels (documents, k; -1 pads) and of those asked for, and which are among the best."""
    n, n_labels = asked.shape
    known = best >= 0
    rows = np.repeat(np.arange(n, dtype=np.int64), known.sum(axis=1))
    keys = np.concatenate(
        [rows * n_labels + best[known], np.repeat(np.arange(n), np.diff(asked.indptr)) * n_labels + asked.indices]
    )
    both = np.concatenate([values[known], given]).astype(np.float32)
    unique, first = np.unique(keys, return_index=True)  # the first of two equal ones is that of the best labels
    indptr = np.searchsorted(unique, np.arange(n + 1) * n_labels)
    matrix = csr_array((both[first], (unique % n_labels).astype(np.int32), indptr), shape=asked.shape)
    return matrix, first < len(rows)


def _entries(matrix: csr_array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of the entries of these rows, in their order."""
    counts = np.diff(matrix.indptr)[rows]
    starts = np.cumsum(counts) - counts
    found: NDArray[np.int64] = np.arange(counts.sum()) - np.repeat(starts, counts) + np.repeat(matrix.indptr[rows], counts)
    return found
