"""The choice among trained candidates: a mixture where that is better on the hold-out, else the best one alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.auto.ladder import MANY
from polytag.auto.lead import Caution, first_of_best, standard_error
from polytag.auto.trial import Trained
from polytag.decision.decision import NOISE, Decision
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.metrics.of_rankings import precisions
from polytag.models.mixture.part import scores_candidates_only
from polytag.models.mixture.weights import PRECISION, even_weights, fit_weights, mix
from polytag.scores import Scores

_MOST = 4  # parts of a mixture
_GAIN = NOISE / 2  # by which a mixture must be better than the best alone; it varies less on new documents
_LEAST_SHARE = 0.08  # a part with a smaller weight is left out
_SEARCHED = 30  # labels per document on which weights are compared if there are very many
_CELLS = 1_000_000  # documents x labels up to which weights are compared on all labels
_WEIGHED = 10_000  # documents on which weights are compared, hundreds of times; more would hardly change one
_COMPARED = 5_000, 50_000  # least and largest number of documents on which candidates are compared
_JUDGED = 20_000_000  # of these documents x labels; with more than MANY labels, few of each document are kept
_CAUTION = Caution()
_DEFAULT = "micro_f1"  # metric


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
            return f"needs {size:.2g} GiB, more than {self.gigabytes:g}"
        return ""


class Judged(NamedTuple):
    """The metric of held-out scores, and the label sets that have it; or the precision of every document."""

    value: float
    sets: csr_array | None
    each: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Goal:
    """What is compared: the metric, whether sets are closed under the tree, the least number of labels, and the documents.

    With very many labels, rankings are compared, by the mean of P@1, P@3 and P@5, unless a metric is asked for. ``compared`` are
    the documents on which candidates are compared, sorted; None = all that they held out.
    """

    labels: LabelSet
    truth: csr_array
    optimise: str
    closed: bool
    least: int
    compared: NDArray[np.int64] | None = None

    @property
    def metric(self) -> str:
        """The metric, or ``PRECISION``."""
        return PRECISION if len(self.labels) > MANY and self.optimise == _DEFAULT else self.optimise

    def rows(self, parts: Sequence[Trained]) -> NDArray[np.int64]:
        """The documents on which these candidates are compared: all of them held them out."""
        rows = common_rows(parts)
        return rows if self.compared is None else np.intersect1d(rows, self.compared)

    def value(self, scores: Scores, rows: NDArray[np.int64]) -> float:
        """The metric of held-out scores, each document decided with thresholds from others."""
        return self.judge(scores, rows).value

    def judge(self, scores: Scores, rows: NDArray[np.int64]) -> Judged:
        """The metric, and the label sets that have it."""
        truth = csr_array(self.truth[rows])
        if self.metric == PRECISION:
            each = precisions(truth, scores)
            return Judged(float(each.mean()), None, each)
        decision = Decision("auto", self.optimise, self.least, self.closed).fit(scores, truth, self.labels)
        value = decision.report["cross_fitted"].get(decision.report["rule"], decision.report["fitted"])
        return Judged(float(value), decision.held_out_sets(scores, truth, self.labels))

    def error(self, one: Judged, other: Judged, rows: NDArray[np.int64]) -> float:
        """The standard error of the difference of two values."""
        if one.sets is None or other.sets is None:
            assert one.each is not None and other.each is not None
            return float((one.each - other.each).std() / math.sqrt(max(1, len(one.each))))
        return standard_error(csr_array(self.truth[rows]), one.sets, other.sets, self.optimise)


class Compared(NamedTuple):
    """The documents on which held-out scores were judged, and how."""

    rows: NDArray[np.int64]
    judged: Judged


@dataclass(frozen=True)
class Choice:
    """The parts of the winner with their weights, its held-out scores, their rows, and how it was judged on some of these."""

    parts: list[Trained]
    weights: list[float]
    held: Scores
    rows: NDArray[np.int64]
    compared: NDArray[np.int64]
    judged: Judged

    @property
    def value(self) -> float:
        """The metric of the held-out scores."""
        return self.judged.value

    def judged_at(self, rows: NDArray[np.int64], goal: Goal) -> Judged:
        """The metric on some of its documents."""
        if len(rows) == len(self.compared):
            return self.judged
        return goal.judge(_some(self.held, self.rows, rows), rows)

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


def compared_documents(train: int, whole: int, labels: int, seed: int) -> NDArray[np.int64] | None:
    """The documents on which candidates are compared, those after the training documents first; None = all, if not too many."""
    most = _COMPARED[1] if labels > MANY else int(np.clip(_JUDGED // labels, *_COMPARED))
    if whole <= most:
        return None
    rng = np.random.default_rng(seed)
    found: NDArray[np.int64] = np.concatenate([train + rng.permutation(whole - train), rng.permutation(train)])[:most]
    return np.sort(found)


def at_rows(one: Trained, rows: NDArray[np.int64]) -> Scores:
    """The held-out scores of these documents, in this order."""
    order = np.argsort(one.rows, kind="stable")
    place = order[np.searchsorted(one.rows, rows, sorter=order)]
    return replace(one.held, matrix=csr_array(one.held.matrix[place]))


def _some(scores: Scores, rows: NDArray[np.int64], wanted: NDArray[np.int64]) -> Scores:
    """The scores of some of these documents; both sorted."""
    if len(wanted) == len(rows):
        return scores
    return replace(scores, matrix=csr_array(scores.matrix[np.searchsorted(rows, wanted)]))


def choose(trained: Sequence[Trained], goal: Goal, limits: Limits, caution: Caution = _CAUTION) -> Choice:
    """The winner; of equals the one that was tried first, which is the cheapest."""
    allowed = [one for one in trained if not limits.broken_by([one])]
    if not allowed:
        reasons = "; ".join(f"{one.candidate.name} {limits.broken_by([one])}" for one in trained)
        raise ConfigError(f"no model keeps the limits: {reasons}; loosen --predict-speed or --memory")
    allowed = teams(allowed, limits)
    rows = goal.rows(allowed)
    judged = [goal.judge(at_rows(one, rows), rows) for one in allowed]
    values = np.array([one.value for one in judged])
    best = first_of_best(values)
    at = _lead(allowed)
    gap = values[best] - values[at]
    if gap > 0 and gap > caution.clear * goal.error(judged[best], judged[at], rows):
        at = best
    order = [at, *(other for other in np.argsort(-values, kind="stable").tolist() if other != at)]
    mixture = _mixed([allowed[other] for other in order], goal, limits, caution)
    if mixture is not None and _better(mixture, allowed[at], goal, caution.sure):
        return mixture
    own = np.sort(allowed[at].rows)
    return _of_members([allowed[at]], [1.0], at_rows(allowed[at], own), own, Compared(rows, judged[at]))


def teams(trained: Sequence[Trained], limits: Limits) -> list[Trained]:
    """The candidates, with all seeds of a network as one whose scores are their mean; as many of them as keep the limits."""
    found: dict[str, list[Trained]] = {}
    for one in trained:
        seeds = found.setdefault(one.candidate.of or one.candidate.name, [])
        if not limits.broken_by([*seeds, one]):
            seeds.append(one)
    return [_team(seeds) for seeds in found.values()]


def _team(seeds: list[Trained]) -> Trained:
    if len(seeds) == 1:
        return seeds[0]
    rows = common_rows(seeds)
    held = mix([at_rows(one, rows) for one in seeds], even_weights(len(seeds)))
    speed, size = 1 / sum(1 / one.speed for one in seeds), sum(one.gigabytes for one in seeds)
    return replace(seeds[0], held=held, rows=rows, speed=speed, gigabytes=size, seeds=tuple(seeds))


def _of_members(
    parts: Sequence[Trained], weights: Sequence[float], held: Scores, rows: NDArray[np.int64], compared: Compared
) -> Choice:
    """The choice of these parts, each seed of a network as a part of its own."""
    members = [(one, weight / max(1, len(part.seeds))) for part, weight in zip(parts, weights, strict=True)
               for one in part.seeds or (part,)]  # fmt: skip
    return Choice([one for one, _ in members], [weight for _, weight in members], held, rows, *compared)


def _lead(allowed: Sequence[Trained]) -> int:
    """The candidate that others have to beat clearly: that over an encoder's vectors, else the first, one separator per label.

    On most corpora these are best, and a small hold-out cannot show it (docs/auto.md).
    """
    return next((at for at, one in enumerate(allowed) if one.candidate.kind == "vectors"), 0)


def _better(mixture: Choice, lead: Trained, goal: Goal, sure: float) -> bool:
    """Whether a mixture is better than the lead, on the same documents; a lead that is no part may lack some of them."""
    rows = np.intersect1d(mixture.compared, lead.rows)
    judged, alone = mixture.judged_at(rows, goal), goal.judge(at_rows(lead, rows), rows)
    gain = judged.value - alone.value - _GAIN
    return gain > 0 and gain > sure * goal.error(judged, alone, rows)


def _mixed(ranked: Sequence[Trained], goal: Goal, limits: Limits, caution: Caution) -> Choice | None:
    """The best mixture of the best candidates and helpers that keeps the limits; None if there is none. The lead comes first.

    With few labels, a model that scores some of them only is left out: its held-out scores lack what a mixture would ask it for.
    """
    few = len(goal.labels) <= MANY
    able = [one for one in ranked if not (few and scores_candidates_only(one.part.model))]
    helpers = [one for one in able[1:] if one.candidate.helper]
    others = [one for at, one in enumerate(able) if at == 0 or not one.candidate.helper]
    able = others[: _MOST - len(helpers)] + helpers
    for size in range(len(able), 1, -1):
        for parts in combinations(able, size):
            if not limits.broken_by(parts):
                return _weighed(list(parts), goal, caution)
    return None


def _weighed(parts: list[Trained], goal: Goal, caution: Caution) -> Choice | None:
    """The mixture of these parts; the first one stays, because weights are shrunk towards it."""
    rows, every = goal.rows(parts), common_rows(parts)
    few = rows if len(rows) <= _WEIGHED else rows[np.linspace(0, len(rows) - 1, _WEIGHED).astype(np.int64)]
    whole = [at_rows(one, every) for one in parts]
    searched = [_some(scores, every, few) for scores in whole]
    if len(few) * len(goal.labels) > _CELLS:
        searched = [scores.best(_SEARCHED) for scores in searched]
    weights = fit_weights(searched, csr_array(goal.truth[few]), goal.metric, goal.least).weights
    kept = [at for at, weight in enumerate(weights) if at == 0 or weight >= _LEAST_SHARE]
    if len(kept) < 2:
        return None
    if len(kept) < len(parts):
        return _weighed([parts[at] for at in kept], goal, caution)
    shares = caution.shrunk(weights, len(rows))
    mixed = mix(whole, shares)
    return _of_members(parts, shares, mixed, every, Compared(rows, goal.judge(_some(mixed, every, rows), rows)))
