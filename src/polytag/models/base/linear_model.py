"""The base class of linear models: solver settings, choice of C, out-of-fold scores; one separator per label."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.groups.solver_settings import HoldOutSettings, SolverSettings
from polytag.decision.decision import reached
from polytag.labels import LabelSet
from polytag.linear.svm import Problem, Separators, Solver, separators_schema, train_separators
from polytag.models.model import HeldOut, Model, State, group
from polytag.scores import Scores
from polytag.storage.schema import Table

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

Fold: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
Folds: TypeAlias = list[Fold]
_SEARCHED = 160  # maximum number of labels on which settings are compared
CANDIDATES = 50  # labels per document in held-out scores; thresholds need no more


@dataclass
class LinearModel(Model):
    """Linear separators on any features; settings are chosen on out-of-fold scores of training and validation documents."""

    learns_from_valid: ClassVar[bool] = True
    judged: ClassVar[tuple[str, ...]] = ("weights", "unknown")

    solver: SolverSettings = group(SolverSettings)
    held_out: HoldOutSettings = group(HoldOutSettings, without=("holdout", "refit"), limits={"folds": (2, 20)})
    trained: Any = field(init=False, repr=False, default=None)

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Choose C on the first fold, compute out-of-fold scores of all documents, then train on all documents."""
        corpus = train if valid is None else train.concat(valid)
        parts = corpus.folds(self.held_out.folds, seed=self.seed) if len(corpus) >= 2 * self.held_out.folds else []
        problem = self._begin(corpus, parts, run)
        chosen, first = self._strength(problem, corpus, parts, run)
        held = self._out_of_fold(problem, corpus, parts, chosen, first, run)
        run.log("final", {"c": chosen, "documents": len(corpus), "features": int(problem.features.shape[1])})
        self.trained = self._train(problem, [chosen], None)[0]
        self.labels = corpus.labels
        return held

    def _strength(self, problem: Problem, corpus: Corpus, parts: Folds, run: Run) -> tuple[float, Scores | None]:
        """The C with the best metric on the first fold, and the scores of that fold if they cover all labels."""
        strengths = sorted(set(self.solver.c))
        if len(strengths) == 1 or not parts:
            return strengths[len(strengths) // 2], None
        found = run.stage("strength", partial(self._search, problem, corpus, parts[0], strengths))
        run.log("strength", {"c": strengths, self.optimise: found["values"]})
        chosen = strengths[int(np.argmax(found["values"]))]
        return chosen, None if found["scores"] is None else Scores.from_state(found["scores"], corpus.labels.names)

    def _search(self, problem: Problem, corpus: Corpus, part: Fold, strengths: list[float]) -> State:
        few = _sample_of_labels(corpus)
        scored = self._fold_scores(Problem.of(problem.features, few) if few is not corpus else problem, few, part, strengths)
        values = self._values(few, part, scored)
        return {"values": values, "scores": scored[int(np.argmax(values))].state() if few is corpus else None}

    def _values(self, corpus: Corpus, part: Fold, scored: Sequence[Scores]) -> list[float]:
        """The metric of each of several scores of a fold, with one global threshold or the decoded sets."""
        truth = corpus.truth[part[1]]
        least = int(np.diff(corpus.truth.indptr).min())
        return [reached(scores, truth, corpus.labels, self.optimise, least) for scores in scored]

    def _out_of_fold(
        self, problem: Problem, corpus: Corpus, parts: Folds, chosen: float, first: Scores | None, run: Run
    ) -> HeldOut | None:
        """Out-of-fold scores of all documents; those of the first fold may be known already."""
        if not parts:
            return None
        scored = [] if first is None else [first]
        for number, part in enumerate(run.track(parts[len(scored) :], "out-of-fold scores"), start=1 + len(scored)):
            make = partial(self._fold_state, problem, corpus, part, chosen)
            state = run.stage(f"fold{number}", make, key={"c": chosen})
            scored.append(Scores.from_state(state, corpus.labels.names))
        rows = np.concatenate([held for _, held in parts])
        return HeldOut(problem.truth[rows], Scores.stack(scored), rows)

    def _fold_state(self, problem: Problem, corpus: Corpus, part: Fold, strength: float) -> State:
        return self._fold_scores(problem, corpus, part, [strength])[0].state()

    def _fold_scores(self, problem: Problem, corpus: Corpus, part: Fold, strengths: list[float]) -> list[Scores]:
        """Scores of a fold's held-out documents, for each C."""
        held = problem.features[part[1]]
        trained = self._train(problem, strengths, part[0])
        most = max(CANDIDATES, self.held_labels)
        return [self._score(one, held, corpus.labels.names, most) for one in trained]

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Margins of every label, or of the k best ones."""
        self.require_fitted()
        return self._score(self.trained, self._rows(texts), self.labels.names, self.clipped(k))

    def label_vectors(self) -> csr_array | None:
        """The weights of every separator, where each belongs to one label."""
        self.require_fitted()
        return csr_array(self.trained.weights.T) if isinstance(self.trained, Separators) else None

    def make_solver(self) -> Solver:
        """The solver's settings."""
        return Solver(balance=self.solver.balance, tolerance=self.solver.tolerance, prune=self.solver.prune, seed=self.seed)

    @abstractmethod
    def _begin(self, corpus: Corpus, parts: Folds, run: Run) -> Problem:
        """Fit the feature extraction, and return the features of the documents."""

    @abstractmethod
    def _rows(self, texts: Sequence[str]) -> csr_array:
        """The features of texts, one sparse row each."""

    def _train(self, problem: Problem, strengths: Sequence[float], rows: NDArray[Any] | None) -> list[Any]:
        """Train on some rows, for each C; every result has a ``state()``."""
        return train_separators(problem, strengths, self.make_solver(), rows=rows)

    def _score(self, trained: Any, features: csr_array, names: Sequence[str], k: int | None) -> Scores:
        """Score documents with a result of ``_train``."""
        if k is None or k >= len(names):
            return Scores.full(trained.all(features), names, "margin")
        labels, values = trained.best(features, k)
        return Scores.candidates(labels, values, names, "margin")

    def _trained_schema(self, features: str) -> Table:
        """What the state of a result of ``_train`` looks like; ``features`` is the name of the number of features."""
        return separators_schema(features)

    def _trained_from(self, state: State) -> Any:
        """Restore a result of ``_train`` from its state."""
        return Separators.from_state(state)


def _sample_of_labels(corpus: Corpus) -> Corpus:
    """The corpus with at most ``_SEARCHED`` of its labels, sampled evenly by frequency rank."""
    if len(corpus.labels) <= _SEARCHED:
        return corpus
    order = corpus.labels.frequency_order(corpus.truth)
    chosen = np.sort(order[:: -(-len(order) // _SEARCHED)])
    unknown = None if corpus.unknown is None else _columns(corpus.unknown, chosen)
    labels = LabelSet(corpus.labels[int(j)] for j in chosen)
    return replace(corpus, labels=labels, truth=_columns(corpus.truth, chosen), unknown=unknown)


def _columns(pairs: csr_array, chosen: NDArray[np.int64]) -> csr_array:
    """Some columns, with sorted rows."""
    found = csr_array(pairs[:, chosen])
    found.sort_indices()
    return found
