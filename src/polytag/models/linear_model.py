"""What the linear models share: the solver's settings, how C is chosen, and out-of-fold scores. One separator per label."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision import reached
from polytag.labels import LabelSet
from polytag.linear.svm import Problem, Separators, Solver, train_separators
from polytag.models.model import HeldOut, Model, State, param
from polytag.scores import Scores

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

Fold: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
Folds: TypeAlias = list[Fold]
_SEARCHED = 160  # labels on which settings are compared
CANDIDATES = 50  # labels per document that held-out scores keep; thresholds need no more


@dataclass
class LinearModel(Model):
    """Linear separators on any features; choices are made on out-of-fold scores over train and validation together."""

    c: list[float] = param(
        [0.125, 0.25, 0.5, 1.0, 2.0], "inverse regularisation strength; several are compared on held-out documents", minimum=1e-6
    )
    balance: float = param(0.3, "weight of positives: (negatives / positives) to this power; 1 balanced", minimum=0, maximum=1)
    folds: int = param(3, "folds for the out-of-fold scores", minimum=2, maximum=20)
    tolerance: float = param(0.3, "largest violation at which the solver stops", minimum=1e-6)
    prune: float = param(0.01, "weights smaller than this are dropped", minimum=0)
    trained: Any = field(init=False, repr=False, default=None)

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Choose C on a held-out part, score all documents out of fold, then train on everything."""
        corpus = train if valid is None else train.concat(valid)
        parts = corpus.folds(self.folds, seed=self.seed) if len(corpus) >= 2 * self.folds else []
        problem = self._begin(corpus, parts, run)
        chosen, first = self._strength(problem, corpus, parts, run)
        held = self._out_of_fold(problem, corpus, parts, chosen, first, run)
        run.log("final", {"c": chosen, "documents": len(corpus), "features": int(problem.features.shape[1])})
        self.trained = self._train(problem, [chosen], None)[0]
        self.labels = corpus.labels
        return held

    def _strength(self, problem: Problem, corpus: Corpus, parts: Folds, run: Run) -> tuple[float, Scores | None]:
        """The C that decides best on the first held-out part, and the scores of that part if all labels took part."""
        strengths = sorted(set(self.c))
        if len(strengths) == 1 or not parts:
            return strengths[len(strengths) // 2], None
        found = run.stage("strength", partial(self._search, problem, corpus, parts[0], strengths))
        run.log("strength", {"c": strengths, self.optimise: found["values"]})
        chosen = strengths[int(np.argmax(found["values"]))]
        return chosen, None if found["scores"] is None else Scores.from_state(found["scores"], corpus.labels.names)

    def _search(self, problem: Problem, corpus: Corpus, part: Fold, strengths: list[float]) -> State:
        few = _sample_of_labels(corpus)
        scored = self._fold_scores(Problem(problem.features, few.truth) if few is not corpus else problem, few, part, strengths)
        values = self._values(few, part, scored)
        return {"values": values, "scores": scored[int(np.argmax(values))].state() if few is corpus else None}

    def _values(self, corpus: Corpus, part: Fold, scored: Sequence[Scores]) -> list[float]:
        """What one threshold (or the model's own sets) makes of each of several scores of a held-out part."""
        truth = corpus.truth[part[1]]
        least = int(np.diff(corpus.truth.indptr).min())
        return [reached(scores, truth, corpus.labels, self.optimise, least) for scores in scored]

    def _out_of_fold(
        self, problem: Problem, corpus: Corpus, parts: Folds, chosen: float, first: Scores | None, run: Run
    ) -> HeldOut | None:
        """The scores of every document by a model that did not see it; those of the first part may be there already."""
        if not parts:
            return None
        scored = [] if first is None else [first]
        for number, part in enumerate(run.track(parts[len(scored) :], "out-of-fold scores"), start=1 + len(scored)):
            make = partial(self._fold_state, problem, corpus, part, chosen)
            state = run.stage(f"fold{number}", make, key={"c": chosen})
            scored.append(Scores.from_state(state, corpus.labels.names))
        return HeldOut(problem.truth[np.concatenate([held for _, held in parts])], Scores.stack(scored))

    def _fold_state(self, problem: Problem, corpus: Corpus, part: Fold, strength: float) -> State:
        return self._fold_scores(problem, corpus, part, [strength])[0].state()

    def _fold_scores(self, problem: Problem, corpus: Corpus, part: Fold, strengths: list[float]) -> list[Scores]:
        """Scores of a part's held-out documents, once for each strength."""
        held = problem.features[part[1]]
        trained = self._train(problem, strengths, part[0])
        return [self._score(one, held, corpus.labels.names, CANDIDATES) for one in trained]

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Margins of every label, or of the k best ones."""
        self.require_fitted()
        return self._score(self.trained, self._rows(texts), self.labels.names, k)

    def solver(self) -> Solver:
        """The solver's settings."""
        return Solver(balance=self.balance, tolerance=self.tolerance, prune=self.prune, seed=self.seed)

    @abstractmethod
    def _begin(self, corpus: Corpus, parts: Folds, run: Run) -> Problem:
        """Learn what the features need, and give the features of the documents."""

    @abstractmethod
    def _rows(self, texts: Sequence[str]) -> csr_array:
        """The features of texts, a sparse row each."""

    def _train(self, problem: Problem, strengths: Sequence[float], rows: NDArray[Any] | None) -> list[Any]:
        """Train on some rows, once for each strength; each result has a ``state()``."""
        return train_separators(problem, strengths, self.solver(), rows=rows)

    def _score(self, trained: Any, features: csr_array, names: Sequence[str], k: int | None) -> Scores:
        """Score documents with what ``_train`` returned."""
        if k is None or k >= len(names):
            return Scores.full(trained.all(features), names, "margin")
        labels, values = trained.best(features, k)
        return Scores.candidates(labels, values, names, "margin")

    def _trained_from(self, state: State) -> Any:
        """What ``_train`` returned, from its state."""
        return Separators.from_state(state)


def _sample_of_labels(corpus: Corpus) -> Corpus:
    """The corpus with at most ``_SEARCHED`` of its labels, frequent and rare ones alike."""
    if len(corpus.labels) <= _SEARCHED:
        return corpus
    order = corpus.labels.frequency_order(corpus.truth)
    chosen = np.sort(order[:: -(-len(order) // _SEARCHED)])
    truth = csr_array(corpus.truth[:, chosen])
    truth.sort_indices()
    return replace(corpus, labels=LabelSet(corpus.labels[int(j)] for j in chosen), truth=truth)
