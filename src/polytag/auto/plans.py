"""How many documents, tokens or steps of a candidate fit into its time; or why it is not worth trying."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polytag.auto.choice import Goal
from polytag.auto.clock import Clock, epoch_seconds, vector_seconds
from polytag.auto.facts import Facts
from polytag.auto.ladder import Candidate
from polytag.auto.machine import Speeds, measured_speeds
from polytag.auto.pilot import AGAIN, START, Pilot
from polytag.auto.trial import Trained, Tried, Workshop, restored
from polytag.config.settings import declared
from polytag.corpus import Corpus
from polytag.models.model import model_class

log = logging.getLogger(__name__)
Rows: TypeAlias = NDArray[np.int64]
Part: TypeAlias = tuple[Rows, Mapping[str, Any]]  # the documents of a training, and its further options
_LEAST_PART = 0.5  # of the documents of the first candidate: with fewer, another one would hardly be better
_CHEAP = 0.35  # of the time that is left: a training that takes less is tried even if it cannot win, as a mixture may gain by it
_AROUND = 0.08  # share of a network's time for what comes before and after its steps: tokens, and scores of held-out documents
_EPOCHS = 0.5  # a network that cannot finish this share of its epochs is not tried: it is far below linear models then
_LENGTHS = (256, 128, 64, 32)
_MARGIN = 1.5  # of the estimated time of vectors: beside other work a machine has shown two thirds of its measured speed
_HOPE = 3.0  # times the time that is left: vectors are tried in idle time up to here, as the measured speed may be too low
_SEEN = 1.1, 1.0  # margin and hope once vectors have shown their speed
_OVER = 1.5  # classifiers over vectors, and each tree over them, take this many times the first candidate's seconds


class Plan(NamedTuple):
    """The documents of a training, its further options, and the seconds after which it is ended.

    ``paced`` are the seconds within which its long loops must be over; None = nothing is known about them.
    """

    rows: Rows
    options: Mapping[str, Any]
    seconds: float
    paced: float | None


class Plans:
    """Fits candidates to the time, by the speed of the machine, by pilots, and by what came of earlier candidates."""

    def __init__(
        self, facts: Facts, corpora: tuple[Corpus, Corpus | None], goal: Goal, clock: Clock, shop: Workshop, seed: int,
        tried: Sequence[Tried],
    ) -> None:  # fmt: skip
        """``corpora`` are the documents of training and validation; ``tried`` grows with the search."""
        self.facts, self.goal, self.clock, self.shop, self.seed, self.tried = facts, goal, clock, shop, seed, tried
        train, self.valid = corpora
        self.everything: Rows = np.arange(len(train))
        self.pilot = Pilot.of(train if self.valid is None else train.concat(self.valid), seed)
        self.speeds: Speeds | None = None
        self.margin, self.hope = _MARGIN, _HOPE
        self.later: list[Candidate] = []
        self.late: dict[str, tuple[Candidate, float]] = {}  # their share was too short; with the seconds they need

    def of(self, candidate: Candidate, allowed: float) -> Plan | str:
        """The plan of a candidate that may take some seconds; or a reason."""
        plans = {"network": self.network, "vectors": self.vectors, "linear": self.linear}
        found = (self.everything, {}) if candidate.whole else plans[candidate.kind](candidate, allowed)
        if isinstance(found, str):
            return found
        rows, options = found
        if candidate.kind != "vectors":
            left = self.clock.left()
            return Plan(rows, options, left if candidate.kind == "network" else max(allowed, 0.6 * left), None)
        seconds = self.limit(allowed)
        return Plan(rows, options, seconds, seconds - START - self._classifiers(candidate))

    def limit(self, allowed: float) -> float:
        """The time that is allowed; all that is left if no later network could use the rest."""
        left = self.clock.left()
        return allowed if any(self.fits(one, left - allowed) for one in self.later if one.kind == "network") else left

    # -- networks --------------------------------------------------------------------------------------------------

    def network(self, candidate: Candidate, allowed: float) -> Part | str:
        """All documents, for as many minutes as are allowed; or why that is of no use."""
        if self.valid is None:
            return "too few documents"
        allowed = self.limit(allowed)
        if not self.fits(candidate, allowed):
            return f"half of its epochs would take about {_time(self._needed(candidate))}"
        return self.everything, {"minutes": _for_steps(allowed) / 60}

    def fits(self, candidate: Candidate, seconds: float) -> bool:
        """Whether a network can be trained at all in this time."""
        return self._needed(candidate) <= _for_steps(seconds)

    def _needed(self, candidate: Candidate) -> float:
        """Seconds of the epochs that a network needs at least on this machine."""
        epochs = _EPOCHS * float(declared(model_class(candidate.model))["epochs"].default)
        return epochs * epoch_seconds(candidate, self.facts, self._speeds())

    def _speeds(self) -> Speeds:
        """The speeds of this machine, measured once."""
        self.speeds = self.speeds or measured_speeds(self.facts.gpu)
        return self.speeds

    # -- an encoder's vectors --------------------------------------------------------------------------------------

    def vectors(self, candidate: Candidate, allowed: float) -> Part | str:
        """All documents, and as many tokens of each as fit into the time. Reading them takes it all, so there is no pilot."""
        most, left = self.limit(allowed), self.clock.left()
        for length in _LENGTHS:
            encoding = self.margin * vector_seconds(self.facts, length, self._speeds())
            needed = 2 * START + self._classifiers(candidate) + encoding
            if needed <= most:
                return self.everything, {} if length == _LENGTHS[0] else {"max_length": length}
        if most > allowed and needed <= self.hope * left:  # nobody else could use the time
            return self.everything, {"max_length": _LENGTHS[-1]}
        return f"would take about {_time(needed)}"

    def slow_down(self, plan: Plan, needed: float) -> None:
        """Correct the speed of this machine by the seconds that vectors would have taken; other work may have come."""
        length = _length(plan.options)
        log.info("%d tokens of every document would take %s, which is too long", length, _time(needed))
        self.speeds = self._speeds().slower(needed / vector_seconds(self.facts, length, self._speeds()))
        self.margin, self.hope = _SEEN

    def _classifiers(self, candidate: Candidate) -> float:
        """Seconds of the classifiers over an encoder's vectors."""
        first = next((one.seconds for one in self.tried if one.value is not None), 0.0)
        return _OVER * int(candidate.options.get("trees", 1)) * first

    # -- linear models ---------------------------------------------------------------------------------------------

    def linear(self, candidate: Candidate, allowed: float) -> Part | str:
        """The documents that fit into the time, and options; or why the candidate cannot win."""
        if self.pilot is None:
            return self.everything, {}
        begun = self.clock.elapsed()
        state = self.shop.train(candidate, self.pilot.documents, None, allowed / 2)
        if state is None:
            return f"{len(self.pilot.documents):,} documents alone took more than {_time(allowed / 2)}"
        tested = restored(candidate, state, self.goal.labels)
        value = 0.0 if tested is None else _own_value(tested, self.goal, self.pilot.documents)
        needed = self.seconds_of_all(candidate, float(state["seconds"]), allowed)
        reason = self.pilot.hopeless(value, [one.value for one in self.tried if one.value is not None])
        if reason and not candidate.helper and needed > _CHEAP * self.clock.left():
            return reason
        planned = self.fitted(needed, allowed - (self.clock.elapsed() - begun))
        if isinstance(planned, str) and candidate.share < 1:
            self.late[candidate.name] = candidate, AGAIN * needed
        return planned

    def seconds_of_all(self, candidate: Candidate, first: float, allowed: float) -> float:
        """Seconds of a training with all documents, from those of the pilot; by a larger one too, where that says little."""
        assert self.pilot is not None
        needed, larger = self.pilot.seconds_of_all(first), self.pilot.larger
        if needed <= allowed or larger is None or not self.pilot.says_little(first):
            return needed
        state = self.shop.train(candidate, larger, None, allowed / 2)
        return needed if state is None else self.pilot.seconds_of_all(first, float(state["seconds"]))

    def fitted(self, needed: float, allowed: float) -> Part | str:
        """As many documents as fit into the time, from the seconds of all; not far fewer than the first candidate had."""
        assert self.pilot is not None
        if needed <= allowed:
            return self.everything, {}
        size = int(allowed / needed * len(self.everything))
        first = next((one.documents for one in self.tried if one.value is not None), 0)
        if size < max(2 * len(self.pilot.documents), _LEAST_PART * first):
            return f"would take about {_time(needed)}"
        return np.sort(np.random.default_rng(self.seed).permutation(len(self.everything))[:size]), {}


def _length(options: Mapping[str, Any]) -> int:
    """Tokens of a document that become a vector."""
    return int(options.get("max_length", _LENGTHS[0]))


def _for_steps(seconds: float) -> float:
    """Of the seconds of a network, those of its steps; it is ended when all are over, and then nothing of it is left."""
    return (1 - _AROUND) * seconds - 2 * START


def _own_value(one: Trained, goal: Goal, corpus: Corpus) -> float:
    """The metric of out-of-fold scores of these documents."""
    return replace(goal, truth=corpus.truth).value(one.held, one.rows)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
