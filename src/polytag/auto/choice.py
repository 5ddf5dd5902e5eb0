"""The choice among trained candidates: a mixture where that is better on the hold-out, else the best one alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.auto.ladder import MANY
from polytag.auto.trial import Trained
from polytag.decision.decision import NOISE, Decision
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.models.mixture.part import scores_candidates_only
from polytag.models.mixture.weights import fit_weights, mix
from polytag.scores import Scores

_MOST = 4  # parts of a mixture
_GAIN = NOISE / 2  # by which a mixture must be better than the best alone; it varies less on new documents
_LEAST_SHARE = 0.08  # a part with a smaller weight is left out
_SEARCHED = 30  # labels per document on which weights are compared if there are very many
_CELLS = 5_000_000


@dataclass(frozen=True)
class Limits:
    """Limits for the winner: documents per second and gigabytes; 0 = none."""

    speed: float = 0.0
    gigabytes: float = 0.0

    def broken_by(self, parts: Sequence[Trained]) -> str:
        """Which limit these parts together break, in words; empty if none."""
        speed = 1 / sum(1 / one.speed for one in parts)
        size = sum(one.gigabytes for one in parts)
        if self.speed and speed < self.speed:
            return f"predicts {speed:,.0f} documents/s, fewer than {self.speed:,.0f}"
        if self.gigabytes and size > self.gigabytes:
            return f"needs {size:.2f} GiB, more than {self.gigabytes:g}"
        return ""


@dataclass(frozen=True)
class Goal:
    """What is compared: the metric, whether sets are closed under the tree, and the least number of labels."""

    labels: LabelSet
    truth: csr_array
    optimise: str
    closed: bool
    least: int

    def value(self, scores: Scores, rows: NDArray[np.int64]) -> float:
        """The metric of held-out scores, each document decided with thresholds from others."""
        decision = Decision("auto", self.optimise, self.least, self.closed)
        report = decision.fit(scores, csr_array(self.truth[rows]), self.labels).report
        return float(report["cross_fitted"].get(report["rule"], report["fitted"]))


@dataclass(frozen=True)
class Choice:
    """The parts of the winner with their weights, its held-out scores, their rows, and its value."""

    parts: list[Trained]
    weights: list[float]
    held: Scores
    rows: NDArray[np.int64]
    value: float

    @property
    def name(self) -> str:
        """The names of the parts."""
        names = [one.candidate.name for one in self.parts]
        return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1] + " mixed"


def noise(documents: int) -> float:
    """Differences of the metric below this are not significant for this number of held-out documents."""
    return max(NOISE, 0.1 / math.sqrt(max(1, documents)))


def common_rows(parts: Sequence[Trained]) -> NDArray[np.int64]:
    """The documents that all held out, sorted."""
    rows = np.sort(parts[0].rows)
    for one in parts[1:]:
        rows = np.intersect1d(rows, one.rows)
    return rows


def at_rows(one: Trained, rows: NDArray[np.int64]) -> Scores:
    """The held-out scores of these documents, in this order."""
    order = np.argsort(one.rows, kind="stable")
    place = order[np.searchsorted(one.rows, rows, sorter=order)]
    return replace(one.held, matrix=csr_array(one.held.matrix[place]))


def choose(trained: Sequence[Trained], goal: Goal, limits: Limits) -> Choice:
    """The winner; of equals the one that was tried first, which is the cheapest."""
    allowed = [one for one in trained if not limits.broken_by([one])]
    if not allowed:
        reasons = "; ".join(f"{one.candidate.name} {limits.broken_by([one])}" for one in trained)
        raise ConfigError(f"no model keeps the limits: {reasons}; loosen --predict-speed or --memory")
    rows = common_rows(allowed)
    values = np.array([goal.value(at_rows(one, rows), rows) for one in allowed])
    best = int(np.flatnonzero(values >= values.max() - NOISE / 2)[0])
    mixture = _mixed([allowed[at] for at in np.argsort(-values, kind="stable").tolist()], goal, limits)
    if mixture is not None and mixture.value > values[best] + _GAIN:
        return mixture
    own = np.sort(allowed[best].rows)
    return Choice([allowed[best]], [1.0], at_rows(allowed[best], own), own, float(values[best]))


def _mixed(ranked: Sequence[Trained], goal: Goal, limits: Limits) -> Choice | None:
    """The best mixture of the best candidates that keeps the limits; None if there is none.

    With few labels, a model that scores some of them only is left out: its held-out scores lack what a mixture would ask it for.
    """
    few = len(goal.labels) <= MANY
    able = [one for one in ranked if not (few and scores_candidates_only(one.part.model))][:_MOST]
    for size in range(len(able), 1, -1):
        for parts in combinations(able, size):
            if not limits.broken_by(parts):
                return _weighed(list(parts), goal)
    return None


def _weighed(parts: list[Trained], goal: Goal) -> Choice | None:
    rows = common_rows(parts)
    truth = csr_array(goal.truth[rows])
    held = [at_rows(one, rows) for one in parts]
    many = len(rows) * len(goal.labels) > _CELLS
    compared = [scores.best(_SEARCHED) if many else scores for scores in held]
    weights = fit_weights(compared, truth, goal.optimise, goal.least).weights
    kept = [at for at, weight in enumerate(weights) if weight >= _LEAST_SHARE]
    if len(kept) < 2:
        return None
    if len(kept) < len(parts):
        return _weighed([parts[at] for at in kept], goal)
    shares = [weights[at] / sum(weights[at] for at in kept) for at in kept]
    scores = mix([held[at] for at in kept], shares)
    return Choice(parts, shares, scores, rows, goal.value(scores, rows))
