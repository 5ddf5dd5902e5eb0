"""Trainings of a few documents: how long all of them would take, and whether a candidate can win."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Self

import numpy as np

from polytag.auto.choice import noise
from polytag.corpus import Corpus

START = 3.0  # seconds that a process takes before it trains
AGAIN = 1.15  # of the seconds of another training, or of an estimate from two: it may take longer
_SIZE = 500, 2_000  # least and largest number of documents of a pilot
_WORTH = 4  # a pilot is worth its time if there are this many times more documents
_LARGER = 10  # times the documents, of a second pilot
_LEAST = 0.5  # seconds that a pilot trains at least, for all that is known after one


class Pilot:
    """A sample of the documents, on which candidates are tried before all of them are used."""

    def __init__(self, whole: Corpus, size: int, seed: int) -> None:
        """``whole`` are all documents, those of validation included."""
        self.whole, self._order = whole, np.random.default_rng(seed).permutation(len(whole))
        self.documents = self._sample(size)
        self.curve: tuple[float, float] | None = None  # metric of the first candidate: of its pilot, and with all documents

    @classmethod
    def of(cls, whole: Corpus, seed: int) -> Self | None:
        """A pilot of an eighth of the documents, within limits; None if all documents are few."""
        size = int(np.clip(len(whole) // 8, *_SIZE))
        return None if len(whole) < _WORTH * size else cls(whole, size, seed)

    def _sample(self, size: int) -> Corpus:
        return self.whole.subset(np.sort(self._order[:size]))

    @cached_property
    def larger(self) -> Corpus | None:
        """The documents of a second pilot, with those of the first; None if all documents are not many more."""
        size = _LARGER * len(self.documents)
        return None if len(self.whole) < _WORTH * size else self._sample(size)

    def hopeless(self, value: float, others: Sequence[float]) -> str:
        """Why a candidate cannot win, from its pilot and the learning curve of the first candidate; empty if it may.

        ``others`` are the metrics of candidates that finished.
        """
        if self.curve is None or not others:
            self.curve = (value, 0.0)
            return ""
        if not self.curve[1]:
            self.curve = (self.curve[0], others[0])
        begin, end = self.curve
        expected = value + (1 - value) * max(0.0, (end - begin) / max(1e-9, 1 - begin))  # its error falls as much
        if expected + 3 * noise(len(self.documents)) < max(others):
            return f"expected {expected:.3f} after {value:.3f} on {len(self.documents):,} documents, below {max(others):.3f}"
        return ""

    @staticmethod
    def says_little(first: float) -> bool:
        """Whether the start of a process hides the seconds that a pilot trained."""
        return first - START < _LEAST

    def seconds_of_all(self, first: float, second: float | None = None) -> float:
        """Seconds of a training with all documents, from those of the pilot, or of both pilots."""
        needed = START + max(_LEAST, first - START) * len(self.whole) / len(self.documents)
        if second is None or self.larger is None:
            return needed
        each = max(0.0, second - first) / (len(self.larger) - len(self.documents))
        return min(needed, AGAIN * (second + each * (len(self.whole) - len(self.larger))))
