"""One version of a model in service: its classifier, and what the routes need of it. It never changes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polytag.classifier import Classifier
from polytag.decision.predicted_sets import Prediction
from polytag.decision.thresholds import select
from polytag.scores import Kind, Scores
from polytag.server.hosting.label_search import LabelSearch
from polytag.server.hosting.lean_prediction import LeanPredictor
from polytag.server.hosting.messages import Candidates, TextPrediction
from polytag.storage.artefact import artefact_folder, manifest_digest

_DIGITS = 12  # hexadecimal digits of a version


class Want(NamedTuple):
    """What a request wants of its texts: the best labels instead of the set, a share to ask about, all labels above a floor."""

    top: int | None = None
    ask: float | None = None
    floor: float | None = None


PLAIN = Want()
"""The decided set and nothing else, which most requests want."""


@dataclass(frozen=True)
class HostedModel:
    """A classifier with its name and version."""

    name: str
    version: str
    classifier: Classifier
    folder: Path | None = None
    loaded: float = field(default_factory=time.time)

    @classmethod
    def load(cls, folder: Path) -> HostedModel:
        """Load the artefact of a run and warm it: kernels are compiled and tables filled before the first request."""
        place = artefact_folder(folder)
        version = cls.version_at(folder)
        name = (place.parent if place.name == "model" else place).resolve().name
        return cls(name, version, Classifier.load(place), folder).warmed()

    @staticmethod
    def version_at(folder: Path) -> str:
        """The version of the artefact in a folder."""
        return manifest_digest(artefact_folder(folder))[:_DIGITS]

    def warmed(self) -> HostedModel:
        """Predict once in every way that a request may ask for."""
        ask = 0.5 if self.classifier.abstention is not None else None
        self.predict(["", "first words"], [PLAIN, Want(top=3, ask=ask, floor=0.0)])
        self.predict(["first words"], [PLAIN])
        _ = self.search.find("a", 1)
        return self

    @cached_property
    def lean(self) -> LeanPredictor | None:
        """A short way for requests that want nothing special, if the model has one."""
        return LeanPredictor.of(self.classifier)

    @cached_property
    def search(self) -> LabelSearch:
        """The index of the labels."""
        return LabelSearch(self.classifier.labels, np.asarray(self.classifier.training["label_counts"]))

    def predict(self, texts: Sequence[str], wants: Sequence[Want], most: int = 1_000) -> list[TextPrediction]:
        """The answer for each text, by what is wanted of it; ``most`` is the maximum number of labels above a floor."""
        if self.lean is not None and all(want is PLAIN for want in wants):
            return self.lean.predict(texts)
        scores = self.classifier.scores(texts)
        found: list[TextPrediction | None] = [None] * len(texts)
        for want in set(wants):
            rows = [number for number, other in enumerate(wants) if other == want]
            some = scores if len(rows) == len(texts) else select(scores, np.isin(np.arange(len(texts)), rows))
            for row, prediction in zip(rows, self._answers(some, want, most), strict=True):
                found[row] = prediction
        return [prediction for prediction in found if prediction is not None]

    def _answers(self, scores: Scores, want: Want, most: int) -> list[TextPrediction]:
        top = None if want.top is None else min(want.top, len(self.classifier.labels))
        answers = [_answer(prediction) for prediction in self.classifier.predictions(scores, top, want.ask)]
        if want.floor is not None:
            for answer, pairs in zip(answers, scores.top(min(most, len(self.classifier.labels))), strict=True):
                above = [(name, value) for name, value in pairs if value >= want.floor]
                answer.candidates = Candidates([name for name, _ in above], [value for _, value in above])
        return answers

    def describe(self) -> dict[str, Any]:
        """What a client may know of the model."""
        known, decision = self.classifier, self.classifier.decision
        limits = decision.limits(self.kind, len(known.labels))
        return {
            "name": self.name,
            "version": self.version,
            "model": known.recipe.model,
            "labels": len(known.labels),
            "documents": int(known.training["documents"]),
            "tree": known.labels.has_tree,
            "kind": self.kind,
            "rule": decision.rule,
            "threshold": None if limits is None else float(np.median(limits)),
            "promise": decision.promise or None,
            "asks": known.abstention is not None,
            "optimised": decision.optimise,
            "held_out": decision.report.get("fitted"),
            "loaded": self.loaded,
        }

    @cached_property
    def kind(self) -> Kind:
        """What a score is: a probability, or a margin."""
        return self.classifier.scores([""]).kind


def _answer(prediction: Prediction) -> TextPrediction:
    return TextPrediction(prediction.labels, prediction.scores, prediction.ask)
