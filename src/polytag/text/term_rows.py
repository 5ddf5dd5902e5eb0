"""Words of documents by their hashes, without their texts: from them a vocabulary can be chosen again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.kernels.sparse_rows import stack_rows
from polytag.storage.schema import Array, Sparse, Table
from polytag.storage.state_json import State
from polytag.text.tfidf import Tfidf

TERM_ROWS = Table(
    {
        "keys": Array(("uint64",), ("all_words",), order="strict"),
        "rows": Sparse(("kept", "all_words"), ascending=True),
    }
)
"""What the words of documents look like when they are saved."""


class TermRows(NamedTuple):
    """The hashes of all words, sorted, and the frequencies of each in every document, in rows of unit length."""

    keys: NDArray[np.uint64]
    rows: csr_array

    @classmethod
    def of(cls, texts: Sequence[str], tfidf: Tfidf) -> TermRows:
        """Every word of these texts, frequent or not, with the settings of a vocabulary."""
        every = tfidf.empty()
        every.keys, _ = every.document_frequencies(texts)
        every.idf = np.ones(len(every.keys), dtype=np.float32)
        return cls(every.keys, every.transform(texts))

    def joined(self, other: TermRows) -> TermRows:
        """These documents, then others."""
        keys = np.union1d(self.keys, other.keys)
        return TermRows(keys, stack_rows([one._placed(keys) for one in (self, other)]))

    def _placed(self, keys: NDArray[np.uint64]) -> csr_array:
        """The rows with these keys as columns."""
        columns = np.searchsorted(keys, self.keys).astype(np.int32)
        return csr_array((self.rows.data, columns[self.rows.indices], self.rows.indptr), shape=(self.rows.shape[0], len(keys)))

    def vocabulary(self, earlier: Tfidf, texts: Sequence[str]) -> Tfidf:
        """The vocabulary of all documents; terms come from an earlier one and from the texts that it did not have."""
        new = earlier.empty()
        frequencies = np.bincount(self.rows.indices, minlength=len(self.keys))
        new.choose(self.keys, frequencies, int(self.rows.shape[0]))
        new.find_terms(texts, earlier)
        return new

    def weighted(self, tfidf: Tfidf) -> csr_array:
        """The tf-idf rows of the documents."""
        rows = self.rows
        place = np.searchsorted(tfidf.keys, self.keys).clip(max=len(tfidf.keys) - 1)
        known = tfidf.keys[place] == self.keys
        keep = known[rows.indices]
        row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[keep]
        columns = place[rows.indices[keep]].astype(np.int32)
        data = rows.data[keep].astype(np.float64) * tfidf.idf[columns]
        norms = np.sqrt(np.bincount(row, data**2, minlength=int(rows.shape[0])))
        indptr: NDArray[Any] = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=int(rows.shape[0])))])
        shape = (rows.shape[0], len(tfidf.keys))
        return csr_array(((data / norms[row]).astype(np.float32), columns, indptr), shape=shape)

    def state(self) -> State:
        """The arrays for an artefact."""
        return {"keys": self.keys, "rows": self.rows}

    @classmethod
    def from_state(cls, state: State) -> TermRows:
        """Rebuild from the arrays."""
        return cls(np.asarray(state["keys"]), state["rows"])
