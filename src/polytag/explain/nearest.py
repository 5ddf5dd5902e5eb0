"""The documents of a corpus that have a label and are nearest to a text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from polytag.corpus import Corpus
from polytag.explain.explanation import Explanation, Neighbour
from polytag.text.tfidf import Tfidf


class Neighbourhood:
    """The tf-idf rows of a corpus, in which the nearest documents with a label are found."""

    def __init__(self, corpus: Corpus) -> None:
        """Learn the vocabulary of the corpus and compute its rows."""
        self.corpus = corpus
        self.tfidf = Tfidf().fit(corpus.texts)
        self.rows = self.tfidf.transform(corpus.texts)
        self.holders = corpus.truth.tocsc()

    def added_to(self, found: Explanation, count: int) -> Explanation:
        """The explanation, with the nearest documents of each of its labels."""
        labels = tuple(replace(one, near=self.nearest(found.text, one.label, count)) for one in found.labels)
        return replace(found, labels=labels)

    def nearest(self, text: str, label: str, count: int) -> tuple[Neighbour, ...]:
        """The nearest documents with this label, nearest first; none if the corpus does not know the label."""
        number = self.corpus.labels.find(label)
        if number is None:
            return ()
        having = self.holders.indices[self.holders.indptr[number] : self.holders.indptr[number + 1]]
        cosine = (csr_array(self.rows[having]) @ self.tfidf.transform([text]).T).toarray()[:, 0]
        best = np.argsort(-cosine, kind="stable")[:count]
        return tuple(self._neighbour(int(having[at]), float(cosine[at])) for at in best)

    def _neighbour(self, row: int, similarity: float) -> Neighbour:
        corpus = self.corpus
        own = corpus.truth.indices[corpus.truth.indptr[row] : corpus.truth.indptr[row + 1]]
        return Neighbour(corpus.ids[row], corpus.texts[row], tuple(corpus.labels.names[label] for label in own), similarity)
