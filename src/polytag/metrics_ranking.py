"""The part of the metrics that looks at Scores: rankings at k, propensities, average precision, calibration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import ConfigError
from polytag.scores import Scores

Floats: TypeAlias = NDArray[np.float64]
Sums: TypeAlias = defaultdict[str, float]

# Scores are worked through in blocks of about this many entries, so that full scores need little extra memory.
BLOCK = 4_000_000


def ratio(above: NDArray[Any], below: NDArray[Any]) -> Floats:
    """Divide, with 0 where there is nothing to divide by."""
    result = np.zeros(np.shape(above), dtype=np.float64)
    np.divide(above, below, out=result, where=np.asarray(below) > 0)
    return result


def require_same_shape(truth: csr_array, other: csr_array, name: str) -> None:
    """Raise unless both are about the same documents and labels."""
    if truth.shape != other.shape:
        raise ConfigError(
            f"the truth is about {truth.shape[0]} documents and {truth.shape[1]} labels, {name} about {other.shape[0]} "
            f"and {other.shape[1]}; give the same documents and labels to both"
        )


def propensities(train_counts: NDArray[Any], train_documents: int, a: float = 0.55, b: float = 1.5) -> Floats:
    """How likely a label that fits was in fact assigned, by its training frequency (Jain et al. 2016, section 4).

    p = 1 / (1 + C (count + B)^-A) with C = (ln N - 1) (B + 1)^A; C is 0 at least, so that p <= 1 for tiny corpora.
    """
    scale = max(np.log(max(train_documents, 1)) - 1, 0.0) * (b + 1) ** a
    return np.asarray(1 / (1 + scale * (np.asarray(train_counts, dtype=np.float64) + b) ** -a), dtype=np.float64)


def ranking_metrics(
    truth: csr_array, scores: Scores, ks: Sequence[int] = (1, 3, 5), inverse_propensities: Floats | None = None
) -> dict[str, float]:
    """P@k, R@k, nDCG@k and label-ranking average precision; PSP@k and PSnDCG@k where inverse propensities are given."""
    require_same_shape(truth, scores.matrix, "the scores")
    if any(k < 1 for k in ks):
        raise ConfigError(f"k must be 1 or more in p@k and its kin, not {min(ks)}")
    sums: Sums = defaultdict(float)
    for rows_truth, rows_scores in _blocks(truth, scores):
        _add_at_k(sums, rows_truth, rows_scores, ks, inverse_propensities)
        sums["lrap"] += _average_precisions(rows_truth, rows_scores)
    documents = max(truth.shape[0], 1)
    result = {f"{name}@{k}": sums[f"{name}@{k}"] / documents for name in ("p", "r", "ndcg") for k in ks}
    if inverse_propensities is not None:
        for key in (f"{name}@{k}" for name in ("psp", "psndcg") for k in ks):
            result[key] = sums[key] / sums[f"best {key}"] if sums[f"best {key}"] else 0.0
    return result | {"lrap": sums["lrap"] / documents}


def calibration_error(truth: csr_array, scores: Scores, bins: int = 15) -> float:
    """Expected calibration error over the stored entries, in bins of equal width; absent entries are left out."""
    require_same_shape(truth, scores.matrix, "the scores")
    if scores.kind != "probability":
        raise ConfigError("margins have no calibration error; calibrate them to probabilities first")
    gap = np.zeros(bins)  # per bin: the sum of the probabilities minus the number of true labels
    for rows_truth, rows_scores in _blocks(truth, scores):
        probability = rows_scores.matrix.data.astype(np.float64)
        place = np.clip((probability * bins).astype(np.int64), 0, bins - 1)
        gap += np.bincount(place, weights=probability - _stored_truth(rows_truth, rows_scores.matrix), minlength=bins)
    return float(np.abs(gap).sum() / max(scores.matrix.nnz, 1))


def _blocks(truth: csr_array, scores: Scores) -> Iterator[tuple[csr_array, Scores]]:
    n = truth.shape[0]
    step = max(1, BLOCK * n // (scores.matrix.nnz + n)) if n else 1
    for start in range(0, n, step):
        yield truth[start : start + step], scores.rows(start, start + step)


# -- at k --------------------------------------------------------------------------------------------------------------


def _add_at_k(sums: Sums, truth: csr_array, scores: Scores, ks: Sequence[int], inverse: Floats | None) -> None:
    """Add a block's sums over documents of everything that looks at the first k labels."""
    width = max(ks, default=0)
    discount = 1 / np.log2(np.arange(2, width + 2))
    ideal = np.concatenate([[0.0], np.cumsum(discount)])
    labels = scores.ranked(width)[0]  # (documents, width)
    hit = _is_true(truth, labels)
    true = np.diff(truth.indptr)
    gains = {} if inverse is None else _gains(truth, labels, hit, inverse, scores.names)
    for k in ks:
        found, perfect = hit[:, :k].sum(axis=1), ideal[np.minimum(true, k)]
        sums[f"p@{k}"] += float(found.sum() / k)
        sums[f"r@{k}"] += float(ratio(found, true).sum())
        sums[f"ndcg@{k}"] += float(ratio(hit[:, :k] @ discount[:k], perfect).sum())
        for prefix, gain in gains.items():
            sums[f"{prefix}psp@{k}"] += float(gain[:, :k].sum() / k)
            sums[f"{prefix}psndcg@{k}"] += float(ratio(gain[:, :k] @ discount[:k], perfect).sum())


def _gains(
    truth: csr_array, labels: NDArray[np.int32], hit: NDArray[np.bool_], inverse: Floats, names: Sequence[str]
) -> dict[str, Floats]:
    """The inverse propensities that the ranking collects place by place, and those that the best ranking would."""
    padded = np.append(inverse, 0.0)  # label -1, the filling, is worth nothing
    weighted = csr_array((inverse[truth.indices], truth.indices, truth.indptr), shape=truth.shape)
    rarest = Scores(weighted, names, "probability", 0.0).ranked(labels.shape[1])[0]
    return {"": padded[labels] * hit, "best ": padded[rarest]}


def _keys(matrix: csr_array) -> NDArray[np.int64]:
    """One ascending number per stored entry, equal where document and label are."""
    n, n_labels = matrix.shape
    return np.asarray(np.repeat(np.arange(n, dtype=np.int64) * n_labels, np.diff(matrix.indptr)) + matrix.indices)


def _is_true(truth: csr_array, labels: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether the label numbers in each document's row are true; -1 never is."""
    known = _keys(truth)
    if not len(known):
        return np.zeros(labels.shape, dtype=np.bool_)
    asked = np.arange(len(labels), dtype=np.int64)[:, None] * truth.shape[1] + labels
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.asarray((known[place] == asked) & (labels >= 0))


def _stored_truth(truth: csr_array, matrix: csr_array) -> NDArray[np.bool_]:
    """Whether each stored entry of the matrix is true."""
    stored, known = _keys(matrix), _keys(truth)
    mask = np.zeros(len(stored), dtype=np.bool_)
    place = np.searchsorted(stored, known)
    inside = place < len(stored)
    place, known = place[inside], known[inside]
    mask[place[stored[place] == known]] = True
    return mask


# -- label-ranking average precision -----------------------------------------------------------------------------------


def _average_precisions(truth: csr_array, scores: Scores) -> float:
    """The sum over documents of the label-ranking average precision; absent entries are tied at ``scores.absent``.

    A true label at rank r (ties counted in full: how many labels score at least as much) contributes the share of
    true labels among those r. Labels that are not stored are counted, never written out.
    """
    matrix, n_labels = scores.matrix, truth.shape[1]
    row, mask = np.repeat(np.arange(len(scores)), np.diff(matrix.indptr)), _stored_truth(truth, matrix)
    stored_true = np.bincount(row[mask], minlength=len(scores))
    true = np.diff(truth.indptr)
    missing, missing_true = n_labels - np.diff(matrix.indptr), true - stored_true
    # What to rank: every stored true label, and per document one stand-in for all its true labels that are not stored.
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
    # As scikit-learn has it, a document without true labels cannot be ranked wrongly.
    return float(np.where(true == 0, 1.0, ratio(precision, true)).sum())


def _order(row: NDArray[Any], value: NDArray[Any]) -> NDArray[np.uint64]:
    """Numbers that ascend by row and then by falling value, equal where both are equal."""
    bits = (np.asarray(value, dtype=np.float32) + np.float32(0)).view(np.uint32)  # + 0 makes one zero of -0 and 0
    rising = np.where(bits >> 31, ~bits, bits | np.uint32(0x80000000))
    return np.asarray((row.astype(np.uint64) << np.uint64(32)) | ~rising)


def _at_least(keys: NDArray[np.uint64], start: NDArray[Any], row: NDArray[Any], key: NDArray[np.uint64]) -> NDArray[np.int64]:
    """How many entries of its row have at least the value that is coded in each key."""
    return np.asarray(np.searchsorted(np.sort(keys), key, side="right") - start[row])
