"""Labels of the most similar training documents, or labels with similar texts: no training, and a part of mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array, identity

from polytag.config.groups.text_settings import TextSettings, TfidfSettings
from polytag.kernels.nearest_rows import Nearest as Found
from polytag.kernels.nearest_rows import nearest_by_columns
from polytag.kernels.sparse_rows import stack_rows
from polytag.models.model import HeldOut, Model, State, group, param
from polytag.scores import Scores
from polytag.storage.schema import Sparse, Table
from polytag.text.preprocess import prepare
from polytag.text.tfidf import TFIDF, Tfidf
from polytag.xmc.index import label_texts

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

_FREQUENT = 100  # labels whose frequencies are the scores of a text without known words
_HELD_OUT = 20_000  # training documents that are compared with all others, if there are no validation documents


@dataclass
class Nearest(Model):
    """The most similar training documents vote for their labels, by the cosine of tf-idf rows; or labels vote for themselves.

    The text of a label, its name and description, is a voter for this label alone. So labels without documents can be found. The
    score of a label is the share of the votes that it gets, so it is a probability, and exactly 0 for most labels. Of a text
    without any known word, it is the frequency of the label. The artefact has the words of all training documents, but not their
    order.
    """

    neighbours: int = param(50, "number of similar voters", minimum=1, first=True)
    voters: str = param(
        "documents", "what votes: training documents for their labels, the texts of labels for themselves, or both",
        choices=("documents", "labels", "both"), first=True,
    )  # fmt: skip
    sharpness: float = param(
        2.0, "exponent of the cosine in the weight of a vote; 0 = all votes count the same", minimum=0, maximum=100, first=True
    )
    texts: TextSettings = group(TextSettings)
    features: TfidfSettings = group(TfidfSettings, without=("ngrams",))
    tfidf: Tfidf = field(init=False, repr=False, default_factory=Tfidf)
    words: csr_array | None = field(init=False, repr=False, default=None)
    """The tf-idf of all voters (words, voters)."""
    voting: csr_array | None = field(init=False, repr=False, default=None)
    """Their labels, then the frequencies of labels (voters + 1, labels)."""

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Index the voters; without validation documents, each training document is held out in turn, up to a number."""
        order = np.random.default_rng(self.seed).permutation(len(train)) if len(train) > _HELD_OUT else np.arange(len(train))
        documents = self._prepared([train.texts[row] for row in order.tolist()])
        names = self._prepared(label_texts(train.labels)) if self.voters != "documents" else []
        self.tfidf = self._vocabulary().fit([*documents, *names])
        rows, truth = self.tfidf.transform(documents), csr_array(train.truth[order])
        self.labels = train.labels
        own = self.tfidf.transform(names), csr_array(identity(len(train.labels), dtype=np.float32))
        voters = {"documents": [(rows, truth)], "labels": [own], "both": [(rows, truth), own]}[self.voters]
        words = stack_rows([words for words, _ in voters])
        self._index(csr_array(words.T.tocsr()), stack_rows([given for _, given in voters]), _frequencies(truth))
        run.log("indexed", {"voters": words.shape[0], "words": len(self.tfidf.keys)})
        if valid is not None:
            return HeldOut(valid.truth, self.score(valid.texts))
        if len(train) < 2:
            return None
        most = min(len(train), _HELD_OUT)
        assert self.words is not None
        itself = -1 if self.voters == "labels" else 0
        found = nearest_by_columns(csr_array(rows[:most]), self.words, self._count(), itself=itself)
        return HeldOut(csr_array(truth[:most]), self._voted(found), order[:most])

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """The labels that get a vote."""
        self.require_fitted()
        assert self.words is not None
        k = self.clipped(k)
        rows = self.tfidf.transform(self._prepared(texts))
        scores = self._voted(nearest_by_columns(rows, self.words, self._count()))
        return scores if k is None else scores.best(k)

    def _index(self, words: csr_array, given: csr_array, frequencies: csr_array) -> None:
        """Store the voters, and the frequencies of labels as one more."""
        self.words, self.voting = words, stack_rows([given, frequencies])

    def _count(self) -> int:
        assert self.words is not None
        return max(1, min(self.neighbours, int(self.words.shape[1])))

    def _voted(self, found: Found) -> Scores:
        """The share of the votes of every label."""
        assert self.voting is not None
        voters = int(self.voting.shape[0]) - 1
        cast = found.rows >= 0
        weights = np.where(cast, found.similarity.astype(np.float64) ** self.sharpness, 0.0)  # (texts, neighbours)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        alone = ~cast.any(axis=1)  # these get the frequencies, as the vote of one more document
        weights[alone, 0], cast[alone, 0] = 1.0, True
        chosen = np.where(found.rows < 0, voters, found.rows)
        indptr = np.concatenate([[0], np.cumsum(cast.sum(axis=1))])
        votes = csr_array((weights[cast].astype(np.float32), chosen[cast], indptr), shape=(len(chosen), voters + 1))
        shares = csr_array(votes @ self.voting)
        shares.sort_indices()
        shares.data = np.minimum(shares.data, 1).astype(np.float32)  # rounding can exceed 1
        return Scores(shares, self.labels.names, "probability", 0.0)

    def _prepared(self, texts: Sequence[str]) -> Sequence[str]:
        return prepare(texts, self.texts.preprocess, self.texts.max_words)

    def _vocabulary(self) -> Tfidf:
        return Tfidf.of(self.features, 1)

    def state(self) -> State:
        """The vocabulary, the words of the voters and their labels; their frequencies, unless they follow from it."""
        self.require_fitted()
        assert self.voting is not None
        saved = {"tfidf": self.tfidf.state(), "words": self.words, "truth": csr_array(self.voting[:-1])}
        return saved if self.voters == "documents" else {**saved, "frequencies": csr_array(self.voting[-1:])}

    def schema(self) -> Table:
        """The kernel uses one row of words per word of the vocabulary, and one column per voter."""
        words, truth = Sparse(("words", "documents")), Sparse(("documents", "labels"), ascending=True)
        more = {} if self.voters == "documents" else {"frequencies": Sparse((1, "labels"), ascending=True)}
        return Table({"tfidf": TFIDF, "words": words, "truth": truth, **more}, own=frozenset({"documents"}))

    def restore(self, state: State) -> None:
        """Restore the vocabulary and the voters."""
        self.tfidf = self._vocabulary()
        self.tfidf.restore(state["tfidf"])
        own = state["frequencies"] if self.voters != "documents" else _frequencies(state["truth"])
        self._index(state["words"], state["truth"], own)


def _frequencies(truth: csr_array) -> csr_array:
    """The relative frequencies of the most frequent labels (1, labels)."""
    counts = np.bincount(truth.indices, minlength=truth.shape[1])
    best = np.sort(np.argsort(-counts, kind="stable")[:_FREQUENT]).astype(np.int32)
    values = (counts[best] / max(1, truth.shape[0])).astype(np.float32)
    return csr_array((values, best, np.array([0, len(best)])), shape=(1, truth.shape[1]))
