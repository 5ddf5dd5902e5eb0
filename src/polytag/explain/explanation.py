"""Explanation: for each label of one text its score, its threshold, and the words that speak for and against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polytag.storage.plain_json import plain

SUM, EXACT, COARSE = "sum", "every word left out", "phrases left out, then words"


@dataclass(frozen=True)
class Word:
    """A word of the text, where it starts and ends, and its contribution."""

    text: str
    start: int
    end: int
    contribution: float


@dataclass(frozen=True)
class Neighbour:
    """A document of a corpus: its id, text and labels, and the cosine of its tf-idf row and that of the explained text."""

    id: str
    text: str
    labels: tuple[str, ...]
    similarity: float


@dataclass(frozen=True)
class Reasons:
    """Why a label has its score.

    ``words`` are in the order of the text. Their contributions are to the margin or the log-odds. If the score is a sum, they and
    ``bias`` sum to ``margin``. ``score`` is what ``threshold`` is compared with; None if the rule has no threshold.
    ``attention`` has the words with their attention weights, if the model has attention. ``details`` has what else the model
    knows: the path through a tree, the parts of an ensemble, the links of a chain, the label set.
    """

    label: str
    probability: float
    words: tuple[Word, ...]
    margin: float | None = None
    bias: float | None = None
    score: float = 0.0
    threshold: float | None = None
    decided: bool = False
    attention: tuple[Word, ...] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    near: tuple[Neighbour, ...] = ()

    def strongest(self, count: int, *, against: bool = False) -> list[Word]:
        """The words that speak most for the label, or most against it; equal words are added up."""
        sums: dict[str, Word] = {}
        for word in self.words:
            key = word.text.lower()
            seen = sums.get(key)
            sums[key] = word if seen is None else Word(seen.text, seen.start, seen.end, seen.contribution + word.contribution)
        sign = -1 if against else 1
        chosen = [word for word in sums.values() if sign * word.contribution > 0]
        return sorted(chosen, key=lambda word: -sign * word.contribution)[:count]

    def to_json(self) -> dict[str, Any]:
        """Label, probability, margin and bias if the score is a sum, words; then what else is known."""
        linear = {} if self.margin is None else {"margin": self.margin, "bias": self.bias}
        more: dict[str, Any] = {"decided": self.decided, "score": self.score, "threshold": self.threshold, **self.details}
        if self.attention is not None:
            more["attention"] = [vars(word) for word in self.attention]
        if self.near:
            more["near"] = [vars(one) for one in self.near]
        words = [vars(word) for word in self.words]
        found: dict[str, Any] = plain({"label": self.label, "probability": self.probability, **linear, "words": words, **more})
        return found


@dataclass(frozen=True)
class Explanation:
    """A text, and the reasons for its labels.

    ``method`` says what a contribution is: a term of the ``sum`` that the score is, or the change of the log-odds with every word
    left out, or with phrases left out first and then words of the phrases that matter.
    """

    text: str
    labels: tuple[Reasons, ...]
    method: str = SUM
    best: str | None = None
    """The label with the best score, for a text without a decided label."""

    def to_json(self) -> dict[str, Any]:
        """The explanation in JSON types."""
        return {"text": self.text, "labels": [reasons.to_json() for reasons in self.labels], "method": self.method}


def words_at(text: str, spans: Any, values: Sequence[float]) -> tuple[Word, ...]:
    """Words of a text from their spans (words, 2) and contributions."""
    rows = zip(spans.tolist(), values, strict=True)
    return tuple(Word(text[start:end], start, end, float(value)) for (start, end), value in rows)
