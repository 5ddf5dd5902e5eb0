"""The time of a search: what is spent, what is left, and how long a network would need."""

from __future__ import annotations

import time

import numpy as np

from polytag.auto.facts import Facts
from polytag.auto.ladder import Candidate

_RESERVED = 0.06  # share of the time that is kept for mixing, thresholds and saving
_LEAST_RESERVED = 4.0  # seconds
_TOKENS = 1.35  # tokens per word
_GPU = 2e13  # operations per second that a small batch reaches
_BACKWARD = 3.0  # cost of a training step relative to inference
_MINILM, _HIDDEN = 10.7e6, 384  # weights of the packaged encoder, without its word embeddings
_FILTERS = 2 * 300 * 256 * (3 + 4 + 5)  # operations per token of the default convolutions


class Clock:
    """Counts the seconds of a search, those before an interruption included."""

    def __init__(self, seconds: float, spent: float = 0.0) -> None:
        """``seconds`` is the limit, ``spent`` what earlier sessions of this search used."""
        self.seconds, self.spent, self._begun = seconds, spent, time.monotonic()

    def elapsed(self) -> float:
        """Seconds so far."""
        return self.spent + time.monotonic() - self._begun

    def left(self) -> float:
        """Seconds that trainings may still use."""
        reserved = max(_LEAST_RESERVED, _RESERVED * self.seconds)
        return self.seconds - reserved - self.elapsed()


def epoch_seconds(candidate: Candidate, facts: Facts, speed: float) -> float:
    """Seconds of one epoch of a network, from the speed of this machine in operations per second."""
    length = int(candidate.options.get("max_length", 256))
    tokens = min(length, _TOKENS * facts.words + 2)
    per_token = _FILTERS if candidate.model == "cnn" else 2 * _MINILM + 4 * 6 * tokens * _HIDDEN
    return _BACKWARD * facts.documents * tokens * per_token / speed


def machine_speed(gpu: bool) -> float:
    """Operations per second of matrix products of the size that networks have here."""
    if gpu:
        return _GPU
    a = np.ones((1024, _HIDDEN), dtype=np.float32)
    b = np.ones((_HIDDEN, 4 * _HIDDEN), dtype=np.float32)
    a @ b  # starts the threads
    start, rounds = time.monotonic(), 0
    while time.monotonic() - start < 0.2:
        a @ b
        rounds += 1
    return 0.6 * rounds * 2 * a.size * b.shape[1] / (time.monotonic() - start)  # softmax and norms take the rest
