"""PolytagClassifier: a Classifier with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from polytag.classifier import Classifier
from polytag.errors import ConfigError, DataError, PolytagError
from polytag.formats.inputs import checked_texts
from polytag.metrics.of_sets import micro_f1
from polytag.scores import Scores
from polytag.sklearn.targets import Targets

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise ConfigError("polytag.sklearn needs scikit-learn; install polytag[sklearn]") from None


class PolytagClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Texts in, labels out, in pipelines, grid searches and cross-validation.

    ``X`` is a list, an array, a pandas column or a frame with one column, of texts. ``y`` is an indicator matrix (array, sparse
    matrix or frame), a list with the labels of every text, or one label per text. ``predict`` answers in the form of ``y``.
    """

    def __init__(
        self, model: str = "br", options: dict[str, Any] | None = None, *, optimise: str = "micro_f1", seed: int = 0
    ) -> None:
        """Store the settings; ``options`` are those of the model."""
        self.model = model
        self.options = options
        self.optimise = optimise
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        """Train on texts and their labels."""
        if y is None:
            raise ValueError("this classifier requires y to be passed, but the target y is None")
        with _as_value_errors():
            texts = self._texts(X)
            self._targets = Targets.of(y)
            if len(texts) != len(self._targets):
                raise DataError(f"{len(texts)} texts but labels of {len(self._targets)}; give labels for every text")
            settings = {**(self.options or {}), "optimise": self.optimise, "seed": self.seed}
            found = Classifier(self.model, settings)
            self.classifier_ = found.fit(texts, self._targets.indicator(y), classes=self._targets.names)
        self.classes_ = self._targets.classes
        return self

    def predict(self, X: Any) -> Any:
        """Labels in the form of ``y``: an indicator matrix, an array of lists, or an array of labels."""
        check_is_fitted(self, "classifier_")
        scores = self._scores(X)
        if self._targets.form == "single":
            return self.classes_[scores.ranked(1)[0][:, 0]]
        return self._targets.decoded(self.classifier_.decision.decide(scores, self.classifier_.labels))

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The probability of every label (texts, labels); of one label per text, they sum to 1."""
        check_is_fitted(self, "classifier_")
        scores = self._scores(X)
        values = np.full(scores.matrix.shape, 0.0 if scores.kind == "probability" else -np.inf, dtype=np.float32)
        rows = np.repeat(np.arange(len(scores)), np.diff(scores.matrix.indptr))
        values[rows, scores.matrix.indices] = scores.matrix.data
        if scores.kind == "margin":
            values = (1 / (1 + np.exp(-values))).astype(np.float32)
        if self._targets.form == "single":
            values = np.maximum(values, 1e-7)
            values /= values.sum(axis=1, keepdims=True)
        return values

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The micro-F1 of the predicted sets; the accuracy if every text has one label."""
        check_is_fitted(self, "classifier_")
        if self._targets.form == "single":
            return float(super().score(X, y, sample_weight))
        if sample_weight is not None:
            raise ConfigError("score takes no sample_weight for label sets; leave it out")
        scores = self._scores(X)
        truth = self._targets.encoded(y)
        return micro_f1(truth, self.classifier_.decision.decide(scores, self.classifier_.labels))

    def _scores(self, X: Any) -> Scores:
        with _as_value_errors():
            return self.classifier_.scores(self._texts(X))

    def _texts(self, X: Any) -> list[str]:
        """The texts as a list; a frame or an array with one column counts as this column."""
        if issparse(X):
            raise DataError("the texts are a sparse matrix; this classifier reads texts, leave the vectoriser out")
        if getattr(X, "ndim", 1) == 2:
            if X.shape[1] != 1:
                raise DataError(f"the texts have {X.shape[1]} columns; choose the column with the texts, as in frame['text']")
            X = X.iloc[:, 0] if hasattr(X, "iloc") else X[:, 0]
        return checked_texts(X.tolist() if hasattr(X, "tolist") else X)

    def __sklearn_tags__(self) -> Any:
        """It reads texts, and predicts one label or many."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        tags.target_tags.multi_output = tags.classifier_tags.multi_label = True
        return tags


@contextmanager
def _as_value_errors() -> Iterator[None]:
    """Errors of input as scikit-learn expects them."""
    try:
        yield
    except PolytagError as error:
        raise ValueError(str(error)) from error
