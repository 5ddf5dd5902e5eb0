"""The base class of linear models over tf-idf: text preprocessing, and the choice of the n-gram length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.groups.text_settings import TextSettings, TfidfSettings
from polytag.linear.prior import Growth
from polytag.linear.svm import Problem
from polytag.models.base.attribution import Attribution, linear_parts
from polytag.models.base.kept_rows import KeptRows, require_same
from polytag.models.base.linear_model import Folds, LinearModel
from polytag.models.model import State, group
from polytag.storage.schema import Table
from polytag.text.preprocess import prepare
from polytag.text.term_rows import TermRows
from polytag.text.tfidf import TFIDF, Tfidf
from polytag.text.word_shares import WordShares, word_shares

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

_FEWEST = 100  # with fewer documents, n-gram lengths cannot be compared


@dataclass
class TfidfModel(LinearModel):
    """Linear separators over tf-idf of words and n-grams."""

    texts: TextSettings = group(TextSettings)
    features: TfidfSettings = group(TfidfSettings)
    tfidf: Tfidf = field(init=False, repr=False, default_factory=Tfidf)

    def _begin(self, corpus: Corpus, parts: Folds, run: Run) -> Problem:
        """The tf-idf rows; of several n-gram lengths, the one with the best metric on the first fold."""
        texts = self._prepared(corpus.texts)
        if self.words is not None:
            self.tfidf = self.words
            return Problem.of(self.tfidf.transform(texts), corpus)
        best, found = -1.0, None
        lengths = sorted(set(self.features.ngrams)) if len(corpus) >= _FEWEST and parts else [min(self.features.ngrams)]
        for length in lengths:
            tfidf = self._vocabulary(length).fit(texts)
            problem = Problem.of(tfidf.transform(texts), corpus)
            value = 0.0
            if len(lengths) > 1:
                value = self._search(problem, corpus, parts[0], [sorted(self.solver.c)[len(self.solver.c) // 2]])["values"][0]
                run.log("ngrams", {"ngrams": length, "features": len(tfidf.keys), self.optimise: value})
            if value > best:
                best, found, self.tfidf = value, problem, tfidf
        assert found is not None
        return found

    def _rows(self, texts: Sequence[str]) -> csr_array:
        return self.tfidf.transform(self._prepared(texts))

    def _grow_features(self, earlier: TfidfModel, texts: Sequence[str]) -> Growth:
        for mine, other in ((self.texts, earlier.texts), (self.features, earlier.features)):
            require_same(mine, other, ("preprocess", "max_words", "lowercase", "sublinear"))
        old, self.tfidf = earlier.tfidf, earlier.tfidf.grown(self._prepared(texts))
        return Growth(self.tfidf.places(old), self.tfidf.growth(old), len(self.tfidf.keys))

    def _keep(self, corpus: Corpus) -> KeptRows:
        return KeptRows(corpus.truth, TermRows.of(self._prepared(corpus.texts), self.tfidf))

    def _kept_features(self, kept: KeptRows, texts: Sequence[str]) -> csr_array:
        assert kept.terms is not None
        self.tfidf = kept.terms.vocabulary(self.tfidf, self._prepared(texts))
        return self._stored_features(kept)

    def _stored_features(self, kept: KeptRows) -> csr_array:
        assert kept.terms is not None
        return kept.terms.weighted(self.tfidf)

    def _prepared(self, texts: Sequence[str]) -> Sequence[str]:
        return prepare(texts, self.texts.preprocess, self.texts.max_words)

    def _vocabulary(self, ngrams: int) -> Tfidf:
        return Tfidf.of(self.features, ngrams)

    def attribute(self, text: str, labels: NDArray[np.int64], *, exact: bool = False) -> Attribution:
        """Exact contributions of the words: the margin is the bias plus their sum."""
        self.require_fitted()
        return self._attributed(word_shares(self.tfidf, text, self.texts), labels)

    def _attributed(self, found: WordShares, labels: NDArray[np.int64]) -> Attribution:
        """Contributions to the margins of labels, from the words' shares of the features."""
        return linear_parts(found, self.trained.weights, labels, self.trained.bias)

    def state(self) -> State:
        """The vocabulary and the weights."""
        self.require_fitted()
        return {"tfidf": self.tfidf.state(), "weights": self.trained.state(), **self._prior_state()}

    def schema(self) -> Table:
        """Vocabulary and weights; the kernels use one row of weights per word."""
        learning = self._learning_schema("words")
        return Table({"tfidf": TFIDF, "weights": self._trained_schema("words"), **learning}, optional=frozenset(learning))

    def restore(self, state: State) -> None:
        """Restore the vocabulary and the weights."""
        self.tfidf = self._vocabulary(1)
        self.tfidf.restore(state["tfidf"])
        self.trained = self._trained_from(state["weights"])
        self._restore_prior(state)
