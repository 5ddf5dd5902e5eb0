"""How probable it is that a label was wrongly given, or is wrongly missing.

Three pieces of evidence about a pair of document and label are combined by logistic regression into q, the probability that the
label is right: the text (out of fold), the other labels of the document, and the labels of the most similar documents. Bayes' rule
then turns q into the probability of an error. A wrong label is given with rate a, a right one is missing with rate m:

    given:    P(error) = (1 - q) a / ((1 - q) a + q (1 - m))
    missing:  P(error) = q m / (q m + (1 - q))

Self-confidence, 1 - q, would treat both directions alike; but few of the many labels with a small q are ever given by mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.audit.label_context import label_context
from polytag.audit.nearest_rows import Nearest
from polytag.decision.calibration import logit
from polytag.kernels.compiler import njit
from polytag.scores import Scores

if TYPE_CHECKING:
    from polytag.audit.out_of_fold import OutOfFold

NEIGHBOURS = 20
WRONG, MISSING = 0.3, 0.05  # assumed errors per given label, in each direction; chosen on spoiled draws (docs/audit.md)
_ENTRIES = 400_000  # the regression is fitted on about this many entries, of evenly spaced documents
_FLOOR = 1e-5


class Suspicion(NamedTuple):
    """Of every entry: the probability that the label is right, that the given or missing label is an error, and the evidence."""

    matrix: csr_array  # the entries; its values are the probabilities of an error
    given: NDArray[np.bool_]
    right: NDArray[np.float32]
    text: NDArray[np.float32]
    context: NDArray[np.float32]
    agreement: NDArray[np.float32]


def suspicion(found: OutOfFold, truth: csr_array, nearest: Nearest) -> Suspicion:
    """Weigh the evidence for every entry of the out-of-fold scores."""
    entries = found.scores.matrix
    given = found.scores.hits(truth)
    context = label_context(truth, entries)
    agreement = neighbour_share(truth, entries, nearest)
    right = _combined(found.scores, truth, given, context, agreement)
    density = truth.nnz / max(truth.shape[0] * truth.shape[1], 1)
    matrix = csr_array((error_probability(right, given, density), entries.indices, entries.indptr), shape=entries.shape)
    return Suspicion(matrix, given, right, entries.data, context, agreement)


def error_probability(right: NDArray[Any], given: NDArray[np.bool_], density: float) -> NDArray[np.float32]:
    """Bayes' rule; ``density`` is the share of all pairs that are given, to which wrong ones are proportional."""
    q = np.clip(right.astype(np.float64), _FLOOR, 1 - _FLOOR)
    added = WRONG * density
    wrong = (1 - q) * added / ((1 - q) * added + q * (1 - MISSING))
    missing = q * MISSING / (q * MISSING + (1 - q))
    return np.where(given, wrong, missing).astype(np.float32)


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


def _combined(
    scores: Scores, truth: csr_array, given: NDArray[np.bool_], context: NDArray[np.float32], agreement: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The probability that a label is right, by logistic regression on the evidence."""
    entries = scores.matrix
    counts = np.bincount(truth.indices, minlength=truth.shape[1])
    prior = logit((counts + 0.5) / (truth.shape[0] + 1))
    step = 1 + entries.nnz // _ENTRIES
    chosen = np.repeat(np.arange(len(scores)) % step == 0, np.diff(entries.indptr))

    def columns(mask: NDArray[np.bool_] | slice) -> NDArray[np.float64]:
        implied = np.clip(context[mask], 0, 1)
        logs = (logit(entries.data[mask]), np.log(implied + 0.003), np.log(agreement[mask] + 0.01))
        return np.stack([*logs, implied, agreement[mask], prior[entries.indices[mask]], np.ones(len(implied))], axis=1)

    weights = logistic(columns(chosen), given[chosen])
    right = np.empty(entries.nnz, dtype=np.float32)
    for start in range(0, entries.nnz, _ENTRIES):
        right[start : start + _ENTRIES] = sigmoid(columns(slice(start, start + _ENTRIES)) @ weights)
    return right


def sigmoid(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of log-odds."""
    return np.asarray(1 / (1 + np.exp(-np.clip(z, -500, 500))))


def logistic(features: NDArray[np.float64], truth: NDArray[np.bool_], ridge: float = 1e-3) -> NDArray[np.float64]:
    """Weights of a logistic regression, by Newton's method with bounded steps."""
    weights = np.zeros(features.shape[1])
    for _ in range(50):
        p = sigmoid(features @ weights)
        gradient = features.T @ (p - truth) + ridge * weights
        curvature = (features * (p * (1 - p))[:, None]).T @ features + ridge * np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        weights -= step * min(1.0, 2.0 / max(np.abs(step).max(), 1e-12))
        if np.abs(step).max() < 1e-6:
            break
    return weights
