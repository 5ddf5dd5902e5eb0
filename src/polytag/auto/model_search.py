"""The search: candidates from cheap to dear, each within its share of the time, and the choice among those that finished."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polytag.auto.choice import Choice, Goal, Limits, at_rows, choose, compared_documents
from polytag.auto.clock import Clock, epoch_seconds, machine_speed, vector_seconds
from polytag.auto.facts import Facts, look_at
from polytag.auto.ladder import Candidate, ladder
from polytag.auto.pilot import AGAIN, START, Pilot
from polytag.auto.trial import Trained, Workshop, restored
from polytag.config.settings import declared
from polytag.corpus import Corpus
from polytag.errors import DataError, PolytagError
from polytag.models.mixture.weights import PRECISION
from polytag.models.model import model_class
from polytag.run import Run
from polytag.work.child_processes import ChildProcesses
from polytag.work.workplace import HERE

log = logging.getLogger(__name__)
Rows: TypeAlias = NDArray[np.int64]
_SMALL = 1_000  # documents up to which all are compared out of fold, instead of a hold-out
_HELD = 0.1, 5_000  # share of documents in the hold-out, and their maximum number
_LEAST_PART = 0.5  # of the documents of the first candidate: with fewer, another one would hardly be better
_LEAST_ALLOWED = 2 * START  # seconds, if they are left, where the share of a candidate is less
_CHEAP = 0.35  # of the time that is left: a training that takes less is tried even if it cannot win, as a mixture may gain by it
_AROUND = 0.08  # share of a network's time for what comes before and after its steps: tokens, and scores of held-out documents
_EPOCHS = 0.5  # a network that cannot finish this share of its epochs is not tried: it is far below linear models then
_LENGTHS = (256, 128, 64)
_HOPE = 3.0  # times the time that is left: idle time is spent on vectors up to here, as the measured speed may be too low
_SEEDS = 3  # trainings of a network, if time is left
_NEAR = 0.02  # a network that is further below the best candidate is not trained again
_MARGIN = 1.5  # of the estimated time of vectors: beside other work a machine has shown two thirds of its measured speed
_SEEN_MARGIN = 1.1  # the same once vectors have shown their speed
_CLOSING = 4, 2  # the choice takes this many times one comparison, and thresholds of all documents this many times theirs
_OVER = 1.5  # classifiers over vectors take this many times the first candidate's seconds


@dataclass(frozen=True)
class Wanted:
    """What the user asked for."""

    minutes: float
    optimise: str = "micro_f1"
    seed: int = 0
    closed: bool = False
    limits: Limits = field(default_factory=Limits)


class Tried(NamedTuple):
    """What came of a candidate: its metric on the common hold-out if it finished, its time, and a sentence if it did not."""

    name: str
    value: float | None
    seconds: float
    documents: int
    reason: str = ""

    def sentence(self) -> str:
        """The outcome in words."""
        if self.value is None:
            return f"{self.name}: {self.reason}"
        return f"{self.name} alone {self.value:.4f} in {self.seconds:.0f} s"


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
            lane.later = candidates[at:]
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
    if valid is not None or len(train) <= _SMALL:
        return train, valid
    share = min(_HELD[0], _HELD[1] / len(train))
    first, second = train.split(1 - share, share, seed=seed)
    return first, second


class _Lane:
    """Tries candidates one after another and keeps what finished."""

    def __init__(
        self, facts: Facts, train: Corpus, valid: Corpus | None, wanted: Wanted, clock: Clock, run: Run, shop: Workshop
    ) -> None:
        self.facts, self.train, self.valid, self.wanted, self.clock, self.run, self.shop = (
            facts, train, valid, wanted, clock, run, shop,
        )  # fmt: skip
        whole = train if valid is None else train.concat(valid)
        compared = compared_documents(len(train), len(whole), len(train.labels), wanted.seed)
        self.goal = Goal(train.labels, whole.truth, wanted.optimise, wanted.closed, whole.fewest_labels, compared)
        self.everything: Rows = np.arange(len(train))
        self.finished: list[Trained] = []
        self.tried: list[Tried] = []
        self.pilot = Pilot.of(whole, wanted.seed)
        self.values: dict[tuple[str, bool], tuple[int, float]] = {}  # of a candidate: the compared documents, the metric
        self.speed, self.margin = 0.0, _MARGIN
        self.later: list[Candidate] = []
        self.late: dict[str, tuple[Candidate, float]] = {}  # their share was too short; with the seconds they need

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
        """The metric of a finished candidate; of very many documents, its time says how much the choice will need."""
        rows, key = self.goal.rows(self.finished), (one.candidate.name, one.candidate.whole)
        known = self.values.get(key)
        if known is not None and known[0] == len(rows):
            return known[1]
        started = self.clock.elapsed()
        value = self.goal.value(at_rows(one, rows), rows)
        if self.goal.compared is not None:
            once = self.clock.elapsed() - started
            self.clock.reserve(_CLOSING[0] * once + _CLOSING[1] * once * len(one.rows) / max(1, len(rows)))
        self.values[key] = (len(rows), value)
        return value

    def left_out_for_time(self) -> Candidate | None:
        """A candidate whose share of the time was too short, if it fits into the time that is left; each once. Else None."""
        able = [name for name, (_, needed) in self.late.items() if needed < self.clock.left()]
        if not able:
            return None
        candidate, _ = self.late.pop(able[0])
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
        plans = {"network": self._network, "vectors": self._vectors, "linear": self._linear}
        planned = (self.everything, {}) if candidate.whole else plans[candidate.kind](candidate, allowed)
        if isinstance(planned, str):
            return planned
        rows, options = planned
        limit = self._ended_after(candidate, allowed)
        documents = self.train if len(rows) == len(self.train) else self.train.subset(rows)
        state = self.shop.train(candidate, documents, self.valid, limit, options, self._paced(candidate, options, limit))
        if state is None:
            return f"stopped after {limit:.0f} s"
        if "needed" in state:
            self._slow_down(_length(options), float(state["needed"]))
            return self._trained(candidate)
        if state["rows"] is not None:  # as indices among all documents
            held = np.arange(len(self.train), len(self.train) + (0 if self.valid is None else len(self.valid)))
            state["rows"] = np.concatenate([rows, held])[state["rows"]]
        state = self.run.stage(_stage(candidate), partial(dict, state))
        return restored(candidate, state, self.train.labels) or "too few documents for a hold-out"

    def _network(self, candidate: Candidate, allowed: float) -> tuple[Rows, dict[str, Any]] | str:
        """All documents, for as many minutes as are allowed; or why that is of no use."""
        if self.valid is None:
            return "too few documents"
        allowed = self._limit(allowed)
        if not self._fits(candidate, allowed):
            return f"half of its epochs would take about {_time(self._needed(candidate))}"
        return self.everything, {"minutes": _for_steps(allowed) / 60}

    def _ended_after(self, candidate: Candidate, allowed: float) -> float:
        """Seconds after which a training is ended; it was planned for fewer."""
        if candidate.kind == "vectors":
            return self._limit(allowed)
        return self.clock.left() if candidate.kind == "network" else max(allowed, 0.6 * self.clock.left())

    def _limit(self, allowed: float) -> float:
        """The time that is allowed; all that is left if no later network could use the rest."""
        left = self.clock.left()
        return allowed if any(self._fits(one, left - allowed) for one in self.later if one.kind == "network") else left

    def _needed(self, candidate: Candidate) -> float:
        """Seconds of the epochs that a network needs at least on this machine."""
        epochs = _EPOCHS * float(declared(model_class(candidate.model))["epochs"].default)
        return epochs * epoch_seconds(candidate, self.facts, self._speed())

    def _speed(self) -> float:
        """The speed of this machine, measured once."""
        self.speed = self.speed or machine_speed(self.facts.gpu)
        return self.speed

    def _fits(self, candidate: Candidate, seconds: float) -> bool:
        """Whether a network can be trained at all in this time."""
        return self._needed(candidate) <= _for_steps(seconds)

    def _vectors(self, candidate: Candidate, allowed: float) -> tuple[Rows, dict[str, Any]] | str:
        """All documents, and as many tokens of each as fit into the time. Reading them takes it all, so there is no pilot."""
        for length in _LENGTHS:
            needed = 2 * START + self._classifiers() + self.margin * vector_seconds(self.facts, length, self._speed())
            if needed <= allowed:
                return self.everything, {} if length == _LENGTHS[0] else {"max_length": length}
        if self._limit(allowed) > allowed and needed <= _HOPE * self.clock.left():  # nobody else could use the time
            return self.everything, {"max_length": _LENGTHS[-1]}
        return f"would take about {_time(needed)}"

    def _classifiers(self) -> float:
        """Seconds of the classifiers over an encoder's vectors."""
        return _OVER * next((one.seconds for one in self.tried if one.value is not None), 0.0)

    def _paced(self, candidate: Candidate, options: Mapping[str, Any], limit: float) -> float | None:
        """Seconds after which all vectors have to be there, where texts could be shortened further; else None."""
        if candidate.kind != "vectors" or _length(options) == _LENGTHS[-1]:
            return None
        return limit - START - self._classifiers()

    def _slow_down(self, length: int, needed: float) -> None:
        """Correct the speed of this machine by the seconds that vectors would have taken; other work may have come."""
        log.info("%d tokens of every document would take %s; texts are shortened", length, _time(needed))
        self.speed = self._speed() * vector_seconds(self.facts, length, self._speed()) / needed
        self.margin = _SEEN_MARGIN

    def _linear(self, candidate: Candidate, allowed: float) -> tuple[Rows, dict[str, Any]] | str:
        """The documents that fit into the time, and options; or why the candidate cannot win."""
        if self.pilot is None:
            return self.everything, {}
        begun = self.clock.elapsed()
        state = self.shop.train(candidate, self.pilot.documents, None, allowed / 2)
        if state is None:
            return f"{len(self.pilot.documents):,} documents alone took more than {_time(allowed / 2)}"
        tested = restored(candidate, state, self.train.labels)
        value = 0.0 if tested is None else _own_value(tested, self.goal, self.pilot.documents)
        needed = self._of_all_documents(candidate, float(state["seconds"]), allowed)
        reason = self.pilot.hopeless(value, [one.value for one in self.tried if one.value is not None])
        if reason and not candidate.helper and needed > _CHEAP * self.clock.left():
            return reason
        planned = self._fitted(needed, allowed - (self.clock.elapsed() - begun))
        if isinstance(planned, str) and candidate.share < 1:
            self.late[candidate.name] = candidate, AGAIN * needed
        return planned

    def _of_all_documents(self, candidate: Candidate, first: float, allowed: float) -> float:
        """Seconds of a training with all documents, from those of the pilot; by a larger one too, where that says little."""
        assert self.pilot is not None
        needed, larger = self.pilot.seconds_of_all(first), self.pilot.larger
        if needed <= allowed or larger is None or not self.pilot.says_little(first):
            return needed
        state = self.shop.train(candidate, larger, None, allowed / 2)
        return needed if state is None else self.pilot.seconds_of_all(first, float(state["seconds"]))

    def _fitted(self, needed: float, allowed: float) -> tuple[Rows, dict[str, Any]] | str:
        """As many documents as fit into the time, from the seconds of all; not far fewer than the first candidate had."""
        assert self.pilot is not None
        if needed <= allowed:
            return self.everything, {}
        size = int(allowed / needed * len(self.train))
        first = self.finished[0].documents if self.finished else 0
        if size < max(2 * len(self.pilot.documents), _LEAST_PART * first):
            return f"would take about {_time(needed)}"
        return np.sort(np.random.default_rng(self.wanted.seed).permutation(len(self.train))[:size]), {}


def _length(options: Mapping[str, Any]) -> int:
    """Tokens of a document that become a vector."""
    return int(options.get("max_length", _LENGTHS[0]))


def _for_steps(seconds: float) -> float:
    """Of the seconds of a network, those of its steps; it is ended when all are over, and then nothing of it is left."""
    return (1 - _AROUND) * seconds - 2 * START


def _stage(candidate: Candidate) -> str:
    return f"candidate-{candidate.name.replace(':', '-')}" + "-whole" * candidate.whole


def _own_value(one: Trained, goal: Goal, corpus: Corpus) -> float:
    """The metric of out-of-fold scores of these documents."""
    return replace(goal, truth=corpus.truth).value(one.held, one.rows)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def reasons(found: Found) -> Sequence[str]:
    """The search in sentences, the winner first."""
    winner = found.choice
    singles = [one.sentence() for one in found.tried if one.value is not None]
    others = [one.sentence() for one in found.tried if one.value is None]
    measured = " (mean of P@1, P@3 and P@5)" if found.ranked else ""
    return [f"{winner.name}: {found.value:.4f}{measured}; {'; '.join(singles)}", *others]
