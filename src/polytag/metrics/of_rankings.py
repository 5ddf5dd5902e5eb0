"""Metrics of Scores: rankings at k, propensity-scored rankings, average precision and calibration error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import ConfigError
from polytag.kernels.sparse_rows import contains
from polytag.scores import Scores

Floats: TypeAlias = NDArray[np.float64]
Sums: TypeAlias = defaultdict[str, float]

# Scores are processed in blocks of about this many entries, which bounds the memory.
BLOCK = 4_000_000


def ratio(above: NDArray[Any], below: NDArray[Any]) -> Floats:
    """Element-wise division; 0 where the denominator is 0."""
    result = np.zeros(np.shape(above), dtype=np.float64)
    np.divide(above, below, out=result, where=np.asarray(below) > 0)
    return result


def require_same_shape(truth: csr_array, other: csr_array, name: str) -> None:
    """Raise unless both have the same shape."""
    if truth.shape != other.shape:
        raise ConfigError(
            f"the truth has {truth.shape[0]} documents and {truth.shape[1]} labels, but {name}: {other.shape[0]} "
            f"and {other.shape[1]}; give the same documents and labels to both"
        )


def precisions(truth: csr_array, scores: Scores, ks: Sequence[int] = (1, 3, 5)) -> Floats:
    """The mean of P@k over several k, for every document; labels without a score count as wrong."""
    require_same_shape(truth, scores.matrix, "the scores")
    hit = contains(truth, scores.ranked(max(ks))[0])  # (documents, max(ks) or the number of labels)
    return np.asarray(np.mean([hit[:, :k].sum(axis=1) / k for k in ks], axis=0), dtype=np.float64)


def ranking_metrics(
    truth: csr_array,
    scores: Scores,
    ks: Sequence[int] = (1, 3, 5),
    inverse_propensities: Floats | None = None,
    weights: NDArray[Any] | None = None,
) -> dict[str, float]:
    """P@k, R@k, nDCG@k and label-ranking average precision; PSP@k and PSnDCG@k if inverse propensities are given.

    ``weights`` says how much every document counts.
    """
    require_same_shape(truth, scores.matrix, "the scores")
    if any(k < 1 for k in ks):
        raise ConfigError(f"k must be 1 or more in p@k and the other metrics at k, not {min(ks)}")
    sums: Sums = defaultdict(float)
    start = 0
    for rows_truth, rows_scores in _blocks(truth, scores):
        stop = start + len(rows_scores)
        total = _Total(None if weights is None else weights[start:stop])
        _add_at_k(sums, rows_truth, rows_scores, ks, inverse_propensities, total)
        sums["lrap"] += total(_average_precisions(rows_truth, rows_scores))
        start = stop
    documents = max(truth.shape[0], 1) if weights is None else max(float(weights.sum(dtype=np.float64)), 1e-30)
    result = {f"{name}@{k}": sums[f"{name}@{k}"] / documents for name in ("p", "r", "ndcg") for k in ks}
    if inverse_propensities is not None:
        for key in (f"{name}@{k}" for name in ("psp", "psndcg") for k in ks):
            result[key] = sums[key] / sums[f"best {key}"] if sums[f"best {key}"] else 0.0
    return result | {"lrap": sums["lrap"] / documents}


class _Total:
    """The sum over the documents of a block, each counted with its weight."""

    def __init__(self, weights: NDArray[Any] | None) -> None:
        self.weights = weights

    def __call__(self, values: NDArray[Any]) -> float:
        if self.weights is None:
            return float(values.sum())
        return float(values.reshape(len(values), -1).sum(axis=1) @ self.weights.astype(np.float64))


def calibration_error(truth: csr_array, scores: Scores, bins: int = 15, weights: NDArray[Any] | None = None) -> float:
    """Expected calibration error over the stored entries, in bins of equal width; absent entries are ignored."""
    require_same_shape(truth, scores.matrix, "the scores")
    if scores.kind != "probability":
        raise ConfigError("margins have no calibration error; calibrate them to probabilities first")
    gap = np.zeros(bins)  # per bin: the sum of the probabilities minus the number of true labels
    start, counted = 0, 0.0
    for rows_truth, rows_scores in _blocks(truth, scores):
        probability = rows_scores.matrix.data.astype(np.float64)
        place = np.clip((probability * bins).astype(np.int64), 0, bins - 1)
        apart = probability - rows_scores.hits(rows_truth)
        if weights is not None:
            each = np.repeat(weights[start : start + len(rows_scores)], np.diff(rows_scores.matrix.indptr))
            apart, counted = apart * each, counted + float(each.sum(dtype=np.float64))
        gap += np.bincount(place, weights=apart, minlength=bins)
        start += len(rows_scores)
    size = max(scores.matrix.nnz, 1) if weights is None else max(counted, 1e-30)
    return float(np.abs(gap).sum() / size)


def _blocks(truth: csr_array, scores: Scores) -> Iterator[tuple[csr_array, Scores]]:
    n = truth.shape[0]
    step = max(1, BLOCK * n // (scores.matrix.nnz + n)) if n else 1
    for start in range(0, n, step):
        yield truth[start : start + step], scores.rows(start, start + step)


# -- at k --------------------------------------------------------------------------------------------------------------


def _add_at_k(sums: Sums, truth: csr_array, scores: Scores, ks: Sequence[int], inverse: Floats | None, total: _Total) -> None:
    """Add the sums of all metrics at k over the documents of a block."""
    width = max(ks, default=0)
    discount = 1 / np.log2(np.arange(2, width + 2))
    ideal = np.concatenate([[0.0], np.cumsum(discount)])
    labels = scores.ranked(width)[0]  # (documents, width or the number of labels)
    hit = contains(truth, labels)
    true = np.diff(truth.indptr)
    gains = {} if inverse is None else _gains(truth, labels, hit, inverse, scores.names)
    for k in ks:
        found, perfect, most = hit[:, :k].sum(axis=1), ideal[np.minimum(true, k)], min(k, hit.shape[1])
        sums[f"p@{k}"] += total(found) / k
        sums[f"r@{k}"] += total(ratio(found, true))
        sums[f"ndcg@{k}"] += total(ratio(hit[:, :k] @ discount[:most], perfect))
        for prefix, gain in gains.items():
            sums[f"{prefix}psp@{k}"] += total(gain[:, :k]) / k
            sums[f"{prefix}psndcg@{k}"] += total(ratio(gain[:, :k] @ discount[:most], perfect))


def _gains(
    truth: csr_array, labels: NDArray[np.int32], hit: NDArray[np.bool_], inverse: Floats, names: Sequence[str]
) -> dict[str, Floats]:
    """The gains (inverse propensities of hits) at each rank, of this ranking and of the best possible one."""
    padded = np.append(inverse, 0.0)  # label -1 is padding without gain
    weighted = csr_array((inverse[truth.indices], truth.indices, truth.indptr), shape=truth.shape)
    rarest = Scores(weighted, names, "probability", 0.0).ranked(labels.shape[1])[0]
    return {"": padded[labels] * hit, "best ": padded[rarest]}


# -- label-ranking average precision -----------------------------------------------------------------------------------


def _average_precisions(truth: csr_array, scores: Scores) -> Floats:
    """The label-ranking average precision of every document; absent entries are tied at ``scores.absent``.

    The rank r of a true label is the number of labels that score at least as much. The label contributes the share of true
    labels among these r. Labels that are not stored are counted, but never materialised.
    """
    matrix, n_labels = scores.matrix, truth.shape[1]
    row, mask = np.repeat(np.arange(len(scores)), np.diff(matrix.indptr)), scores.hits(truth)
    stored_true = np.bincount(row[mask], minlength=len(scores))
    true = np.diff(truth.indptr)
    missing, missing_true = n_labels - np.diff(matrix.indptr), true - stored_true
    # Ranked entries: every stored true label, and one entry per document for all its true labels that are not stored.
    extra = np.flatnonzero(missing_true)
    of = np.concatenate([row[mask], extra])
    value = np.concatenate([matrix.data[mask], np.full(len(extra), scores.absent, dtype=np.float32)])
    times = np.concatenate([np.ones(int(mask.sum())), missing_true[extra]])
    tied = value <= scores.absent
    key = _order(of, value)
    rank = _at_least(_order(row, matrix.data), matrix.indptr[:-1], of, key) + tied * missing[of]
    good = (
        _at_least(_order(row[mask], matrix.data[mask]), np.cumsum(stored_true) - stored_true, of, key) + tied * missing_true[of]
    )
    precision = np.bincount(of, weights=times * good / rank, minlength=len(scores))
    # As in scikit-learn, the average precision of a document without true labels is 1.
    return np.where(true == 0, 1.0, ratio(precision, true))


def _order(row: NDArray[Any], value: NDArray[Any]) -> NDArray[np.uint64]:
    """Sort keys: ascending by row, then descending by value; equal where both are equal."""
    bits = (np.asarray(value, dtype=np.float32) + np.float32(0)).view(np.uint32)  # + 0 turns -0 into 0
    rising = np.where(bits >> 31, ~bits, bits | np.uint32(0x80000000))
    return np.asarray((row.astype(np.uint64) << np.uint64(32)) | ~rising)


def _at_least(keys: NDArray[np.uint64], start: NDArray[Any], row: NDArray[Any], key: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For each key, the number of entries of its row with at least its value."""
    return np.asarray(np.searchsorted(np.sort(keys), key, side="right") - start[row])
