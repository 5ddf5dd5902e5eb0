"""From a trained model and its decision to the reasons for some labels of one text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polytag.decision.calibration import Platt
from polytag.decision.decision import Decision
from polytag.decision.rare_labels import calibrated
from polytag.explain.explanation import COARSE, EXACT, SUM, Explanation, Reasons, Word, words_at
from polytag.labels import indicator
from polytag.models.base.attribution import Attention, Attribution, scores_of
from polytag.models.model import Model
from polytag.scores import Scores


@dataclass(frozen=True)
class Judge:
    """What scores a text and decides: the model, its calibration if any, the decision, and how much it favours rare labels."""

    model: Model
    calibration: Platt | None
    decision: Decision
    rare: float = 0.0
    training: Mapping[str, Any] = field(default_factory=dict)

    def explain(self, text: str, labels: list[int] | None, *, exact: bool) -> Explanation:
        """The reasons for these labels, or for the decided ones, best first."""
        scores = self._calibrated(self.model.score([text]))
        decided = self.decision.decide(scores, self.model.labels).indices
        wanted = np.asarray(decided if labels is None else labels, dtype=np.int64)
        values = self._values(text, wanted)
        if labels is None:
            order = np.argsort(-values, kind="stable")
            wanted, values = wanted[order], values[order]
        best = next((name for name, _ in scores.top(1)[0]), None)
        found = self.model.attribute(text, wanted, exact=exact) if len(wanted) else None
        method = EXACT if exact else COARSE
        if found is None:
            return Explanation(text, (), method, best)
        reasons = self._reasons(text, wanted, values, found, scores.kind == "probability", set(decided.tolist()))
        return Explanation(text, tuple(reasons), method if found.bias is None else SUM, best)

    def _reasons(
        self, text: str, labels: NDArray[np.int64], values: NDArray[Any], found: Attribution, likely: bool, decided: set[int]
    ) -> list[Reasons]:
        """The reasons for each label; ``likely`` if the scores are probabilities."""
        attention, names = self.model.attention(text), self.model.labels.names
        limits = self.decision.limits("probability" if likely else "margin", len(names))
        margin, bias = ([None] * len(labels) if part is None else part.tolist() for part in (found.margin, found.bias))
        return [
            Reasons(
                names[label],
                value if likely else float(1 / (1 + np.exp(-value))),
                words_at(text, found.spans, found.values[:, place].tolist()),
                margin=margin[place],
                bias=bias[place],
                score=value,
                threshold=None if limits is None else float(limits[label]),
                decided=label in decided,
                attention=None if attention is None else _attended(text, attention, label),
                details=_in_words(text, found.details[place]) if found.details else {},
            )
            for place, (label, value) in enumerate(zip(labels.tolist(), values.tolist(), strict=True))
        ]

    def _values(self, text: str, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """The scores of labels, candidates or not, that thresholds are compared with."""
        if not len(labels):
            return np.zeros(0)
        asked = indicator([labels], len(self.model.labels))
        found: NDArray[np.float64] = scores_of(self._calibrated(self.model.encode([text]).given(asked)), labels)[0]
        return found

    def _calibrated(self, scores: Scores) -> Scores:
        return calibrated(scores, self.calibration, self.rare, self.training)


def _attended(text: str, attention: Attention, label: int) -> tuple[Word, ...] | None:
    """The words with the attention weights of a label; None if the model did not attend for it."""
    place = np.flatnonzero(attention.labels == label)
    return words_at(text, attention.spans, attention.weights[:, place[0]].tolist()) if len(place) else None


def _in_words(text: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """The details, with the words of a path as words."""
    if "path" not in details:
        return dict(details)
    levels = [
        {**level, "words": [vars(Word(text[start:end], start, end, value)) for start, end, value in level.get("words", ())]}
        for level in details["path"]
    ]
    return {**details, "path": levels}
