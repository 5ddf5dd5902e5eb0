"""Labels that cannot be learned: their out-of-fold average precision is no better than that of a random order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.audit.out_of_fold import OutOfFold

FEW = 5  # documents below which the number of documents is the reason
_DRAWS, _LEVEL = 199, 0.95  # random orders, and the share of them that a label must beat
_UNRELATED = 1.5  # cosine of the label's documents, in multiples of that of all documents, below which they share no words


class Unlearnable(NamedTuple):
    """A label, its average precision, what a random order reaches, and the reason."""

    label: int
    documents: int
    average_precision: float
    chance: float
    reason: str


def label_average_precisions(found: OutOfFold, truth: csr_array) -> NDArray[np.float64]:
    """Out-of-fold average precision of every label; 0 for a label without documents.

    Documents for which the label is not among the best are tied at the end, where precision is that of all documents.
    """
    m, n_labels = found.scores.matrix, truth.shape[1]
    given = found.scores.hits(truth)
    counts = np.bincount(truth.indices, minlength=n_labels)
    known = np.flatnonzero(found.found)
    order = known[np.lexsort((given[known], -m.data[known], m.indices[known]))]  # of equal scores, wrong ones come first
    label, hit = m.indices[order], given[order]
    starts = np.searchsorted(label, np.arange(n_labels))
    sums = np.cumsum(hit)
    before = np.where(starts > 0, sums[np.maximum(starts, 1) - 1], 0) if len(sums) else np.zeros(n_labels, dtype=np.int64)
    rank = np.arange(len(order)) - starts[label] + 1
    precision = np.where(hit, (sums - before[label]) / rank, 0.0)
    total = np.bincount(label, precision, minlength=n_labels)
    late = counts - np.bincount(label[hit], minlength=n_labels)
    return np.asarray((total + late * counts / truth.shape[0]) / np.maximum(counts, 1), dtype=np.float64)


def chance(count: int, documents: int, rng: np.random.Generator) -> float:
    """The average precision that a random order reaches in one case of twenty."""
    places = np.sort(rng.random((_DRAWS, count)), axis=1) * documents + 1
    drawn = (np.arange(1, count + 1) / places).clip(max=1).mean(axis=1)
    return float(np.quantile(drawn, _LEVEL))


def unlearnable_labels(found: OutOfFold, truth: csr_array, features: csr_array, seed: int = 0) -> list[Unlearnable]:
    """The labels whose average precision is no better than chance; most documents first."""
    counts = np.bincount(truth.indices, minlength=truth.shape[1])
    reached = label_average_precisions(found, truth)
    rng = np.random.default_rng(seed)
    limit = {int(count): chance(int(count), truth.shape[0], rng) for count in np.unique(counts) if count}
    columns = truth.tocsc()
    everywhere = _cohesion(features, np.arange(truth.shape[0])[:: 1 + truth.shape[0] // 2000])
    failed = []
    for label in np.flatnonzero(counts):
        bound = limit[int(counts[label])]
        if reached[label] <= bound or counts[label] == 1:
            own = columns.indices[columns.indptr[label] : columns.indptr[label + 1]]
            reason = _reason(features, own, everywhere)
            failed.append(Unlearnable(int(label), int(counts[label]), float(reached[label]), bound, reason))
    return sorted(failed, key=lambda one: (-one.documents, one.label))


def _reason(features: csr_array, own: NDArray[np.int32], everywhere: float) -> str:
    if len(own) == 1:
        return "one document only"
    if not np.diff(features.indptr)[own].any():
        return "its documents have no known words"
    if len(own) < FEW:
        return f"{len(own)} documents only"
    alike = _cohesion(features, own)
    if alike < _UNRELATED * everywhere:
        return "its documents share no more words than any others"
    return "other documents use the same words"


def _cohesion(features: csr_array, rows: NDArray[np.int64] | NDArray[np.int32]) -> float:
    """The mean cosine between two different documents."""
    part, n = features[rows], len(rows)
    total = np.bincount(part.indices, part.data, minlength=features.shape[1])
    return float(total @ total - np.dot(part.data, part.data)) / max(n * (n - 1), 1)
