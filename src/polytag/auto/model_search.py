"""The search: candidates from cheap to dear, each within its share of the time, and the choice among those that finished."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from polytag.auto.choice import Choice, Goal, Limits, at_rows, choose, compared_documents
from polytag.auto.clock import Clock
from polytag.auto.facts import Facts, look_at
from polytag.auto.ladder import SMALL, Candidate, ladder
from polytag.auto.pilot import AGAIN, START
from polytag.auto.plans import Plans
from polytag.auto.trial import Trained, Tried, Workshop, restored
from polytag.corpus import Corpus
from polytag.errors import DataError, PolytagError
from polytag.models.mixture.weights import PRECISION
from polytag.run import Run
from polytag.work.child_processes import ChildProcesses
from polytag.work.workplace import HERE

log = logging.getLogger(__name__)
_HELD = 0.1, 5_000  # share of documents in the hold-out, and their maximum number
_LEAST_ALLOWED = 2 * START  # seconds, if they are left, where the share of a candidate is less
_SEEDS = 3  # trainings of a network, if time is left
_NEAR = 0.02  # a network that is further below the best candidate is not trained again
_CLOSING = 6, 2  # the choice takes this many times one comparison, and thresholds of all documents this many times theirs


@dataclass(frozen=True)
class Wanted:
    """What the user asked for."""

    minutes: float
    optimise: str = "micro_f1"
    seed: int = 0
    closed: bool = False
    limits: Limits = field(default_factory=Limits)


class Found(NamedTuple):
    """The winner, its metric on the documents of all candidates, these, what it was trained on, and the seconds of the search.

    ``ranked`` says that the metric is the mean of P@1, P@3 and P@5.
    """

    choice: Choice
    value: float
    ranked: bool
    tried: list[Tried]
    train: Corpus
    valid: Corpus | None
    seconds: float


def search(train: Corpus, valid: Corpus | None, wanted: Wanted, run: Run, clock: Clock | None = None) -> Found:
    """Try candidates until the time is over, and choose."""
    clock = clock or Clock(60 * wanted.minutes)
    train.require_trainable()
    facts = look_at(train if valid is None else train.concat(valid))
    log.info("%s", facts.sentence())
    run.log("facts", vars(facts))
    train, valid = _parts(train, valid, wanted.seed)
    with nullcontext(run.workplace) if run.workplace is not HERE else ChildProcesses(1) as place:
        shop = Workshop(place, {"seed": wanted.seed, "optimise": wanted.optimise})
        lane = _Lane(facts, train, valid, wanted, clock, run, shop)
        candidates = ladder(facts)
        for at, candidate in enumerate(candidates, start=1):
            lane.plans.later = candidates[at:]
            lane.try_out(candidate)
        for again in (lane.left_out_for_time, lane.with_all_documents, lane.another_seed):
            while (another := again()) is not None and lane.try_out(another):
                pass
    if not lane.finished:
        reasons = "; ".join(one.sentence() for one in lane.tried)
        raise DataError(f"no model was trained: {reasons}; give more documents, or more --minutes")
    choice = choose(lane.finished, lane.goal, wanted.limits)
    value = choice.judged_at(lane.goal.rows(lane.finished), lane.goal).value
    return Found(choice, value, lane.goal.metric == PRECISION, lane.compared(), train, valid, clock.elapsed())


def _parts(train: Corpus, valid: Corpus | None, seed: int) -> tuple[Corpus, Corpus | None]:
    """Training documents and the common hold-out; none for few documents, which are compared out of fold."""
    if valid is not None or len(train) <= SMALL:
        return train, valid
    share = min(_HELD[0], _HELD[1] / len(train))
    first, second = train.split(1 - share, share, seed=seed)
    return first, second


class _Lane:
    """Tries candidates one after another and keeps what finished."""

    def __init__(
        self, facts: Facts, train: Corpus, valid: Corpus | None, wanted: Wanted, clock: Clock, run: Run, shop: Workshop
    ) -> None:
        self.train, self.valid, self.wanted, self.clock, self.run, self.shop = train, valid, wanted, clock, run, shop
        whole = train if valid is None else train.concat(valid)
        compared = compared_documents(len(train), len(whole), len(train.labels), wanted.seed)
        self.goal = Goal(train.labels, whole.truth, wanted.optimise, wanted.closed, whole.fewest_labels, compared)
        self.finished: list[Trained] = []
        self.tried: list[Tried] = []
        self.values: dict[tuple[str, bool], tuple[int, float]] = {}  # of a candidate: the compared documents, the metric
        self.pace = float("inf")  # seconds of a comparison per document; the first one may include compilation
        self.plans = Plans(facts, (train, valid), self.goal, clock, shop, wanted.seed, self.tried)

    # -- one candidate ---------------------------------------------------------------------------------------------

    def try_out(self, candidate: Candidate) -> bool:
        """Try a candidate, and note what came of it; whether it finished."""
        started = self.clock.elapsed()
        try:
            outcome = self._trained(candidate)
        except PolytagError as error:
            outcome = str(error)
        seconds = self.clock.elapsed() - started
        if isinstance(outcome, str):
            self._note(Tried(candidate.name, None, seconds, 0, outcome))
            return False
        names = [one.candidate.name for one in self.finished]
        at = names.index(candidate.name) if candidate.whole else len(names)
        self.finished[at : at + 1] = [outcome]
        self._note(Tried(candidate.name, self._value(outcome), outcome.seconds, outcome.documents))
        return True

    def _value(self, one: Trained) -> float:
        """The metric of a finished candidate; its time says how much the choice will need."""
        rows, key = self.goal.rows(self.finished), (one.candidate.name, one.candidate.whole)
        known = self.values.get(key)
        if known is not None and known[0] == len(rows):
            return known[1]
        started = self.clock.elapsed()
        value = self.goal.value(at_rows(one, rows), rows)
        each = (self.clock.elapsed() - started) / max(1, len(rows))
        self.pace = min(self.pace, each)
        self.clock.reserve(self.pace * (_CLOSING[0] * len(rows) + _CLOSING[1] * len(one.rows)))
        self.values[key] = (len(rows), value)
        return value

    def left_out_for_time(self) -> Candidate | None:
        """A candidate whose share of the time was too short, if it fits into the time that is left; each once. Else None."""
        able = [name for name, (_, needed) in self.plans.late.items() if needed < self.clock.left()]
        if not able:
            return None
        candidate, _ = self.plans.late.pop(able[0])
        return replace(candidate, share=1.0)

    def with_all_documents(self) -> Candidate | None:
        """The best candidate that was trained on a part of the documents, if all fit into the time that is left; else None.

        A pilot of few documents says little about the time of very many, so that the part may have been too small.
        """
        able = [
            one
            for one in self.finished
            if one.candidate.kind == "linear"
            and one.documents < len(self.train)
            and START + AGAIN * one.seconds * len(self.train) / one.documents < self.clock.left()
        ]
        best = max(able, key=self._value, default=None)
        return None if best is None else replace(best.candidate, share=1.0, whole=True)

    def another_seed(self) -> Candidate | None:
        """A network that is among the best, to be trained again with another seed: the mean of several varies less than one.

        The one with the fewest trainings, then the best; None if none would end in time.
        """
        first = [one for one in self.finished if not one.candidate.of]
        seeds = Counter(one.candidate.of or one.candidate.name for one in self.finished)
        values = {one.name: one.value or 0.0 for one in self.tried}
        able = [
            one.candidate
            for one in first
            if one.candidate.kind == "network"
            and seeds[one.candidate.name] < _SEEDS
            and values[one.candidate.name] > max(values.values()) - _NEAR
            and AGAIN * one.seconds + START < self.clock.left()
        ]
        if not able:
            return None
        best = min(able, key=lambda one: (seeds[one.name], -values[one.name]))
        number = seeds[best.name]
        options = {**best.options, "seed": self.wanted.seed + number}
        return replace(best, name=f"{best.name}:{number + 1}", share=1.0, options=options, of=best.name)

    def compared(self) -> list[Tried]:
        """What came of all candidates, those that finished evaluated on the same documents."""
        values = {one.candidate.name: self._value(one) for one in self.finished}
        return [one._replace(value=values.get(one.name)) for one in self.tried]

    def _note(self, tried: Tried) -> None:
        """Note an outcome; a second one of the same name replaces the first, unless it is a failure."""
        names = [one.name for one in self.tried]
        at = names.index(tried.name) if tried.name in names else len(names)
        if tried.value is not None or at == len(names):
            self.tried[at : at + 1] = [tried]
        self.run.log("candidate", {**tried._asdict(), "spent": self.clock.elapsed()})
        log.info("%s", tried.sentence())

    def _trained(self, candidate: Candidate) -> Trained | str:
        """The trained candidate, or why there is none."""
        known = self.run.load_stage(_stage(candidate))
        if known is not None:
            return restored(candidate, known, self.train.labels) or "too few documents for a hold-out"
        left = self.clock.left()
        allowed = max(candidate.share * left, min(left, _LEAST_ALLOWED))
        if allowed <= START:
            return "no time was left"
        plan = self.plans.of(candidate, allowed)
        if isinstance(plan, str):
            return plan
        documents = self.train if len(plan.rows) == len(self.train) else self.train.subset(plan.rows)
        state = self.shop.train(candidate, documents, self.valid, plan.seconds, plan.options, plan.paced)
        if state is None:
            return f"stopped after {plan.seconds:.0f} s"
        if "needed" in state:
            self.plans.slow_down(plan, float(state["needed"]))
            return self._trained(candidate)
        if state["rows"] is not None:  # as indices among all documents
            held = np.arange(len(self.train), len(self.train) + (0 if self.valid is None else len(self.valid)))
            state["rows"] = np.concatenate([plan.rows, held])[state["rows"]]
        state = self.run.stage(_stage(candidate), partial(dict, state))
        return restored(candidate, state, self.train.labels) or "too few documents for a hold-out"


def _stage(candidate: Candidate) -> str:
    return f"candidate-{candidate.name.replace(':', '-')}" + "-whole" * candidate.whole


def reasons(found: Found) -> Sequence[str]:
    """The search in sentences, the winner first."""
    winner = found.choice
    singles = [one.sentence() for one in found.tried if one.value is not None]
    others = [one.sentence() for one in found.tried if one.value is None]
    measured = " (mean of P@1, P@3 and P@5)" if found.ranked else ""
    return [f"{winner.name}: {found.value:.4f}{measured}; {'; '.join(singles)}", *others]
