"""Binary relevance (Boutell et al. 2004): every label is a question of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.linear.svm import Problem, Separators, train_separators
from polytag.models.linear_model import LinearModel
from polytag.models.model import State
from polytag.scores import Scores


def margin_scores(separators: Separators, features: csr_array, names: Sequence[str], k: int | None) -> Scores:
    """Margins of all labels, or of the k best."""
    if k is None or k >= len(names):
        return Scores.full(separators.all(features), names, "margin")
    labels, values = separators.best(features, k)
    return Scores.candidates(labels, values, names, "margin")


@dataclass
class BinaryRelevance(LinearModel):
    """One linear separator per label over tf-idf, all trained side by side."""

    def _train(self, problem: Problem, strengths: Sequence[float], rows: NDArray[Any] | None) -> list[Separators]:
        return train_separators(problem, strengths, self.solver(), rows=rows)

    def _score(self, trained: Separators, features: csr_array, names: Sequence[str], k: int | None) -> Scores:
        return margin_scores(trained, features, names, k)

    def _trained_from(self, state: State) -> Separators:
        separators = Separators.from_state(state)
        if separators.shape[1] != len(self.labels):
            raise ValueError("its weights are about another number of labels")
        return separators
