"""Label powerset (Tsoumakas and Katakis 2007): one class per distinct label set of the training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.groups.solver_settings import SolverSettings
from polytag.config.groups.text_settings import TfidfSettings
from polytag.kernels.array_views import unlocked
from polytag.kernels.sparse_rows import stack_rows
from polytag.labels import indicator
from polytag.linear.block_kernels import labels_of_sets
from polytag.linear.prior import Growth, Prior, learn_on, widened
from polytag.linear.svm import Problem, Separators, separators_schema, train_separators
from polytag.models.base.attribution import Attribution, linear_parts
from polytag.models.base.tfidf_model import TfidfModel
from polytag.models.model import State, group
from polytag.scores import Scores
from polytag.storage.schema import Schema, Sparse, Table
from polytag.text.word_shares import WordShares

_SETS = 50  # best label sets per document from which the label scores are computed


@dataclass(frozen=True)
class Powerset:
    """One separator per label set, and the label sets (sets, labels)."""

    separators: Separators
    sets: csr_array

    def state(self) -> dict[str, Any]:
        """The arrays for an artefact."""
        return {"separators": self.separators.state(), "sets": self.sets}


@dataclass
class LabelPowerset(TfidfModel):
    """One linear separator per label set of the training data; the best set is predicted.

    A label set that does not occur in the training data cannot be predicted. The score of a label is the margin of the best label
    set that contains it.
    """

    rule: ClassVar[str] = "decoded"
    judged: ClassVar[tuple[str, ...]] = ("weights",)  # a set with unknown labels is a class of its own

    solver: SolverSettings = group(SolverSettings, c=[0.5, 1.0, 2.0], balance=0.0)
    features: TfidfSettings = group(TfidfSettings, ngrams=[1])

    def _train(self, problem: Problem, strengths: Sequence[float], rows: NDArray[Any] | None) -> list[Powerset]:
        used = np.arange(problem.truth.shape[0]) if rows is None else rows
        if self.known is not None and self.prior is not None:
            sets = self.known.sets
            found = [learn_on(self.known.separators, self.prior, _as_classes(problem, sets, used), self.make_solver(), rows=used)]
        else:
            sets, _ = distinct_sets(problem.truth[used])
            found = train_separators(_as_classes(problem, sets, used), strengths, self.make_solver(), rows=used)
        return [Powerset(separators, sets) for separators in found]

    def _widened(self, earlier: LabelPowerset, growth: Growth, truth: csr_array) -> tuple[Powerset, Prior]:
        """The known label sets, then those that only the new documents have."""
        assert earlier.prior is not None
        old = earlier.trained.sets
        old = csr_array((old.data, old.indices, old.indptr), shape=(old.shape[0], truth.shape[1]))
        sets, _ = distinct_sets(stack_rows([old, truth]))
        count = int(sets.shape[0])
        return Powerset(widened(earlier.trained.separators, growth, count), sets), earlier.prior.widened(growth, count)

    def _as_solved(self, problem: Problem, trained: Powerset) -> tuple[Problem, Separators]:
        return _as_classes(problem, trained.sets, np.arange(problem.truth.shape[0])), trained.separators

    def _learning_schema(self, features: str, labels: str = "sets") -> dict[str, Schema]:
        return super()._learning_schema(features, labels)

    def _score(self, trained: Powerset, features: csr_array, names: Sequence[str], k: int | None) -> Scores:
        count = min(_SETS, int(trained.sets.shape[0]))
        found, margins = trained.separators.best(features, count)
        sets = trained.sets
        indptr = np.zeros(len(found) + 1, dtype=np.int64)
        size = int(np.diff(sets.indptr)[found].sum())
        indices, values = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.float32)
        members = unlocked(sets.indptr, np.int64), unlocked(sets.indices, np.int64)
        room = np.full(int(sets.shape[1]), -1, dtype=np.int64), np.empty(int(sets.shape[1]), dtype=np.float32)
        used = labels_of_sets(found, margins, *members, *room, indptr, indices, values)
        matrix = csr_array((values[:used], indices[:used], indptr), shape=(len(found), sets.shape[1]))
        scores = Scores(matrix, names, "margin", float("-inf"), csr_array(sets[found[:, 0]]))
        return scores if k is None else scores.best(k)

    def _attributed(self, found: WordShares, labels: NDArray[np.int64]) -> Attribution:
        """Contributions to the margin of the best label set that contains each label."""
        trained: Powerset = self.trained
        row = csr_array(found.shares.sum(axis=0).reshape(1, -1).astype(np.float32))
        margins, holders = trained.separators.all(row)[0], trained.sets.tocsc()
        best = np.zeros(len(labels), dtype=np.int64)
        for place, label in enumerate(labels.tolist()):
            sets = holders.indices[holders.indptr[label] : holders.indptr[label + 1]]
            best[place] = sets[np.argmax(margins[sets])] if len(sets) else -1
        parts = linear_parts(found, trained.separators.weights, np.maximum(best, 0), trained.separators.bias)
        assert parts.bias is not None
        bias = np.where(best < 0, float("-inf"), parts.bias)  # a label of no set cannot be predicted
        return replace(parts, bias=bias, details=[{"set": self._names_of(number)} for number in best.tolist()])

    def _names_of(self, number: int) -> list[str]:
        """The labels of a set; -1 is none."""
        sets: csr_array = self.trained.sets
        if number < 0:
            return []
        return [self.labels.names[label] for label in sets.indices[sets.indptr[number] : sets.indptr[number + 1]].tolist()]

    def _trained_schema(self, features: str) -> Table:
        return Table({"separators": separators_schema(features, "sets"), "sets": Sparse(("sets", "labels"), ascending=True)})

    def _trained_from(self, state: State) -> Powerset:
        return Powerset(Separators.from_state(state["separators"]), state["sets"])


def distinct_sets(truth: csr_array) -> tuple[csr_array, NDArray[np.int64]]:
    """The distinct label sets of a corpus in order of first occurrence, and the set of each document."""
    numbers: dict[bytes, int] = {}
    member = np.empty(truth.shape[0], dtype=np.int64)
    for i, key in enumerate(_keys(truth)):
        member[i] = numbers.setdefault(key, len(numbers))
    return indicator([np.frombuffer(key, dtype=np.int32) for key in numbers], int(truth.shape[1])), member


def _keys(truth: csr_array) -> list[bytes]:
    """The label set of every document, as bytes."""
    indices, indptr = truth.indices.astype(np.int32, copy=False), truth.indptr.tolist()
    return [indices[start:stop].tobytes() for start, stop in pairwise(indptr)]


def _as_classes(problem: Problem, sets: csr_array, used: NDArray[Any]) -> Problem:
    """The same documents, each with its label set as its one class; documents that are not used have none."""
    numbers = {key: number for number, key in enumerate(_keys(sets))}
    truth, keys = problem.truth, _keys(problem.truth)
    classes = [numbers[keys[row]] for row in np.sort(used).tolist()]
    counts = np.zeros(truth.shape[0] + 1, dtype=np.int64)
    counts[np.asarray(used) + 1] = 1
    ones = np.ones(len(classes), dtype=np.float32)
    indicated = csr_array((ones, np.array(classes, dtype=np.int32), np.cumsum(counts)), shape=(truth.shape[0], sets.shape[0]))
    return Problem(problem.features, indicated, problem.weights)
