"""Is one system better? Paired bootstrap over documents, t-test over seeds, Friedman and Nemenyi over corpora."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from polytag.analysis.result import Result
from polytag.errors import DataError
from polytag.metrics.bootstrap import paired_bootstrap, statistic

METRICS = ("micro_f1", "macro_f1", "samples_f1", "subset_accuracy", "hamming_loss")


@dataclass(frozen=True)
class ComparedMetric(Result):
    """A metric of two systems, second minus first, with its 95% interval and p-value over resampled documents."""

    metric: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class SystemComparison(Result):
    """Two systems on the same documents, one row per metric."""

    first: str
    second: str
    documents: int
    rounds: int
    rows: tuple[ComparedMetric, ...]


@dataclass(frozen=True)
class SeedTest(Result):
    """The t-test over seeds, second minus first: paired if both have the same seeds, else Welch's."""

    paired: bool
    first_mean: float
    second_mean: float
    first_deviation: float
    second_deviation: float
    difference: float
    low: float
    high: float
    t: float
    p: float


@dataclass(frozen=True)
class RankRow(Result):
    """A system and its mean rank over corpora; 1 is the best."""

    system: str
    mean_rank: float


@dataclass(frozen=True)
class RankPair(Result):
    """Two systems: the difference of their mean ranks, and Nemenyi's p-value."""

    first: str
    second: str
    difference: float
    p: float
    different: bool


@dataclass(frozen=True)
class RankTest(Result):
    """Friedman's test of equal mean ranks, and Nemenyi's critical difference at level ``alpha``."""

    rows: tuple[RankRow, ...]
    corpora: int
    chi_square: float
    p: float
    alpha: float
    critical_difference: float
    pairs: tuple[RankPair, ...]


def compare_systems(
    truth: csr_array,
    first: csr_array | Sequence[csr_array],
    second: csr_array | Sequence[csr_array],
    *,
    names: tuple[str, str] = ("first", "second"),
    metrics: Sequence[str] = METRICS,
    rounds: int = 1000,
    seed: int = 0,
) -> SystemComparison:
    """Every metric of two systems with the significance of the difference; a system may have several seeds."""
    rows = []
    for metric in metrics:
        found = paired_bootstrap(truth, second, first, metric, rounds, seed)
        one, other = (_mean(truth, sets, metric) for sets in (first, second))
        rows.append(ComparedMetric(metric, one, other, found.difference, found.low, found.high, found.p))
    return SystemComparison(*names, truth.shape[0], rounds, tuple(rows))


def _mean(truth: csr_array, sets: csr_array | Sequence[csr_array], metric: str) -> float:
    several, once = [sets] if isinstance(sets, csr_array) else sets, np.ones((truth.shape[0], 1))
    return float(np.mean([statistic(truth, one, metric)(once) for one in several]))


def seed_test(first: Sequence[float], second: Sequence[float], *, paired: bool | None = None) -> SeedTest:
    """Compare a metric over seeds; by default paired where both have equally many values, in the order of the seeds."""
    from scipy import stats  # slow to import

    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if min(len(a), len(b)) < 2:
        raise DataError("a t-test needs at least two seeds of each system")
    paired = len(a) == len(b) if paired is None else paired
    if paired and len(a) != len(b):
        raise DataError(f"a paired t-test needs the same seeds of both systems, not {len(a)} and {len(b)}")
    difference = float(b.mean() - a.mean())
    if np.ptp(b - a if paired else np.concatenate([a - a.mean(), b - b.mean()])) < 1e-12:  # no spread: nothing to divide by
        low = high = difference
        t, p = (0.0, 1.0) if difference == 0 else (math.copysign(math.inf, difference), 0.0)
    else:
        test = stats.ttest_rel(b, a) if paired else stats.ttest_ind(b, a, equal_var=False)
        interval = test.confidence_interval(0.95)
        low, high, t, p = float(interval.low), float(interval.high), float(test.statistic), float(test.pvalue)
    means = float(a.mean()), float(b.mean()), float(a.std(ddof=1)), float(b.std(ddof=1))
    return SeedTest(paired, *means, difference, low, high, t, p)


def rank_test(values: Mapping[str, Sequence[float]], *, alpha: float = 0.05, higher_is_better: bool = True) -> RankTest:
    """Rank several systems over corpora: ``values`` has a metric of every system, corpora in the same order.

    Two systems differ where their mean ranks are further apart than the critical difference (Demšar 2006, section 3.2.2).
    """
    from scipy import stats  # slow to import

    systems = list(values)
    if len({len(row) for row in values.values()}) > 1:
        raise DataError("every system needs as many values as there are corpora")
    table = np.array([list(row) for row in values.values()], dtype=np.float64).T if values else np.zeros((0, 0))
    n, k = table.shape
    if n < 2 or k < 2:
        raise DataError(f"mean ranks need two systems and two corpora or more, not {k} and {n}")
    ranks = stats.rankdata(-table if higher_is_better else table, axis=1)  # ties share the mean rank
    mean, error = ranks.mean(axis=0), math.sqrt(k * (k + 1) / (6 * n))
    chi_square, p = _friedman(ranks)
    spread = stats.studentized_range
    critical = float(spread.ppf(1 - alpha, k, math.inf)) / math.sqrt(2) * error
    pairs = []
    for i in range(k):
        for j in range(i + 1, k):
            apart = float(mean[i] - mean[j])
            own = float(spread.sf(abs(apart) / error * math.sqrt(2), k, math.inf))
            pairs.append(RankPair(systems[i], systems[j], apart, own, abs(apart) > critical))
    rows = sorted((RankRow(name, float(rank)) for name, rank in zip(systems, mean, strict=True)), key=lambda row: row.mean_rank)
    return RankTest(tuple(rows), n, chi_square, p, alpha, critical, tuple(pairs))


def _friedman(ranks: np.ndarray) -> tuple[float, float]:
    """Friedman's statistic, corrected for ties, and its p-value; 0 and 1 if all systems are tied everywhere."""
    from scipy import stats

    n, k = ranks.shape
    ties = sum(float((c**3 - c).sum()) for c in (np.unique(row, return_counts=True)[1] for row in ranks))
    correction = 1 - ties / (n * k * (k * k - 1))
    if correction <= 0:
        return 0.0, 1.0
    square = 12 * n / (k * (k + 1)) * float(((ranks.mean(axis=0) - (k + 1) / 2) ** 2).sum()) / correction
    return square, float(stats.chi2.sf(square, k - 1))
