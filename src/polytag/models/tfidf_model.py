"""What the linear models over tf-idf share: how text becomes words, and which n-grams are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scipy.sparse import csr_array

from polytag.linear.svm import Problem, Separators
from polytag.models.linear_model import Folds, LinearModel
from polytag.models.model import State, param
from polytag.text.prepare import PREPARATIONS, prepare
from polytag.text.tfidf import Tfidf

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

_FEWEST = 100  # documents below which comparing n-grams says nothing


@dataclass
class TfidfModel(LinearModel):
    """Linear separators over tf-idf of words and n-grams."""

    preprocess: str = param(
        "none", "none, clean (lower case, no punctuation) or numbers (clean, and all numbers alike)", choices=PREPARATIONS
    )
    max_words: int = param(0, "words of a text that are read; 0 for all", minimum=0)
    ngrams: list[int] = param(
        [1, 2], "longest run of words that is a feature; several are compared on held-out documents", minimum=1, maximum=5
    )
    min_df: int = param(2, "documents a word must occur in", minimum=1)
    max_features: int = param(300_000, "most frequent words and runs kept; 0 for all", minimum=0)
    lowercase: bool = param(True, "whether words are compared in lower case")
    sublinear: bool = param(True, "whether a word's count enters as 1 + log(count)")
    tfidf: Tfidf = field(init=False, repr=False, default_factory=Tfidf)

    def _begin(self, corpus: Corpus, parts: Folds, run: Run) -> Problem:
        """The tf-idf rows; of several lengths of n-grams, the one that decides best on the first held-out part."""
        texts = prepare(corpus.texts, self.preprocess, self.max_words)
        best, found = -1.0, None
        lengths = sorted(set(self.ngrams)) if len(corpus) >= _FEWEST and parts else [min(self.ngrams)]
        for length in lengths:
            tfidf = self._vocabulary(length).fit(texts)
            problem = Problem(tfidf.transform(texts), corpus.truth)
            value = 0.0
            if len(lengths) > 1:
                value = self._search(problem, corpus, parts[0], [sorted(self.c)[len(self.c) // 2]])["values"][0]
                run.log("ngrams", {"ngrams": length, "features": len(tfidf.keys), self.optimise: value})
            if value > best:
                best, found, self.tfidf = value, problem, tfidf
        assert found is not None
        return found

    def _rows(self, texts: Sequence[str]) -> csr_array:
        return self.tfidf.transform(prepare(texts, self.preprocess, self.max_words))

    def _vocabulary(self, ngrams: int) -> Tfidf:
        return Tfidf(ngrams, self.min_df, self.max_features, self.lowercase, self.sublinear)

    def state(self) -> State:
        """Vocabulary and weights."""
        self.require_fitted()
        return {"tfidf": self.tfidf.state(), "weights": self.trained.state()}

    def restore(self, state: State) -> None:
        """Take back vocabulary and weights."""
        self.tfidf = self._vocabulary(1)
        self.tfidf.restore(state["tfidf"])
        self.trained = self._trained_from(state["weights"])
        separators: Separators = getattr(self.trained, "separators", self.trained)
        if not len(self.tfidf.keys) == len(self.tfidf.idf) == separators.shape[0]:  # compiled code trusts this
            raise ValueError("its weights are about another number of words")
