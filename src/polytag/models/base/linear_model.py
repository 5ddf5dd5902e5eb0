"""The base class of linear models: solver settings, choice of C, out-of-fold scores; one separator per label."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from polytag.config.groups.learning_settings import LearningSettings
from polytag.config.groups.solver_settings import HoldOutSettings, SolverSettings
from polytag.decision.decision import reached
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.linear.prior import Growth, Prior, learn_on, prior_schema, widened
from polytag.linear.svm import Problem, Separators, Solver, separators_schema, train_separators
from polytag.linear.text_separators import TEXT_WEIGHTS, LabelTexts, Relatives, Source, TextWeights
from polytag.models.base.kept_rows import KEPT, KeptRows, require_known_first
from polytag.models.base.text_match import fit_text_weights, texts_of
from polytag.models.model import Examples, Extension, HeldOut, Model, State, group, model_name
from polytag.scores import Scores
from polytag.storage.schema import Schema, Table
from polytag.text.preprocess import prepare

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.relabelling.origins import Origins
    from polytag.run import Run

Fold: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
Folds: TypeAlias = list[Fold]
_SEARCHED = 160  # maximum number of labels on which settings are compared
CANDIDATES = 50  # labels per document in held-out scores; thresholds need no more


@dataclass
class LinearModel(Model):
    """Linear separators on any features; settings are chosen on out-of-fold scores of training and validation documents."""

    learns_from_valid: ClassVar[bool] = True
    judged: ClassVar[tuple[str, ...]] = ("weights", "unknown", "soft")
    continuable: ClassVar[bool] = True
    steady: ClassVar[bool] = True

    solver: SolverSettings = group(SolverSettings)
    held_out: HoldOutSettings = group(HoldOutSettings, without=("holdout", "refit"), limits={"folds": (2, 20)})
    learning: LearningSettings = group(LearningSettings)
    trained: Any = field(init=False, repr=False, default=None)
    prior: Prior | None = field(init=False, repr=False, default=None)
    kept: KeptRows | None = field(init=False, repr=False, default=None)
    matching: TextWeights | None = field(init=False, repr=False, default=None)
    start: LinearModel | None = field(init=False, repr=False, default=None)
    words: Any = field(init=False, repr=False, default=None)
    """The words to use, in place of those that ``fit`` would choose among the texts of all documents."""
    known: Any = field(init=False, repr=False, default=None)
    """While learning on without old rows: the earlier result of ``_train``, for as many features and labels as now."""

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Choose C on the first fold, compute out-of-fold scores of all documents, then train on all documents.

        After ``start_from``, the rows of earlier documents count too if they were kept. Else the earlier weights are the prior.
        """
        corpus, problem = train if valid is None else train.concat(valid), None
        if self.start is not None:
            corpus, problem = self._begin_on(self.start, corpus)
        parts = corpus.folds(self.held_out.folds, seed=self.seed) if len(corpus) >= 2 * self.held_out.folds else []
        if problem is None:
            problem = self._begin(corpus, parts, run)
            self.kept = self._keep(corpus) if self.learning.keep_features else None
        chosen, first = self._strength(problem, corpus, parts, run)
        held = self._out_of_fold(problem, corpus, parts, chosen, first, run)
        run.log("final", {"c": chosen, "documents": len(corpus), "features": int(problem.features.shape[1])})
        self._conclude(problem, corpus.labels, chosen)
        return held if held is None or self.start is None else held._replace(rows=None)

    def refit(self, corpus: Corpus, strength: float, run: Run) -> None:
        """Train on all documents with a C that is known, without out-of-fold scores."""
        problem = self._begin(corpus, [], run)
        self.kept = self._keep(corpus) if self.learning.keep_features else None
        self._conclude(problem, corpus.labels, strength)

    def _conclude(self, problem: Problem, labels: LabelSet, strength: float) -> None:
        """Train on all documents, and fit how texts of labels are compared if rows are kept."""
        self._finish(problem, strength)
        self.labels = labels
        self.matching = self._fit_matching(problem) if self.kept is not None else None

    def take_words(self, other: Any, texts: Sequence[str]) -> None:
        """Let ``fit`` use the words of a trained model, and those of further texts as far as there is room for more."""
        other.require_fitted()
        self.words = other.tfidf
        if len(texts) and len(other.tfidf.keys):
            self.words = other.tfidf.grown(prepare(texts, other.texts.preprocess, other.texts.max_words))

    def _finish(self, problem: Problem, strength: float) -> None:
        """Train on all documents, and keep what learning on needs."""
        self.trained = self._train(problem, [strength], None)[0]
        solved, separators = self._as_solved(problem, self.trained)
        if self.known is None or self.prior is None:
            self.prior = Prior.empty(strength, *separators.shape)
        self.prior = self.prior.after(solved, separators)
        self.known = None

    # -- learning on -----------------------------------------------------------------------------------------------

    def start_from(self, other: Self) -> None:
        """Let ``fit`` continue from a trained model: its vocabulary, weights and labels, with new ones added."""
        other.require_fitted()
        other.require_learnable()
        if self.learning.keep_features and other.kept is None:
            raise ConfigError("the earlier run kept no features; leave keep_features out, or train that run with it")
        self.start = other

    def require_learnable(self) -> None:
        """Raise unless the model has what learning on needs."""
        if self.prior is None:
            raise ConfigError(f"this {model_name(self)!r} was trained by an earlier version and cannot learn on; train it again")

    def learn(self, corpus: Corpus) -> None:
        """Learn from a few more documents, whose label set starts with the known labels; takes well under a second."""
        self.require_fitted()
        self.require_learnable()
        assert self.prior is not None
        kept = self.kept and self.kept.joined(self._keep(corpus))
        self._finish(self._grow(self, corpus), self.prior.strength)
        self.labels, self.kept = corpus.labels, kept

    def _begin_on(self, earlier: LinearModel, corpus: Corpus) -> tuple[Corpus, Problem]:
        """The documents to learn from after ``start_from``, and their features: with the earlier ones, if those were kept."""
        require_known_first(corpus.labels, earlier.labels)
        if earlier.kept is None:
            return corpus, self._grow(earlier, corpus)
        self._grow_features(earlier, corpus.texts)  # the settings of these features, and their encoder
        self.kept = earlier.kept.joined(self._keep(corpus))
        return self.kept.corpus(corpus.labels), Problem(self._kept_features(self.kept, corpus.texts), self.kept.truth)

    def _grow(self, earlier: LinearModel, corpus: Corpus) -> Problem:
        """Take over a trained model, for the words and labels of more documents too; return their features."""
        growth = self._grow_features(earlier, corpus.texts)
        self.known, self.prior = self._widened(earlier, growth, corpus.truth)
        return Problem(self._rows(corpus.texts), corpus.truth)

    @abstractmethod
    def _grow_features(self, earlier: Any, texts: Sequence[str]) -> Growth:
        """Take over the feature extraction of a trained model, with the words of more texts."""

    @abstractmethod
    def _keep(self, corpus: Corpus) -> KeptRows:
        """What is kept of documents for learning on."""

    @abstractmethod
    def _kept_features(self, kept: KeptRows, texts: Sequence[str]) -> csr_array:
        """Choose the words of kept documents again, the last of which have these texts; return their features."""

    def _widened(self, earlier: Any, growth: Growth, truth: csr_array) -> tuple[Any, Prior]:
        """A result of ``_train`` and its prior, for more features and for the labels of more documents."""
        n_labels = int(truth.shape[1])
        return widened(earlier.trained, growth, n_labels), earlier.prior.widened(growth, n_labels)

    def _as_solved(self, problem: Problem, trained: Any) -> tuple[Problem, Separators]:
        """The problem that the solver had, and the separators that it found."""
        return problem, trained

    def _prior_state(self) -> State:
        """What learning on and new labels need, for an artefact."""
        parts = {"prior": self.prior, "kept": self.kept, "matching": self.matching}
        return {name: part.state() for name, part in parts.items() if part is not None}

    def _restore_prior(self, state: State) -> None:
        self.prior = Prior.from_state(state["prior"]) if "prior" in state else None
        self.kept = KeptRows.from_state(state["kept"]) if "kept" in state else None
        self.matching = TextWeights.from_state(state["matching"]) if "matching" in state else None

    def transferred(self, labels: LabelSet, origins: Origins) -> Self:
        """A copy whose labels have the mean weights of the labels that they come from, and all their documents."""
        if not isinstance(self.trained, Separators) or self.prior is None:
            return super().transferred(labels, origins)
        found, sources = copy.copy(self), csr_array(origins.matrix).astype(np.float32)
        share = csr_array(sources.multiply(1 / np.diff(origins.starts)[:, None]).astype(np.float32))  # (labels, trained)
        weights = csr_array(self.trained.weights @ share.T)
        weights.sort_indices()
        found.trained = Separators(weights, np.asarray(share @ self.trained.bias, dtype=np.float32))
        found.prior = self.prior.moved(sources, share)
        if self.kept is not None:
            truth = csr_array(self.kept.truth @ sources.T)
            truth.sort_indices()
            truth.data[:] = 1
            found.kept = replace(self.kept, truth=truth)
        found.labels = labels
        return found

    # -- new labels ------------------------------------------------------------------------------------------------

    def extend(self, labels: LabelSet, examples: Examples | None = None) -> Extension:
        """Make separators of new labels from their texts, their examples, and the kept rows, which nobody labelled with them."""
        self.require_fitted()
        if not self.extendable:
            return super().extend(labels, examples)
        if self.kept is None or self.matching is None or self.prior is None:
            raise ConfigError(
                f"this {model_name(self)!r} kept no features; train it with --keep-features, then labels can be added"
            )
        source = Source.of(self._stored_features(self.kept), self.dense_features())
        shown = examples or Examples([""], csr_array(np.zeros((1, len(labels)), dtype=np.float32)))
        known = Relatives.of(self._label_texts(self.labels), self.kept.truth, source)
        texts = self._label_texts(labels)
        made, thresholds = self.matching.made(texts, source, known, self._rows(shown.texts), csr_array(shown.truth.T))
        whole = csr_array(hstack([self.trained.weights, made.weights], format="csr"))
        self.trained = Separators(whole, np.concatenate([self.trained.bias, made.bias]))
        self.labels = self.labels.union(labels)
        self.prior = self.prior.widened(Growth.none(*self.trained.shape[:1]), len(self.labels))
        self.kept = self.kept.widened(len(self.labels))
        return Extension(thresholds, log_odds=True)

    def dense_features(self) -> int:
        """The number of features that are the vector of a text; they come first."""
        return 0

    @abstractmethod
    def _stored_features(self, kept: KeptRows) -> csr_array:
        """The features of kept documents, with the words of now."""

    def _label_texts(self, labels: LabelSet) -> LabelTexts:
        return LabelTexts(*(self._rows(texts) for texts in texts_of(labels)))

    def _fit_matching(self, problem: Problem) -> TextWeights | None:
        """Fit how texts of labels are compared with documents, if separators can be made from them."""
        if not self.extendable:
            return None
        return fit_text_weights(problem, self.dense_features(), self._label_texts(self.labels), self.seed)

    # -- training --------------------------------------------------------------------------------------------------

    def _strength(self, problem: Problem, corpus: Corpus, parts: Folds, run: Run) -> tuple[float, Scores | None]:
        """The C with the best metric on the first fold, and the scores of that fold if they cover all labels."""
        if self.known is not None and self.prior is not None:
            return self.prior.strength, None
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
        least = corpus.fewest_labels
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
        if self.known is not None and self.prior is not None:
            return [learn_on(self.known, self.prior, problem, self.make_solver(), rows=rows)]
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

    def _learning_schema(self, features: str, labels: str = "labels") -> dict[str, Schema]:
        """What learning on needs; earlier versions did not save it."""
        return {"prior": prior_schema(features, labels), "kept": KEPT, "matching": TEXT_WEIGHTS}

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
    soft = None if corpus.soft is None else _columns(corpus.soft, chosen)
    labels = LabelSet(corpus.labels[int(j)] for j in chosen)
    return replace(corpus, labels=labels, truth=_columns(corpus.truth, chosen), unknown=unknown, soft=soft)


def _columns(pairs: csr_array, chosen: NDArray[np.int64]) -> csr_array:
    """Some columns, with sorted rows."""
    found = csr_array(pairs[:, chosen])
    found.sort_indices()
    return found
