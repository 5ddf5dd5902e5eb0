"""Can probabilities be trusted? Calibration in bins, and the risk that is left when uncertain documents are put aside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.analysis.result import Result
from polytag.errors import ConfigError
from polytag.kernels.sparse_rows import places_of
from polytag.metrics.of_rankings import ratio, require_same_shape
from polytag.metrics.of_sets import per_document
from polytag.scores import Scores

_POINTS = 100


@dataclass(frozen=True)
class ReliabilityBin(Result):
    """Entries with a probability from ``low`` to ``high``: their mean probability, and the share that is true."""

    low: float
    high: float
    entries: int
    probability: float
    true: float


@dataclass(frozen=True)
class Reliability(Result):
    """Bins of equal width, without empty ones; expected and largest calibration error; Brier score of stored entries."""

    rows: tuple[ReliabilityBin, ...]
    expected_error: float
    largest_error: float
    brier: float
    entries: int


@dataclass(frozen=True)
class RiskPoint(Result):
    """The documents with at least this confidence: their share, and the quality on them."""

    confidence: float
    coverage: float
    documents: int
    micro_f1: float
    subset_error: float


@dataclass(frozen=True)
class RiskCoverage(Result):
    """Points from the most certain documents to all; ``area`` is the mean subset error over all coverages (AURC).

    ``best_area`` is that of a perfect order, ``random_area`` that of a random one.
    """

    rows: tuple[RiskPoint, ...]
    area: float
    best_area: float
    random_area: float


def reliability(truth: csr_array, scores: Scores, *, bins: int = 15) -> Reliability:
    """Compare probabilities with the share that is true; entries that are not stored do not count."""
    require_same_shape(truth, scores.matrix, "the scores")
    _require_probabilities(scores)
    probability, hit = scores.matrix.data.astype(np.float64), scores.hits(truth).astype(np.float64)
    place = np.clip((probability * bins).astype(np.int64), 0, bins - 1)
    entries = np.bincount(place, minlength=bins)
    mean, share = (ratio(np.bincount(place, weights=values, minlength=bins), entries) for values in (probability, hit))
    gap, total = np.abs(mean - share), max(len(probability), 1)
    rows = [
        ReliabilityBin(at / bins, (at + 1) / bins, int(entries[at]), float(mean[at]), float(share[at]))
        for at in np.flatnonzero(entries).tolist()
    ]
    brier = float(((probability - hit) ** 2).sum() / total)
    return Reliability(tuple(rows), float((gap * entries).sum() / total), float(gap.max(initial=0)), brier, len(probability))


def set_confidence(scores: Scores, predicted: csr_array) -> NDArray[np.float64]:
    """The log-probability of every predicted set, as if labels were independent; entries that are not stored count as sure."""
    _require_probabilities(scores)
    matrix = scores.matrix
    chosen = places_of(matrix, predicted)[1]
    probability = np.clip(matrix.data.astype(np.float64), 1e-7, 1 - 1e-7)
    logs = np.log(np.where(chosen, probability, 1 - probability))
    rows = np.repeat(np.arange(len(scores)), np.diff(matrix.indptr))
    return np.asarray(np.bincount(rows, weights=logs, minlength=len(scores)), dtype=np.float64)


def risk_coverage(
    truth: csr_array, predicted: csr_array, confidence: NDArray[np.float64], *, points: int = _POINTS
) -> RiskCoverage:
    """Quality on the most certain documents against their share; ``confidence`` may be any number per document."""
    counts = per_document(truth, predicted)
    n = len(counts.hits)
    if len(confidence) != n:
        raise ConfigError(f"there are {n} documents but {len(confidence)} confidences; give one for every document")
    order = np.argsort(-np.asarray(confidence, dtype=np.float64), kind="stable")
    covered = np.arange(1, n + 1)
    hits, sizes = (np.cumsum(values[order]) for values in (counts.hits, counts.predicted + counts.true))
    wrong = 1 - counts.exact
    errors = np.cumsum(wrong[order]) / covered
    f1 = ratio(2 * hits, sizes)
    shown = np.unique(np.linspace(1, n, min(points, n)).round().astype(int)) - 1 if n else np.zeros(0, dtype=int)
    rows = [
        RiskPoint(float(confidence[order[at]]), (at + 1) / n, at + 1, float(f1[at]), float(errors[at])) for at in shown.tolist()
    ]
    best = np.cumsum(np.sort(wrong)) / covered
    return RiskCoverage(tuple(rows), *(float(v.mean()) if n else 0.0 for v in (errors, best, wrong)))


def _require_probabilities(scores: Scores) -> None:
    if scores.kind != "probability":
        raise ConfigError("margins are no probabilities; calibrate them first, as a classifier does unless calibrate=false")
