"""Bootstrap over documents: the interval of a metric, and the significance of the difference between two systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import ConfigError, DataError
from polytag.metrics.of_rankings import ratio
from polytag.metrics.of_sets import Counts, common, per_document

Floats: TypeAlias = NDArray[np.float64]
Statistic: TypeAlias = Callable[[Floats], Floats]
"""From document weights (documents, rounds) to the metric of every round."""

_BLOCK = 4_000_000  # approximate number of entries of a resampling matrix, and of labels x rounds
_TAILS = (0.025, 0.975)


class Interval(NamedTuple):
    """A value and its 95% confidence interval."""

    value: float
    low: float
    high: float


class Difference(NamedTuple):
    """The difference between two predictions, its 95% confidence interval, and the two-sided p-value."""

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    truth: csr_array,
    a: csr_array | Sequence[csr_array],
    b: csr_array | Sequence[csr_array],
    metric: str = "micro_f1",
    rounds: int = 1000,
    seed: int = 0,
    families: NDArray[np.int64] | None = None,
) -> Difference:
    """Estimate the significance of the difference a minus b of a metric by resampling documents.

    A system may have several predictions, one per training seed; its metric is then the mean over them. ``families`` has the
    number of the family of every document; families are then drawn whole, as their documents are right or wrong together.
    """
    first, second = (_mean_statistic(truth, sets, metric) for sets in (a, b))
    once = np.ones((truth.shape[0], 1))
    blocks = resamples(truth.shape[0], rounds, seed, width=truth.shape[1], families=families)
    differences = np.concatenate([first(weights) - second(weights) for weights in blocks])
    observed = float((first(once) - second(once))[0])
    low, high = np.quantile(differences, _TAILS)
    return Difference(observed, float(low), float(high), two_sided_p(differences))


def bootstrap_interval(
    truth: csr_array, predicted: csr_array, metric: str = "micro_f1", rounds: int = 1000, seed: int = 0,
    families: NDArray[np.int64] | None = None,
) -> Interval:  # fmt: skip
    """A metric with the interval that resampled documents, or families of documents, give it."""
    of = statistic(truth, predicted, metric)
    blocks = resamples(truth.shape[0], rounds, seed, width=truth.shape[1], families=families)
    drawn = np.concatenate([of(weights) for weights in blocks])
    low, high = np.quantile(drawn, _TAILS)
    return Interval(float(of(np.ones((truth.shape[0], 1)))[0]), float(low), float(high))


def two_sided_p(differences: Floats) -> float:
    """The p-value of no difference: twice the smaller share of draws on one side of 0, with one draw added."""
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (rarer + 1) / (len(differences) + 1))


def resamples(n: int, rounds: int, seed: int, *, width: int = 1, families: NDArray[np.int64] | None = None) -> Iterator[Floats]:
    """Blocks of document weights (documents, rounds): how often each document is drawn; ``width`` bounds a block too.

    With ``families`` (documents), whole families are drawn, as many as there are.
    """
    if n == 0 or rounds < 1:
        raise DataError("a bootstrap needs at least one document and one round")
    if families is not None:
        if len(families) != n:
            raise DataError(f"{len(families)} families for {n} documents; give the family of every document")
        numbers = np.unique(families, return_inverse=True)[1].ravel()
        drawn_families = resamples(int(numbers.max()) + 1, rounds, seed, width=max(n, width))
        yield from (weights[numbers] for weights in drawn_families)
        return
    generator = np.random.default_rng(seed)
    block = max(1, _BLOCK // max(n, width))
    for start in range(0, rounds, block):
        size = min(block, rounds - start)
        drawn = generator.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).T.astype(np.float64)


def f1_interval(counts: Counts, documents: int, rounds: int = 1000, seed: int = 0) -> tuple[Floats, Floats]:
    """The 95% interval of every label's F1 over resampled documents: both bounds.

    A label's F1 depends on its numbers of true positives, false positives and false negatives alone. In a sample of documents
    these are multinomial, so the sample itself is not needed. Labels with equal numbers share one draw.
    """
    cells = np.stack([counts.hits, counts.predicted - counts.hits, counts.true - counts.hits], axis=1)
    kinds, which = np.unique(cells, axis=0, return_inverse=True)
    generator, bounds = np.random.default_rng(seed), np.zeros((len(kinds), 2))
    some = np.flatnonzero(kinds[:, 0] > 0)  # without a true positive F1 is 0 in every sample
    step = max(1, _BLOCK // (4 * rounds))
    for start in range(0, len(some), step):
        chosen = some[start : start + step]
        share = np.concatenate([kinds[chosen], documents - kinds[chosen].sum(axis=1, keepdims=True)], axis=1) / max(documents, 1)
        drawn = generator.multinomial(documents, share[:, None, :], size=(len(chosen), rounds))
        hits, wrong, missed = (drawn[:, :, at] for at in range(3))
        bounds[chosen] = np.quantile(ratio(2 * hits, 2 * hits + wrong + missed), _TAILS, axis=1).T
    low, high = bounds[which.ravel()].T
    return low, high


# -- metrics as functions of document weights --------------------------------------------------------------------------


def _mean_statistic(truth: csr_array, sets: csr_array | Sequence[csr_array], metric: str) -> Statistic:
    several = [sets] if isinstance(sets, csr_array) else list(sets)
    if not several:
        raise DataError("a system has no prediction; give at least one")
    each = [statistic(truth, one, metric) for one in several]
    return lambda weights: np.mean([of(weights) for of in each], axis=0)


def statistic(truth: csr_array, predicted: csr_array, metric: str) -> Statistic:
    """The metric as a function of document weights; all but macro-F1 are a ratio of two sums over documents."""
    if metric == "macro_f1":
        return _macro_statistic(truth, predicted)
    d = per_document(truth, predicted)
    one = np.ones(len(d.hits))
    sums = {
        "micro_f1": (2 * d.hits, d.predicted + d.true),
        "micro_precision": (d.hits, d.predicted),
        "micro_recall": (d.hits, d.true),
        "samples_f1": (d.f1, one),
        "subset_accuracy": (d.exact, one),
        "hamming_loss": (d.predicted + d.true - 2 * d.hits, one * max(truth.shape[1], 1)),
    }
    if metric not in sums:
        raise ConfigError(f"there is no bootstrap for {metric!r}; use one of {', '.join([*sums, 'macro_f1'])}")
    above, below = sums[metric]
    return lambda weights: ratio(above @ weights, below @ weights)


def _macro_statistic(truth: csr_array, predicted: csr_array) -> Statistic:
    some = np.flatnonzero(np.bincount(truth.indices, minlength=truth.shape[1]))  # F1 counts only where a label occurs
    parts = (common(truth, predicted), predicted, truth)
    hits, guessed, true = (csr_array(m[:, some].T) for m in parts)  # (labels, documents)

    def macro(weights: Floats) -> Floats:
        occurring = true @ weights  # (labels, rounds)
        f1 = ratio(2 * (hits @ weights), guessed @ weights + occurring)
        return ratio(f1.sum(axis=0), (occurring > 0).sum(axis=0))

    return macro
