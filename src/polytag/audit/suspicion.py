"""How probable it is that a label was wrongly given, or is wrongly missing.

The evidence about a pair of document and label: the text (out of fold), the other labels of the document, the labels of the most
similar documents, how frequent the label is and how well it is recognised where it is given. Two logistic regressions weigh it:

    given:    planted errors against given labels; a wrong label is as frequent as ``RATE`` says
    missing:  given labels against all others; a right label is missing as often as ``RATE`` says (Bayes' rule)

So both directions are probabilities of an error, and one ranking holds both. Self-confidence, 1 - p, treats them alike; but of
the many labels with a small p few are given by mistake, and of those with a large p many were forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.audit.label_context import label_context
from polytag.decision.calibration import logit
from polytag.kernels.compiler import njit
from polytag.kernels.nearest_rows import Nearest
from polytag.scores import Scores

if TYPE_CHECKING:
    from polytag.audit.out_of_fold import OutOfFold

NEIGHBOURS = 20
RATE = 0.05  # assumed errors per given label, in each direction
_ENTRIES = 200_000  # a regression is fitted on about this many entries, of evenly spaced documents
_FLOOR = 1e-6


class Suspicion(NamedTuple):
    """Of every entry: the probability that the label is right, that the given or missing label is an error, and the evidence."""

    matrix: csr_array  # the entries; its values are the probabilities of an error
    given: NDArray[np.bool_]
    right: NDArray[np.float32]
    text: NDArray[np.float32]
    context: NDArray[np.float32]
    agreement: NDArray[np.float32]


def suspicion(found: OutOfFold, truth: csr_array, planted: csr_array, nearest: Nearest) -> Suspicion:
    """Weigh the evidence for every entry of the out-of-fold scores."""
    entries = found.scores.matrix
    given, wrong = found.scores.hits(truth), found.scores.hits(planted)
    context, agreement = label_context(truth, entries), neighbour_share(truth, entries, nearest)
    evidence = Evidence.of(found.scores, truth, given, context, agreement)
    weights = np.where(given, 1.0, wrong * (RATE * truth.nnz / max(int(wrong.sum()), 1)))
    against = evidence.fitted(~given, weights, entries)
    in_favour = evidence.fitted(given, np.ones(entries.nnz), entries)
    error, right = np.empty(entries.nnz, dtype=np.float32), np.empty(entries.nnz, dtype=np.float32)
    for start in range(0, entries.nnz, _ENTRIES):
        some = slice(start, start + _ENTRIES)
        rows = evidence.rows(some)
        odds = rows @ in_favour
        right[some] = sigmoid(odds)
        error[some] = sigmoid(np.where(given[some], rows @ against, odds + np.log(RATE)))
    matrix = csr_array((error, entries.indices, entries.indptr), shape=entries.shape)
    return Suspicion(matrix, given, right, entries.data, context, agreement)


class Evidence(NamedTuple):
    """What is known about every entry, and about its label."""

    text: NDArray[np.float32]
    context: NDArray[np.float32]
    agreement: NDArray[np.float32]
    labels: NDArray[np.int32]
    prior: NDArray[np.float64]
    recognised: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        scores: Scores,
        truth: csr_array,
        given: NDArray[np.bool_],
        context: NDArray[np.float32],
        agreement: NDArray[np.float32],
    ) -> Evidence:
        """Log-odds of a label's frequency, and of its mean probability where it is given (confident learning's threshold)."""
        m = scores.matrix
        counts = np.bincount(truth.indices, minlength=truth.shape[1])
        sums = np.bincount(m.indices[given], m.data[given], minlength=truth.shape[1])
        known = logit(np.clip(sums / np.maximum(counts, 1), _FLOOR, 1 - _FLOOR))
        return cls(m.data, np.clip(context, 0, 1), agreement, m.indices, logit((counts + 0.5) / (truth.shape[0] + 1)), known)

    def rows(self, some: slice | NDArray[np.bool_]) -> NDArray[np.float64]:
        """Features of a regression: log-odds and logarithms, bent at two points of the text's, and products."""
        z = logit(np.clip(self.text[some], _FLOOR, 1 - _FLOOR))
        context, agreement = np.log(self.context[some] + 0.003), np.log(self.agreement[some] + 0.01)
        prior, known = self.prior[self.labels[some]], self.recognised[self.labels[some]]
        plain = [z, context, agreement, self.context[some], self.agreement[some], prior, known, np.ones(len(z))]
        bent = [np.maximum(z, 0), np.maximum(z + 4, 0)]
        products = [context * agreement / 10, z * context / 10, z * agreement / 10, z * prior / 10]
        return np.stack([*plain, *bent, *products], axis=1)

    def fitted(self, truth: NDArray[np.bool_], weights: NDArray[np.float64], entries: csr_array) -> NDArray[np.float64]:
        """The weights of a regression on the entries that count, of evenly spaced documents if there are many."""
        step = 1 + int((weights > 0).sum()) // _ENTRIES
        chosen = np.repeat(np.arange(entries.shape[0]) % step == 0, np.diff(entries.indptr)) & (weights > 0)
        return logistic(self.rows(chosen), truth[chosen], weights[chosen])


def neighbour_share(truth: csr_array, entries: csr_array, nearest: Nearest) -> NDArray[np.float32]:
    """The share of the most similar documents that have the label, weighted by squared cosine."""
    out = np.zeros(entries.nnz, dtype=np.float32)
    _shares(truth.indptr, truth.indices, entries.indptr, entries.indices, nearest.rows, nearest.similarity, truth.shape[1], out)
    return out


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _shares(
    indptr: Any, indices: Any, entry_ptr: Any, entry_labels: Any, rows: Any, similarity: Any, n_labels: int, out: Any
) -> None:
    sums = np.zeros(n_labels, dtype=np.float32)
    for i in range(len(entry_ptr) - 1):
        total = np.float32(0.1)  # the prior: no neighbour has the label
        for t in range(rows.shape[1]):
            if rows[i, t] >= 0:
                weight = similarity[i, t] * similarity[i, t]
                total += weight
                for p in range(indptr[rows[i, t]], indptr[rows[i, t] + 1]):
                    sums[indices[p]] += weight
        for e in range(entry_ptr[i], entry_ptr[i + 1]):
            out[e] = sums[entry_labels[e]] / total
        for t in range(rows.shape[1]):
            if rows[i, t] >= 0:
                for p in range(indptr[rows[i, t]], indptr[rows[i, t] + 1]):
                    sums[indices[p]] = 0.0


def sigmoid(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of log-odds."""
    return np.asarray(1 / (1 + np.exp(-np.clip(z, -500, 500))))


def logistic(
    features: NDArray[np.float64], truth: NDArray[np.bool_], counts: NDArray[np.float64], ridge: float = 1e-3
) -> NDArray[np.float64]:
    """Weights of a logistic regression where a row counts as often as ``counts`` says, by Newton's method with bounded steps."""
    weights = np.zeros(features.shape[1])
    for _ in range(50):
        p = sigmoid(features @ weights)
        gradient = features.T @ (counts * (p - truth)) + ridge * weights
        curvature = (features * (counts * p * (1 - p))[:, None]).T @ features + ridge * np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        weights -= step * min(1.0, 2.0 / max(np.abs(step).max(), 1e-12))
        if np.abs(step).max() < 1e-6:
            break
    return weights
