"""What the linear models over tf-idf share: text settings, the solver's settings, and how the strength C is chosen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision import METRICS, Decision
from polytag.linear.svm import Problem, Solver
from polytag.models.model import HeldOut, Model, State, param
from polytag.scores import Scores
from polytag.text.prepare import PREPARATIONS, prepare
from polytag.text.tfidf import Tfidf

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

CANDIDATES = 100  # labels per document that held-out scores keep; thresholds need no more


@dataclass
class LinearModel(Model):
    """Tf-idf and linear separators. C is chosen on out-of-fold scores over train and validation; the model is refitted on both."""

    c: list[float] = param([0.25, 0.5, 1.0, 2.0], "inverse regularisation strength; several are compared on held-out documents", minimum=1e-6)
    balance: float = param(0.5, "weight of positives: (negatives / positives) to this power; 0 none, 1 balanced", minimum=0, maximum=1)
    folds: int = param(3, "folds for the out-of-fold scores", minimum=2, maximum=20)
    tolerance: float = param(0.3, "largest violation at which the solver stops", minimum=1e-6)
    prune: float = param(0.01, "weights smaller than this are dropped", minimum=0)
    preprocess: str = param("none", "none, clean (lower case, no punctuation) or numbers (clean, and all numbers alike)", choices=PREPARATIONS)
    max_words: int = param(0, "words of a text that are read; 0 for all", minimum=0)
    ngrams: int = param(1, "longest run of words that is a feature", minimum=1, maximum=5)
    min_df: int = param(2, "documents a word must occur in", minimum=1)
    max_features: int = param(0, "most frequent words kept; 0 for all", minimum=0)
    lowercase: bool = param(True, "whether words are compared in lower case")
    sublinear: bool = param(True, "whether a word's count enters as 1 + log(count)")
    tfidf: Tfidf = field(init=False, repr=False, default_factory=Tfidf)
    trained: Any = field(init=False, repr=False, default=None)

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Choose C on out-of-fold scores, then train on everything."""
        corpus = train if valid is None else train.concat(valid)
        self.tfidf = Tfidf(self.ngrams, self.min_df, self.max_features, self.lowercase, self.sublinear)
        texts = prepare(corpus.texts, self.preprocess, self.max_words)
        features = self.tfidf.fit(texts).transform(texts)
        problem = Problem(features, corpus.truth)
        least = int(np.diff(corpus.truth.indptr).min(initial=0))
        held, chosen = self._select(problem, corpus, least, run)
        run.log("final", {"c": chosen, "documents": len(corpus), "features": len(self.tfidf.keys)})
        self.trained = self._train(problem, [chosen], None)[0]
        self.labels = corpus.labels
        return held

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Margins of every label, or of the k best ones."""
        self.require_fitted()
        features = self.tfidf.transform(prepare(texts, self.preprocess, self.max_words))
        return self._score(self.trained, features, self.labels.names, k)

    def _select(self, problem: Problem, corpus: Corpus, least: int, run: Run) -> tuple[HeldOut | None, float]:
        """Out-of-fold scores for every C, and the C whose scores can be decided best."""
        count = min(self.folds, len(corpus))
        if count < 2:
            return None, self.c[len(self.c) // 2]
        parts = corpus.folds(count, seed=self.seed)
        strengths = sorted(self.c)
        scored: list[list[Scores]] = [[] for _ in strengths]
        for number, (train_rows, held_rows) in enumerate(run.track(parts, "out-of-fold scores")):
            run.log("fold", {"fold": number + 1, "of": count})
            held_features = problem.features[held_rows]
            for at, trained in enumerate(self._train(problem, strengths, train_rows)):
                scored[at].append(self._score(trained, held_features, corpus.labels.names, CANDIDATES))
        truth = problem.truth[np.concatenate([held for _, held in parts])]
        stacked = [Scores.stack(part) for part in scored]
        values = [self._value(scores, truth, corpus, least) for scores in stacked]
        run.log("strength", {"c": strengths, self.optimise: values})
        best = int(np.argmax(values))
        return HeldOut(truth, stacked[best]), strengths[best]

    def _value(self, scores: Scores, truth: csr_array, corpus: Corpus, least: int) -> float:
        """What one threshold (or the model's own sets) makes of these scores."""
        rule = "decoded" if scores.decoded is not None else "threshold"
        decision = Decision(rule, self.optimise, min_labels=least).fit(scores, truth, corpus.labels)
        return METRICS[self.optimise](truth, decision.decide(scores, corpus.labels))

    def solver(self) -> Solver:
        """The solver's settings."""
        return Solver(balance=self.balance, tolerance=self.tolerance, prune=self.prune, seed=self.seed)

    def state(self) -> State:
        """Vocabulary and weights."""
        self.require_fitted()
        return {"tfidf": self.tfidf.state(), "weights": self.trained.state()}

    def restore(self, state: State) -> None:
        """Take back vocabulary and weights."""
        self.tfidf = Tfidf(self.ngrams, self.min_df, self.max_features, self.lowercase, self.sublinear)
        self.tfidf.restore(state["tfidf"])
        self.trained = self._trained_from(state["weights"])

    @abstractmethod
    def _train(self, problem: Problem, strengths: Sequence[float], rows: NDArray[Any] | None) -> list[Any]:
        """Train on some rows, once for each strength; each result has a ``state()``."""

    @abstractmethod
    def _score(self, trained: Any, features: csr_array, names: Sequence[str], k: int | None) -> Scores:
        """Score documents with what ``_train`` returned."""

    @abstractmethod
    def _trained_from(self, state: State) -> Any:
        """What ``_train`` returned, from its state."""
