"""The time of a search: what is spent, what is left, and how long a network would need."""

from __future__ import annotations

import time

from polytag.auto.facts import Facts
from polytag.auto.ladder import Candidate
from polytag.auto.machine import FILTERS, Speeds, layer_operations

_RESERVED = 0.06  # share of the time that is kept for mixing, thresholds and saving
_LEAST_RESERVED = 4.0  # seconds
_TOKENS = 1.35  # tokens per word
_LAYERS = 6  # of the packaged encoder


class Clock:
    """Counts the seconds of a search, those before an interruption included."""

    def __init__(self, seconds: float, spent: float = 0.0) -> None:
        """``seconds`` is the limit, ``spent`` what earlier sessions of this search used."""
        self.seconds, self.spent, self._begun = seconds, spent, time.monotonic()
        self._least = self._reserved = max(_LEAST_RESERVED, _RESERVED * seconds)

    def reserve(self, seconds: float) -> None:
        """Keep this much time for what comes after the trainings, and a share of all time at least."""
        self._reserved = max(self._least, seconds)

    def elapsed(self) -> float:
        """Seconds so far."""
        return self.spent + time.monotonic() - self._begun

    def left(self) -> float:
        """Seconds that trainings may still use."""
        return self.seconds - self._reserved - self.elapsed()


def epoch_seconds(candidate: Candidate, facts: Facts, speeds: Speeds) -> float:
    """Seconds of one epoch of a network."""
    tokens = min(int(candidate.options.get("max_length", 256)), _tokens(facts))
    if candidate.model == "cnn":
        return facts.documents * tokens * FILTERS / speeds.filter_steps
    return facts.documents * tokens * _per_token(tokens) / speeds.encoder_steps


def vector_seconds(facts: Facts, length: int, speeds: Speeds) -> float:
    """Seconds in which the packaged encoder reads all documents, at most ``length`` tokens of each."""
    tokens = min(length, _tokens(facts))
    return facts.documents * tokens * _per_token(tokens) / speeds.encoding


def _tokens(facts: Facts) -> float:
    return _TOKENS * facts.words + 2


def _per_token(tokens: float) -> float:
    """Operations of the packaged encoder for a token of a text with this many."""
    return _LAYERS * layer_operations(tokens)
