"""Decision: from scores to label sets, fitted on held-out documents for the metric that counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from polytag import thresholds
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.metrics import macro_f1, micro_f1, subset_accuracy
from polytag.scores import Scores

METRICS: dict[str, Callable[[csr_array, csr_array], float]] = {
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
    "subset_accuracy": subset_accuracy,
}
RULES = ("auto", "threshold", "per_label", "top_k", "decoded")
_SHRINKAGE = (np.inf, 80.0, 20.0, 5.0)  # pseudo-counts that pull a label's threshold towards the common one
_PARTS = 5


@dataclass
class Decision:
    """Which labels a document gets.

    ``rule`` is one of: ``threshold`` (one for all labels), ``per_label`` (shrunk towards the common one for rare labels), ``top_k``,
    ``decoded`` (the model's own set), or ``auto``: whichever is best on held-out documents, judged by cross-fitting.
    Every document gets at least ``min_labels``; ``closed`` adds the ancestors of every label.
    """

    rule: str = "auto"
    optimise: str = "micro_f1"
    min_labels: int = 0
    closed: bool = False
    k: int = 0
    thresholds: NDArray[np.float32] = field(default_factory=lambda: np.zeros(1, dtype=np.float32))
    report: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the words."""
        if self.rule not in RULES:
            raise ConfigError(f"there is no decision rule {self.rule!r}; known: {', '.join(RULES)}")
        if self.optimise not in METRICS:
            raise ConfigError(f"cannot optimise {self.optimise!r}; known: {', '.join(METRICS)}")

    def decide(self, scores: Scores, labels: LabelSet) -> csr_array:
        """The predicted labels of every document, as a sparse matrix of ones."""
        if self.rule == "decoded" and scores.decoded is not None:
            predicted = scores.decoded
        elif self.rule == "top_k":
            predicted = thresholds.apply(scores, np.full(1, np.inf, dtype=np.float32), max(self.k, self.min_labels))
        else:
            predicted = thresholds.apply(scores, self.thresholds, self.min_labels)
        return labels.close(predicted) if self.closed else predicted

    def fit(self, scores: Scores, truth: csr_array, labels: LabelSet) -> Decision:
        """Choose the rule and its thresholds on scores of documents that the model was not trained on."""
        candidates = self._candidates(scores)
        tried = {} if len(candidates) == 1 else {name: self._cross_fitted(name, scores, truth, labels) for name in candidates}
        best = max(candidates, key=lambda name: tried.get(name, 0.0))  # the first, simplest, wins a tie
        self._set(best, scores, truth)
        value = METRICS[self.optimise](truth, self.decide(scores, labels))
        self.report = {"rule": best, "metric": self.optimise, "fitted": value, "cross_fitted": tried}
        return self

    def _candidates(self, scores: Scores) -> list[str]:
        """Names of the rules to compare, simplest first: ``threshold``, ``per_label:20``, ``top_k``, ``decoded``."""
        per_label = [f"per_label:{s:g}" for s in _SHRINKAGE[1:]]
        if self.rule == "per_label":
            return per_label
        if self.rule == "auto":
            return ["threshold", *per_label, *(["decoded"] if scores.decoded is not None else [])]
        return [self.rule]

    def _set(self, name: str, scores: Scores, truth: csr_array) -> None:
        rule, _, pseudo = name.partition(":")
        self.rule = rule
        if rule == "threshold":
            self.thresholds = thresholds.common(scores, truth, self.optimise, self.min_labels)
        elif rule == "per_label":
            self.thresholds = thresholds.per_label(scores, truth, self.optimise, self.min_labels, float(pseudo))
        elif rule == "top_k" and not self.k:
            self.k = max(1, round(truth.nnz / max(1, truth.shape[0])))

    def _cross_fitted(self, name: str, scores: Scores, truth: csr_array, labels: LabelSet) -> float:
        """The metric of a rule when every fifth of the documents is decided with thresholds from the other four."""
        n = len(scores)
        parts = []
        for part in range(min(_PARTS, n)):
            held = np.arange(n) % _PARTS == part
            trial = Decision(optimise=self.optimise, min_labels=self.min_labels, closed=self.closed, k=self.k)
            trial._set(name, thresholds.select(scores, ~held), truth[~held])
            parts.append((truth[held], trial.decide(thresholds.select(scores, held), labels)))
        true, predicted = (csr_array(vstack([part[side] for part in parts])) for side in (0, 1))
        return METRICS[self.optimise](true, predicted)

    def state(self) -> dict[str, Any]:
        """The settings and the thresholds."""
        keep = ("rule", "optimise", "min_labels", "closed", "k", "thresholds", "report")
        return {name: getattr(self, name) for name in keep}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Decision:
        """Take back what ``state`` returned."""
        return cls(**{**state, "thresholds": np.asarray(state["thresholds"])})
