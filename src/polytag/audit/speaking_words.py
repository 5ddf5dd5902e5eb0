"""The words that speak for or against a label: contributions of a separator that was trained without the document."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from polytag.audit.out_of_fold import BALANCE, STRENGTH, Fold
from polytag.linear.svm import Problem, Solver, train_separators

Word = tuple[str, float]
_MOST = 512  # labels whose separators are trained


def speaking_words(
    problem: Problem, folds: Sequence[Fold], terms: Sequence[str], pairs: NDArray[np.int64], shown: int = 5, seed: int = 0
) -> list[list[Word]]:
    """For each pair (document, label), the words with the largest contributions; empty for labels beyond the first 512.

    A word's contribution is its tf-idf value times the weight of the separator; contributions and bias sum to the margin.
    """
    first = np.sort(np.unique(pairs[:, 1], return_index=True)[1])[:_MOST]
    labels = np.sort(pairs[first, 1])
    few = Problem(problem.features, csr_array(problem.truth.tocsc()[:, labels].tocsr()))
    few.truth.sort_indices()
    column = {int(label): at for at, label in enumerate(labels)}
    found: list[list[Word]] = [[] for _ in pairs]
    solver = Solver(balance=BALANCE, tolerance=0.3, prune=0.01, seed=seed)
    for seen, held in folds:
        mine = np.flatnonzero(np.isin(pairs[:, 0], held) & np.isin(pairs[:, 1], labels))
        if not len(mine):
            continue
        own = np.unique(pairs[mine, 1])
        part = Problem(few.features, csr_array(few.truth[:, [column[int(label)] for label in own]]))
        weights = train_separators(part, [STRENGTH], solver, rows=seen)[0].weights.tocsc()
        for at in mine.tolist():
            document, label = pairs[at].tolist()
            found[at] = _contributions(problem.features, document, weights, int(np.searchsorted(own, label)), terms, shown)
    return found


def _contributions(
    features: csr_array, document: int, weights: csc_array, column: int, terms: Sequence[str], shown: int
) -> list[Word]:
    """The words of a document with the largest absolute contributions, largest first."""
    part = slice(features.indptr[document], features.indptr[document + 1])
    dense = np.zeros(features.shape[1], dtype=np.float32)
    own = slice(weights.indptr[column], weights.indptr[column + 1])
    dense[weights.indices[own]] = weights.data[own]
    values = features.data[part] * dense[features.indices[part]]
    best = np.argsort(-np.abs(values), kind="stable")[:shown]
    return [(terms[features.indices[part][i]], float(values[i])) for i in best if values[i]]
