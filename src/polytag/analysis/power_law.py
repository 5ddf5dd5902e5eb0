"""Learning curves over documents: a power law is fitted to measured values and says what more documents would buy.

The law is y(n) = c - a n^-b, rising and at most 1. Below 0 the exponent b describes the steep beginning of a curve, which has no
limit but 1. No single best fit is made. Exponents are on a grid; for each of them the law is linear in its values u at the
smallest and v at the largest size, whose posterior is known. Parameters are drawn from this posterior, and draws that break a
limit are dropped. Quantiles of the drawn curves are the intervals. All labels are fitted at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polytag.analysis.result import Result
from polytag.errors import DataError

Floats: TypeAlias = NDArray[np.float64]
EXPONENTS = np.linspace(-0.5, 2.0, 100)  # none of them is 0
_TAILS = (0.025, 0.975)
_LEAST_SIZES = 4
_KNOWN = 3.0  # weight of the noise between seeds, in measured sizes


@dataclass(frozen=True)
class CurvePoint(Result):
    """A number of training documents, and the metric's mean over seeds with every seed's value."""

    documents: int
    value: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Estimate(Result):
    """The value of the curve at a number of documents, with its 95% interval."""

    documents: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Gain(Result):
    """What ``more`` documents in addition to ``documents`` would add to the metric, with its 95% interval."""

    documents: int
    more: int
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class HeldBack(Result):
    """A check: the value at the largest size, predicted from the smaller ones, with the interval of a measured value."""

    documents: int
    measured: float
    predicted: float
    low: float
    high: float
    covered: bool


@dataclass(frozen=True)
class MetricCurve(Result):
    """The learning curve of a metric: measured points, the fitted curve, its asymptote, gains, and a check.

    ``now`` is the curve at all documents of the corpus, ``limit`` (documents 0) its value for ever more documents.
    """

    metric: str
    points: tuple[CurvePoint, ...]
    fitted: tuple[Estimate, ...]
    now: Estimate
    limit: Estimate
    gains: tuple[Gain, ...]
    held_back: HeldBack | None


@dataclass(frozen=True)
class LabelGain(Result):
    """What more documents would add to a label's F1; ``support`` is its mean number of true documents in a hold-out."""

    label: str
    documents: int
    support: float
    f1: float
    predicted: float
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class LearningCurve(Result):
    """Curves of all metrics, gains of labels (largest first), and what was trained.

    ``labels_without_estimate`` have too few documents in the hold-outs.
    """

    model: str
    documents: int
    test_documents: int
    seeds: int
    seconds: float
    metrics: tuple[MetricCurve, ...]
    more: int
    labels: tuple[LabelGain, ...]
    labels_without_estimate: int


@dataclass(frozen=True)
class PowerLaw:
    """Drawn parameters of curves (curves, draws): values at the smallest and largest size, exponent, noise of a point."""

    first: float
    last: float
    low: Floats
    high: Floats
    exponent: Floats
    noise: Floats
    weight: Floats

    def at(self, documents: float) -> Floats:
        """The drawn curves at a number of documents (curves, draws); infinity gives the asymptote."""
        x = np.maximum(_scaled(np.asarray(documents, dtype=np.float64), self.first, self.last, self.exponent), -1e12)
        return np.clip(self.high - (self.high - self.low) * x, 0.0, 1.0)

    def estimate(self, values: Floats) -> tuple[Floats, Floats, Floats]:
        """Median and 95% interval of drawn values (curves, draws), of every curve."""
        middle, low, high = weighted_quantiles(values, self.weight, (0.5, *_TAILS))
        return middle, low, high

    def measured(self, documents: float, seed: int = 0) -> Floats:
        """Drawn measurements: the curves with the noise of one more point."""
        noise = np.random.default_rng(seed).standard_normal(self.noise.shape) * self.noise
        return np.clip(self.at(documents) + noise, 0.0, 1.0)


def fit_power_law(
    sizes: Sequence[int], values: Floats, *, noise: Floats | None = None, draws: int = 2000, seed: int = 0
) -> PowerLaw:
    """Fit curves to values (sizes, seeds, curves) measured at several numbers of documents.

    ``noise`` is the least standard deviation of a point to assume for every curve.
    """
    n = np.asarray(sizes, dtype=np.float64)
    if len(n) < _LEAST_SIZES or len(np.unique(n)) < len(n):
        raise DataError(f"a learning curve needs {_LEAST_SIZES} different numbers of documents or more, not {len(np.unique(n))}")
    order = np.argsort(n)
    n, values = n[order], np.asarray(values, dtype=np.float64)[order]
    y = values.mean(axis=1)  # (sizes, curves)
    known = _seed_variance(values) if noise is None else np.maximum(_seed_variance(values), noise**2)
    weights = np.sqrt(n / n[-1])  # extrapolation starts at the largest sizes
    chances, centres, roots, scales = _posteriors(n, y, weights, known)
    return _drawn(n, chances, centres, roots, scales, len(n) - 2 + _KNOWN, draws, seed)


def _seed_variance(values: Floats) -> Floats:
    """The variance of a mean over seeds, for every curve; pooled over sizes."""
    seeds = values.shape[1]
    spread = values.var(axis=1, ddof=1).mean(axis=0) / seeds if seeds > 1 else np.zeros(values.shape[2])
    return np.maximum(spread, 1e-8)


def _scaled(n: Floats, first: float, last: float, b: Floats) -> Floats:
    """n^-b, scaled to 1 at the first and 0 at the last size."""
    return np.asarray(((n / last) ** -b - 1) / ((first / last) ** -b - 1))


def _posteriors(n: Floats, y: Floats, weights: Floats, known: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """For every exponent: its probability, the centre (u, v), a root of the covariance, and the scale of the noise.

    Shapes: (curves, exponents), (exponents, 2, curves), (exponents, 2, 2), (exponents, curves).
    """
    logs, centres, roots, scales = [], [], [], []
    for b in EXPONENTS:
        x = _scaled(n, n[0], n[-1], b)
        design = np.stack([x, 1 - x], axis=1)  # (sizes, 2)
        precision = design.T @ (weights[:, None] * design)
        centre = np.linalg.solve(precision, design.T @ (weights[:, None] * y))  # (2, curves)
        rest = (weights[:, None] * (y - design @ centre) ** 2).sum(axis=0) + _KNOWN * known
        logs.append(-0.5 * np.linalg.slogdet(precision)[1] - 0.5 * (len(n) - 2 + _KNOWN) * np.log(rest))
        centres.append(centre)
        roots.append(np.linalg.cholesky(np.linalg.inv(precision)))
        scales.append(rest)
    table = np.array(logs).T
    chances = np.exp(table - table.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True), np.array(centres), np.array(roots), np.array(scales)


def _drawn(
    n: Floats, chances: Floats, centres: Floats, roots: Floats, scales: Floats, freedom: float, draws: int, seed: int
) -> PowerLaw:
    generator, curves = np.random.default_rng(seed), len(chances)
    which = (generator.random((curves, draws, 1)) > np.cumsum(chances, axis=1)[:, None, :-1]).sum(axis=2)
    column = np.arange(curves)[:, None]
    deviation = np.sqrt(scales[which, column] / generator.chisquare(freedom, (curves, draws)))
    normal = generator.standard_normal((2, curves, draws))
    low = centres[which, 0, column] + deviation * roots[which, 0, 0] * normal[0]
    high = centres[which, 1, column] + deviation * (roots[which, 1, 0] * normal[0] + roots[which, 1, 1] * normal[1])
    b = EXPONENTS[which]
    limit = high - (high - low) * _scaled(np.asarray(np.inf), n[0], n[-1], np.maximum(b, EXPONENTS[EXPONENTS > 0][0]))
    valid = (low >= 0) & (high >= low) & (high <= 1) & ((b < 0) | (limit <= 1))
    rare = valid.sum(axis=1, keepdims=True) < 20  # the limits bind: keep the nearest curves that respect them
    high = np.where(rare, np.clip(high, 0, 1), high)
    low = np.where(rare, np.clip(low, 0, high), low)
    return PowerLaw(float(n[0]), float(n[-1]), low, high, b, deviation, np.where(rare, 1.0, valid))


def weighted_quantiles(values: Floats, weights: Floats, quantiles: Sequence[float]) -> Floats:
    """Quantiles of every row, where each entry counts with its weight (quantiles, rows)."""
    order = np.argsort(values, axis=1)
    ordered, mass = np.take_along_axis(values, order, 1), np.cumsum(np.take_along_axis(weights, order, 1), axis=1)
    share = mass / mass[:, -1:]
    places = [(share < quantile).sum(axis=1).clip(0, values.shape[1] - 1) for quantile in quantiles]
    return np.stack([ordered[np.arange(len(ordered)), place] for place in places])
