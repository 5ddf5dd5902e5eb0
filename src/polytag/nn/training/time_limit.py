"""A limit on the time of a training: how many steps fit, from the pace so far."""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)
_FIRST = 2  # steps that are not timed: buffers, kernels and graphs are made in them
_EVERY = 32  # steps between later estimates
_KNOWN = 8  # steps after which the estimate is good enough to speak about it
_INFERENCE = 0.4  # time per document without gradients, as a share of the time with them


class TimeLimit:
    """Estimates the number of steps that fit into a limit, at steps 4, 8, 16, 32 and then every 32.

    An evaluation takes place after every epoch and after the last step. Until the first one, its time is estimated from the
    number of documents it scores.
    """

    def __init__(self, minutes: float, epoch: int, evaluated: float) -> None:
        """``epoch`` is the number of steps of an epoch, ``evaluated`` the size of an evaluation in batches."""
        self.seconds, self.epoch, self.evaluated = 60 * minutes, epoch, evaluated
        self.spent = 0.0  # seconds of the training before it was resumed
        self.evaluating, self.evaluations = 0.0, 0
        self.begun = self.timed = time.monotonic()
        self.first = 0
        self.silent = False  # whether nothing is left to say

    def elapsed(self) -> float:
        """Seconds of the training so far."""
        return self.spent + time.monotonic() - self.begun

    def due(self, step: int) -> bool:
        """Whether to estimate the number of steps again after this step, which has to be finished."""
        if step <= self.first + _FIRST:
            self.timed = time.monotonic()
            self.evaluating, self.evaluations = 0.0, 0  # of steps that are not timed
            return False
        return step % _EVERY == 0 or (step < _EVERY and step & (step - 1) == 0)

    def add_evaluation(self, seconds: float) -> None:
        """Take the time of an evaluation into account."""
        self.evaluating += seconds
        self.evaluations += 1

    def steps(self, step: int, planned: int) -> int:
        """The number of steps of the whole training: as planned, or as many as fit."""
        done = step - self.first - _FIRST
        pace = max(1e-9, time.monotonic() - self.timed - self.evaluating) / max(1, done)
        evaluation = self.evaluating / self.evaluations if self.evaluations else self.evaluated * pace * _INFERENCE
        left = self.seconds - self.elapsed() - evaluation
        return min(planned, step + max(0, int(left / (pace + evaluation / self.epoch))))

    def warn(self, step: int, total: int) -> None:
        """Say once if the whole training sees only a part of the documents: when the pace is known, or at the end."""
        if self.silent or (step < self.first + _KNOWN and step < total):
            return
        self.silent = True
        if total < self.epoch:
            log.warning(
                "in %g minutes this network sees only %.0f %% of the training documents on this machine; give it more minutes, "
                "or train a faster model, such as br or embed", self.seconds / 60, 100 * total / self.epoch,
            )  # fmt: skip
