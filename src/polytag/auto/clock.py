"""The time of a search: what is spent, what is left, and how long a network would need."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from polytag.auto.facts import Facts
from polytag.auto.ladder import Candidate

if TYPE_CHECKING:
    from torch import Tensor

_RESERVED = 0.06  # share of the time that is kept for mixing, thresholds and saving
_LEAST_RESERVED = 4.0  # seconds
_TOKENS = 1.35  # tokens per word
_GPU = 2e13  # operations per second that a small batch reaches
_BACKWARD = 3.0  # cost of a training step relative to inference
_MINILM, _HIDDEN = 10.7e6, 384  # weights of the packaged encoder, without its word embeddings
_SHARE = 0.6  # of the speed of products; softmax, norms and conversions take the rest
_MOMENT = 0.06  # seconds of one measurement of the speed
_FILTERS = 2 * 300 * 256 * (3 + 4 + 5)  # operations per token of the default convolutions


class Clock:
    """Counts the seconds of a search, those before an interruption included."""

    def __init__(self, seconds: float, spent: float = 0.0) -> None:
        """``seconds`` is the limit, ``spent`` what earlier sessions of this search used."""
        self.seconds, self.spent, self._begun = seconds, spent, time.monotonic()
        self._reserved = max(_LEAST_RESERVED, _RESERVED * seconds)

    def reserve(self, seconds: float) -> None:
        """Keep at least this much time for what comes after the trainings."""
        self._reserved = max(self._reserved, seconds)

    def elapsed(self) -> float:
        """Seconds so far."""
        return self.spent + time.monotonic() - self._begun

    def left(self) -> float:
        """Seconds that trainings may still use."""
        return self.seconds - self._reserved - self.elapsed()


def epoch_seconds(candidate: Candidate, facts: Facts, speed: float) -> float:
    """Seconds of one epoch of a network, from the speed of this machine in operations per second."""
    tokens = min(int(candidate.options.get("max_length", 256)), _tokens(facts))
    per_token = _FILTERS if candidate.model == "cnn" else _per_token(tokens)
    return _BACKWARD * facts.documents * tokens * per_token / speed


def vector_seconds(facts: Facts, length: int, speed: float) -> float:
    """Seconds in which the packaged encoder reads all documents, at most ``length`` tokens of each."""
    tokens = min(length, _tokens(facts))
    return facts.documents * tokens * _per_token(tokens) / speed


def _tokens(facts: Facts) -> float:
    return _TOKENS * facts.words + 2


def _per_token(tokens: float) -> float:
    """Operations of the packaged encoder for a token of a text with this many."""
    return 2 * _MINILM + 4 * 6 * tokens * _HIDDEN


def machine_speed(gpu: bool) -> float:
    """Operations per second of matrix products of the size that networks have here."""
    if gpu:
        return _GPU
    import torch

    from polytag.nn.training.devices import multiplies_in_bf16

    dtype = torch.bfloat16 if multiplies_in_bf16() else torch.float32  # as the encoder will compute
    a, b = torch.ones((1024, _HIDDEN), dtype=dtype), torch.ones((_HIDDEN, 4 * _HIDDEN), dtype=dtype)
    a @ b  # starts the threads
    return _SHARE * 2 * a.numel() * b.shape[1] / min(_seconds(a, b) for _ in range(5))


def _seconds(a: Tensor, b: Tensor) -> float:
    """Seconds of a product, over a short time; the smallest of several is that of a moment without other work."""
    start, rounds = time.monotonic(), 0
    while time.monotonic() - start < _MOMENT:
        a @ b
        rounds += 1
    return (time.monotonic() - start) / rounds
