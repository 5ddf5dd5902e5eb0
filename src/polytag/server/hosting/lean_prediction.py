"""A short way from texts to decided labels for linear models: the same kernels as the library, without sparse matrices.

Calls for one to a hundred texts are dominated by what surrounds the kernels. The answers are those of ``Classifier.stream``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from polytag.classifier import Classifier
from polytag.decision.calibration import Platt
from polytag.decision.dense_sets import decided_rows
from polytag.linear.svm import Separators
from polytag.models.base.linear_model import LinearModel
from polytag.models.base.tfidf_model import TfidfModel
from polytag.scores import Kind
from polytag.server.hosting.messages import TextPrediction
from polytag.text.preprocess import prepare

_MOST_LABELS = 4_000  # above, dense scores of a text cost more than what surrounds the kernels


@dataclass(frozen=True)
class LeanPredictor:
    """A linear model over tf-idf with one separator per label, and thresholds."""

    model: TfidfModel
    separators: Separators
    calibration: Platt | None
    limits: NDArray[np.float32]
    least: int
    names: Sequence[str]

    @classmethod
    def of(cls, classifier: Classifier) -> LeanPredictor | None:
        """The short way of a classifier, if it has one."""
        model, decision = classifier.model, classifier.decision
        if not isinstance(model, TfidfModel) or type(model)._score is not LinearModel._score or model.tfidf.given:
            return None
        if classifier.recipe.favour_rare:
            return None
        kind: Kind = "margin" if classifier.calibration is None else "probability"
        limits = decision.limits(kind, len(classifier.labels))
        trees = decision.closed and classifier.labels.has_tree
        if limits is None or trees or len(classifier.labels) > _MOST_LABELS or not isinstance(model.trained, Separators):
            return None
        contiguous = np.ascontiguousarray(limits, dtype=np.float32)
        return cls(model, model.trained, classifier.calibration, contiguous, decision.min_labels, classifier.labels.names)

    def predict(self, texts: Sequence[str]) -> list[TextPrediction]:
        """The decided labels of each text and their scores, best first."""
        model, names = self.model, self.names
        rows = model.tfidf.rows(prepare(texts, model.texts.preprocess, model.texts.max_words))
        values = self.separators.margins(rows)
        if self.calibration is not None:
            values = self.calibration.probabilities(values)
        labels, scores, starts = decided_rows(values, self.limits, self.least)
        return [
            TextPrediction([names[label] for label in labels[start:stop]], scores[start:stop]) for start, stop in pairwise(starts)
        ]
