"""One candidate, trained in a process of its own that is ended when its time is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import TimeoutError as TimeOver
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polytag.auto.ladder import Candidate
from polytag.auto.pace import TimedRun, TooSlow
from polytag.corpus import Corpus
from polytag.labels import LabelSet
from polytag.models.mixture.part import Part
from polytag.models.mixture.sent_documents import SentDocuments, corpora_of
from polytag.models.model import HeldOut, State, model_class
from polytag.run import Run
from polytag.scores import Scores
from polytag.work.workplace import Workplace

_TIMED = 200  # documents that are scored to measure the speed
_SCORED = 100  # held-out labels per document that are kept if there are very many
_FULL = 20_000_000  # held-out documents x labels up to which all scores are kept


@dataclass(frozen=True)
class Trained:
    """A trained candidate: the member of a mixture, its held-out probabilities, and what it costs.

    ``rows`` are the indices of the held-out documents in the concatenation of training and validation documents. With ``seeds``
    it is several trainings of a network, and all else is that of their mean.
    """

    candidate: Candidate
    part: Part
    held: Scores
    rows: NDArray[np.int64]
    documents: int
    seconds: float
    speed: float
    gigabytes: float
    seeds: tuple[Trained, ...] = ()


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


class Workshop:
    """Trains candidates in other processes, on corpora that are sent once."""

    def __init__(self, place: Workplace, shared: Mapping[str, Any]) -> None:
        """``shared`` are options of all models, such as the seed."""
        self.place, self.shared = place, dict(shared)
        self._sent = SentDocuments(place)

    def train(
        self, candidate: Candidate, train: Corpus, valid: Corpus | None, seconds: float,
        options: Mapping[str, Any] | None = None, paced: float | None = None,
    ) -> State | None:  # fmt: skip
        """Train a candidate; None if it is not finished in time.

        With ``paced``, a long loop that would not be over within these seconds is ended early: the state is then ``{"needed":
        SECONDS}``, what that loop would have taken.
        """
        kind = model_class(candidate.model)
        chosen = kind.check_options({**self.shared, **candidate.options, **(options or {})}, idle=False)
        job = {"name": candidate.name, "model": candidate.model, "options": chosen, "paced": paced}
        start = time.monotonic()
        future = self.place.submit(try_job, job, *self._sent(train, valid), threads=self.place.threads(1))
        try:
            state = future.result(timeout=max(0.0, seconds))
        except TimeOver:
            self.place.stop(future)
            return None
        return {**state, "documents": len(train), "seconds": time.monotonic() - start}


def restored(candidate: Candidate, state: State, labels: LabelSet) -> Trained | None:
    """The result of a training; None if there were too few documents for a hold-out."""
    if state["held"] is None:
        return None
    part, held = Part.from_state(state["part"], labels), Scores.from_state(state["held"], labels.names)
    seconds, speed, size = (float(state[name]) for name in ("seconds", "speed", "gigabytes"))
    return Trained(candidate, part, held, np.asarray(state["rows"]), int(state["documents"]), seconds, speed, size)


def try_job(job: State, *documents: State) -> State:
    """Train, calibrate, and measure the speed of prediction; or the seconds of a loop that was too slow."""
    logging.basicConfig(level=logging.WARNING)
    run = Run(None, progress=False) if job["paced"] is None else TimedRun(job["paced"])
    part = Part(job["name"], model_class(job["model"]).build(job["options"]))
    train, valid = corpora_of(*documents)
    try:
        held = part.model.fit(train, valid, run)
    except TooSlow as slow:
        return {"needed": slow.seconds}
    start = time.monotonic()
    texts = (train if valid is None else valid).texts[:_TIMED]
    part.model.score(texts, min(10, len(train.labels)))
    speed = len(texts) / max(1e-6, time.monotonic() - start)
    found = _held(part, held, train, valid)  # calibrates the member
    state = part.state(train.labels)
    return {**found, "part": state, "speed": speed, "gigabytes": _size(state) / 2**30}


def _held(part: Part, held: HeldOut | None, train: Corpus, valid: Corpus | None) -> State:
    """Calibrated held-out scores and their rows, and the state of the calibrated member."""
    if held is None:
        return {"held": None, "rows": None}
    part.calibrate(held)
    scores = part.probabilities(held.scores, train.labels.names)
    if scores.is_full and scores.matrix.shape[0] * scores.matrix.shape[1] > _FULL:
        scores = scores.best(_SCORED)
    rows = held.rows
    if rows is None:
        first = len(train) if valid is not None else 0
        rows = np.arange(first, first + len(scores))
    return {"held": replace(scores, decoded=None, log_probability=None).state(), "rows": rows}


def _size(state: Any) -> float:
    """Bytes of all arrays of a state."""
    if isinstance(state, Mapping):
        return sum(_size(value) for value in state.values())
    if isinstance(state, list | tuple):
        return sum(_size(value) for value in state)
    return float(getattr(state, "nbytes", 0))
