"""Pairs of labels: correlation (SGM, section 3.6.5), conditional co-occurrence (LACO, equation 8), confusions and misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from polytag.analysis.result import Result, counted
from polytag.metrics.of_rankings import ratio
from polytag.metrics.of_sets import common

SMOOTHING = 0.5  # pseudo-documents with and without the second label; without them one pair never predicted is infinite


@dataclass(frozen=True)
class CoOccurrence(Result):
    """The divergence KL(truth || predicted) of p(b|a) over ordered pairs of labels that occur together in the truth.

    ``kl`` is equation 8 divided by ``labels``, the labels with a partner; ``total`` is the undivided sum. ``common_kl`` is
    without smoothing over the ``common`` pairs that are predicted too, divided by ``labels``. ``missing`` pairs are never
    predicted together.
    """

    kl: float
    total: float
    common_kl: float
    labels: int
    pairs: int
    common: int
    missing: int


@dataclass(frozen=True)
class CorrelationRow(Result):
    """Two labels, the documents that have both, and the phi coefficient in the truth and in the predictions."""

    first: str
    second: str
    together: int
    phi: float
    predicted_together: int | None
    predicted_phi: float | None


@dataclass(frozen=True)
class Correlations(Result):
    """The most correlated pairs, and the whole matrix of phi coefficients for the most frequent labels."""

    rows: tuple[CorrelationRow, ...]
    labels: tuple[str, ...]
    matrix: tuple[tuple[float, ...], ...]
    predicted_matrix: tuple[tuple[float, ...], ...] | None


@dataclass(frozen=True)
class ConfusionRow(Result):
    """``documents`` have the label ``true``, which was missed, and not ``predicted``, which was given.

    ``share`` is their share of all misses of the true label.
    """

    true: str
    predicted: str
    documents: int
    misses: int
    share: float


@dataclass(frozen=True)
class MissedPairRow(Result):
    """Of ``together`` documents with both labels, ``documents`` were given ``found`` but not ``missed``."""

    found: str
    missed: str
    documents: int
    together: int
    share: float


@dataclass(frozen=True)
class PairErrors(Result):
    """The most confused pairs, and the pairs of which one label is most often found without the other."""

    confused: tuple[ConfusionRow, ...]
    missed: tuple[MissedPairRow, ...]


def co_occurrence(truth: csr_array, predicted: csr_array, *, smoothing: float = SMOOTHING) -> CoOccurrence:
    """How far the predicted co-occurrence of labels is from the true one (LACO, equation 8).

    Pairs that never occur together in the truth contribute 0. Both conditional probabilities are smoothed alike, so equal sets
    have divergence 0; the equation is no divergence of distributions, so it may be negative.
    """
    together = _pairs(truth)
    keep = together.row != together.col
    a, b, n_ab = together.row[keep], together.col[keep], together.data[keep]
    n_a, m_a = counted(truth)[a], counted(predicted)[a]
    m_ab = _looked_up(_pairs(predicted), a, b)
    p, q = (n_ab + smoothing) / (n_a + 2 * smoothing), (m_ab + smoothing) / (m_a + 2 * smoothing)
    total = float((p * np.log(p / q)).sum()) if smoothing > 0 or (m_ab > 0).all() else float("inf")
    both = m_ab > 0
    plain_p, plain_q = (n_ab / n_a)[both], m_ab[both] / m_a[both]
    labels = len(np.unique(a))
    return CoOccurrence(
        kl=total / max(labels, 1), total=total, common_kl=float((plain_p * np.log(plain_p / plain_q)).sum()) / max(labels, 1),
        labels=labels, pairs=len(a), common=int(both.sum()), missing=int((~both).sum()),
    )  # fmt: skip


def correlations(
    truth: csr_array,
    names: Sequence[str],
    predicted: csr_array | None = None,
    *,
    most: int = 50,
    least: int = 5,
    shown: int = 25,
) -> Correlations:
    """The phi coefficients (Pearson's for indicators) of pairs of labels with at least ``least`` documents together."""
    found = _pairs(truth)
    keep = (found.row < found.col) & (found.data >= least)
    a, b, both = found.row[keep], found.col[keep], found.data[keep]
    phi = _phi(both, counted(truth)[a], counted(truth)[b], truth.shape[0])
    order = np.lexsort((b, a, -phi))[:most]
    a, b, both, phi = a[order], b[order], both[order], phi[order]
    guessed, guessed_phi = _predicted_side(predicted, a, b)
    top = np.sort(np.argsort(-counted(truth), kind="stable")[:shown])
    return Correlations(
        rows=tuple(
            CorrelationRow(names[i], names[j], int(n), float(value), g, h)
            for i, j, n, value, g, h in zip(a.tolist(), b.tolist(), both, phi, guessed, guessed_phi, strict=True)
        ),
        labels=tuple(names[j] for j in top.tolist()),
        matrix=_matrix(truth, top),
        predicted_matrix=None if predicted is None else _matrix(predicted, top),
    )


def pair_errors(truth: csr_array, predicted: csr_array, names: Sequence[str], *, most: int = 50) -> PairErrors:
    """Which labels are given in place of which, and which are found without a label that belongs to them."""
    hits = common(truth, predicted)
    missed, extra = (_without(one, hits) for one in (truth, predicted))
    misses = counted(missed)
    confused = _largest(csr_array(missed.T @ extra), most)
    half = _largest(csr_array(hits.T @ missed), most)
    together = _looked_up(_pairs(truth), half.row, half.col) if len(half.data) else half.data
    return PairErrors(
        confused=tuple(
            ConfusionRow(names[i], names[j], int(n), int(misses[i]), float(n / misses[i]))
            for i, j, n in zip(confused.row.tolist(), confused.col.tolist(), confused.data, strict=True)
        ),
        missed=tuple(
            MissedPairRow(names[i], names[j], int(n), int(both), float(n / both))
            for i, j, n, both in zip(half.row.tolist(), half.col.tolist(), half.data, together, strict=True)
        ),
    )


# -- counts of pairs, sparse -------------------------------------------------------------------------------------------


def _pairs(matrix: csr_array) -> coo_array:
    """The documents that each two labels share, labels with themselves included; rows and columns in ascending order."""
    ones = csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    product = csr_array(ones.T @ ones)
    product.sort_indices()
    return coo_array(product)


def _looked_up(pairs: coo_array, a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """The counts of these pairs; 0 for a pair that is not there."""
    width = np.int64(pairs.shape[1])
    known, asked = pairs.row * width + pairs.col, a * width + b
    if not len(known):
        return np.zeros(len(asked))
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[place] == asked, pairs.data[place], 0.0)


def _without(matrix: csr_array, hits: csr_array) -> csr_array:
    """The entries that are not hits."""
    left = csr_array(matrix - hits)
    left.eliminate_zeros()
    return left


def _largest(counts: csr_array, most: int) -> coo_array:
    """The largest entries in descending order; ties by row, then column."""
    found = coo_array(counts)
    order = np.lexsort((found.col, found.row, -found.data))[:most]
    return coo_array((found.data[order], (found.row[order], found.col[order])), shape=found.shape)


def _phi(both: NDArray[Any], a: NDArray[Any], b: NDArray[Any], n: int) -> NDArray[np.float64]:
    """Pearson's correlation of two indicators; 0 where one of them is constant."""
    return ratio(n * both - a * b, np.sqrt(a * (n - a) * b * (n - b)))


def _predicted_side(
    predicted: csr_array | None, a: NDArray[Any], b: NDArray[Any]
) -> tuple[list[int] | list[None], list[float] | list[None]]:
    if predicted is None:
        return [None] * len(a), [None] * len(a)
    both, counts = _looked_up(_pairs(predicted), a, b), counted(predicted)
    return both.astype(int).tolist(), _phi(both, counts[a], counts[b], predicted.shape[0]).tolist()


def _matrix(matrix: csr_array, labels: NDArray[Any]) -> tuple[tuple[float, ...], ...]:
    few = csr_array(matrix[:, labels])
    counts = counted(few)
    both = np.asarray((few.T @ few).toarray(), dtype=np.float64)
    return tuple(map(tuple, _phi(both, counts[:, None], counts[None, :], matrix.shape[0]).tolist()))
