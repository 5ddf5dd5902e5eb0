"""Tf-idf over words and n-grams: hashed in compiled code, with the vocabulary stored for explanations."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.groups.text_settings import TfidfSettings
from polytag.errors import DataError
from polytag.kernels.array_views import unlocked
from polytag.kernels.compiler import kernel
from polytag.kernels.sorting import sort_part
from polytag.kernels.threads import in_threads, thread_count
from polytag.storage.schema import Array, Number, Switch, Table
from polytag.text.feature_rows import are_rows, parsed_rows, unit_rows
from polytag.text.word_keys import KeyCounts, among, merged, short_keys
from polytag.text.words import word_hashes

if TYPE_CHECKING:
    from polytag.run import Run

log = logging.getLogger(__name__)
_FACTOR = np.uint64(secrets.randbits(64) | 1)  # odd, so that distinct keys keep distinct products
_BATCH, _LEAST = 4_000_000, 400_000  # characters scanned at once: maximum of all threads, minimum of each of several threads


TFIDF = Table(
    {
        "ngrams": Number(1, 5),
        "keys": Array(("uint64",), ("words",), order="strict"),
        "idf": Array(("float32",), ("words",)),
        "terms": Array(("uint8",), ("term_bytes",)),
        "given": Switch(),
        "documents": Number(0, 2**53),
        "rare": Array(("uint32",), ("rare",), order="strict"),
    },
    optional=frozenset({"given", "documents", "rare"}),
    own=frozenset({"rare"}),
)
"""What a vocabulary looks like when it is saved. The hash table needs distinct keys, and the kernels one idf per key."""


@kernel("void(uint64[::1],uint64,uint64,uint64[::1],int32[::1])")
def _fill_table(keys: Any, factor: Any, shift: Any, table: Any, columns: Any) -> None:
    """Open addressing: insert every key into the first free slot after its place, the high bits of its product with a factor.

    The factor is drawn anew in every process: nobody can choose keys that all get the same place.
    """
    mask = np.uint64(len(table) - 1)
    for c in range(len(keys)):
        at = (keys[c] * factor) >> shift
        while columns[at] >= 0:
            at = (at + np.uint64(1)) & mask
        table[at] = keys[c]
        columns[at] = c


@kernel("void(uint64[::1],uint64,uint64,uint64[::1],int32[::1],int32[::1])")
def _look_up(hashes: Any, factor: Any, shift: Any, table: Any, columns: Any, out: Any) -> None:
    """The column of every hash, or -1."""
    mask = np.uint64(len(table) - 1)
    for p in range(len(hashes)):
        at = (hashes[p] * factor) >> shift
        while columns[at] >= 0 and table[at] != hashes[p]:
            at = (at + np.uint64(1)) & mask
        out[p] = columns[at]


@kernel("int64(int32[::1],int64[::1],float32[::1],boolean,int64[::1],int32[::1],float32[::1])", fastmath=True)
def _weigh(found: Any, indptr: Any, idf: Any, sublinear: bool, out_indptr: Any, out_indices: Any, out_data: Any) -> int:
    """Count, weight and normalise the columns of every document, which are sorted; return the number of entries written."""
    count = 0
    for d in range(len(indptr) - 1):
        p, end = indptr[d], indptr[d + 1]
        sort_part(found, p, end)
        first = count
        squares = 0.0
        while p < end:
            column = found[p]
            q = p + 1
            while q < end and found[q] == column:
                q += 1
            if column >= 0:
                tf = 1.0 + np.log(q - p) if sublinear else float(q - p)
                value = tf * idf[column]
                squares += value * value
                out_indices[count] = column
                out_data[count] = value
                count += 1
            p = q
        norm = np.sqrt(squares)
        for c in range(first, count):
            out_data[c] /= norm
        out_indptr[d + 1] = count
    return count


@kernel("void(int32[::1],int64[::1],int64[::1],int64[::1])")
def _count_documents(found: Any, indptr: Any, latest: Any, counts: Any) -> None:
    """Count the documents of every column; ``latest`` has the last document of each so far, at first -1."""
    for d in range(len(indptr) - 1):
        for p in range(indptr[d], indptr[d + 1]):
            if latest[found[p]] != d:
                latest[found[p]] = d
                counts[found[p]] += 1


class _Lookup:
    """A hash table from keys to their places."""

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        """Fill the table; at least half of it stays free."""
        bits = int(np.ceil(np.log2(2 * len(keys) + 2)))
        self.shift = np.uint64(64 - bits)
        self.table, self.columns = np.zeros(1 << bits, np.uint64), np.full(1 << bits, -1, np.int32)
        _fill_table(keys, _FACTOR, self.shift, self.table, self.columns)

    def find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The place of every key; -1 if it is not in the table."""
        found = np.empty(len(hashes), dtype=np.int32)
        _look_up(hashes, _FACTOR, self.shift, self.table, self.columns, found)
        return found


@dataclass
class Tfidf:
    """Normalised tf-idf rows of words and n-grams: ``tf · (ln((1 + n) / (1 + df)) + 1)``, each row of unit length.

    Texts that are feature vectors already, such as ``17:0.25 203:1``, keep their weights and are only normalised.
    """

    ngrams: int = 1
    min_df: int = 2
    max_features: int = 0
    lowercase: bool = True
    sublinear: bool = True
    keys: NDArray[np.uint64] = field(init=False, repr=False)
    idf: NDArray[np.float32] = field(init=False, repr=False)
    terms: list[str] = field(init=False, repr=False)
    given: bool = field(init=False, repr=False, default=False)
    documents: int = field(init=False, repr=False, default=0)
    rare: NDArray[np.uint32] = field(init=False, repr=False, default_factory=lambda: np.empty(0, dtype=np.uint32))
    _table: _Lookup | None = field(init=False, repr=False, default=None)

    @classmethod
    def of(cls, settings: TfidfSettings, ngrams: int) -> Tfidf:
        """From a model's settings, for one of its n-gram lengths."""
        return cls(ngrams, settings.min_df, settings.max_features, settings.lowercase, settings.sublinear)

    def fit(self, texts: Sequence[str]) -> Tfidf:
        """Learn the vocabulary and the document frequencies."""
        self.given = are_rows(texts)
        if self.given:
            log.info("the texts are feature vectors: their weights are used without tf-idf, and each row is normalised")
        self.choose(*self.document_frequencies(texts), len(texts))
        self.terms = self._find_terms(texts)
        return self

    def choose(self, keys: NDArray[np.uint64], df: NDArray[np.int64], documents: int) -> None:
        """Take the frequent ones of these words as the vocabulary; the others are known as rare."""
        keep = df >= min(self.min_df, max(1, documents // 2))  # a tiny corpus keeps its words
        if self.max_features and np.count_nonzero(keep) > self.max_features:
            frequent = np.flatnonzero(keep)
            keep[frequent[np.argsort(-df[frequent], kind="stable")[self.max_features :]]] = False
        if not keep.any():
            raise DataError(
                "no word occurs often enough in the training texts; lower min_df, or check whether the texts are empty"
            )
        self._set(keys[keep], df[keep], documents)
        self.rare = short_keys(keys[~keep])

    def _set(self, keys: NDArray[np.uint64], df: NDArray[np.int64], documents: int) -> None:
        """Set the words and their weights, from their document frequencies."""
        self.keys, self.documents, self._table = keys, documents, None
        self.idf = (np.log((1 + documents) / (1 + df)) + 1).astype(np.float32)
        if self.given:
            self.idf = np.ones_like(self.idf)

    def grown(self, texts: Sequence[str]) -> Tfidf:
        """A vocabulary with the words of these texts too; document frequencies add up.

        Known words stay. New ones must occur as often as in ``fit``; one occurrence in an earlier text counts.
        """
        new = self.empty()
        keys, df = new.document_frequencies(texts)
        known, before = among(keys, self.keys), among(short_keys(keys, ordered=False), self.rare)
        df = df + (before & ~known)
        keep = known | (df >= min(self.min_df, max(1, len(texts) // 2)))
        fresh, room = np.flatnonzero(keep & ~known), self.max_features - len(self.keys) if self.max_features else len(keys)
        keep[fresh[np.argsort(-df[fresh], kind="stable")[max(0, room) :]]] = False
        new._set(*merged((self.keys, self._frequencies()), (keys[keep], df[keep])), self.documents + len(texts))
        more = short_keys(keys[~keep])
        more = more[~among(more, self.rare)]
        new.rare = np.insert(self.rare, np.searchsorted(self.rare, more), more)
        new.find_terms(texts, self)
        return new

    def empty(self) -> Tfidf:
        """The same settings, and no words yet."""
        new = Tfidf(self.ngrams, self.min_df, self.max_features, self.lowercase, self.sublinear)
        new.given = self.given
        return new

    def find_terms(self, texts: Sequence[str], earlier: Tfidf) -> None:
        """The terms of all columns: those of an earlier vocabulary, which is part of this one, and those of new texts."""
        self.terms = self._find_terms(texts)
        for place, term in zip(self.places(earlier).tolist(), earlier.terms, strict=True):
            self.terms[place] = term

    def places(self, earlier: Tfidf) -> NDArray[np.int64]:
        """The columns of the words of an earlier vocabulary, which is part of this one."""
        return np.searchsorted(self.keys, earlier.keys)

    def growth(self, earlier: Tfidf) -> NDArray[np.float32]:
        """The weight of every word of an earlier vocabulary, relative to its weight there."""
        return np.asarray(self.idf[self.places(earlier)] / earlier.idf, dtype=np.float32)

    def _frequencies(self) -> NDArray[np.int64]:
        """The document frequencies, which the weights of the words were computed from."""
        found = (1 + self.documents) / np.exp(self.idf.astype(np.float64) - 1) - 1
        return np.asarray(np.maximum(1, np.rint(found)), dtype=np.int64)

    def transform(self, texts: Sequence[str]) -> csr_array:
        """One normalised sparse row per text."""
        _ = self._places  # computed once, before the threads use it
        parts = list(in_threads(self._rows, _batches(texts)))
        indptr = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(np.concatenate([np.diff(p[0]) for p in parts]) if parts else [], out=indptr[1:])
        indices = np.concatenate([p[1] for p in parts]) if parts else np.empty(0, np.int32)
        data = np.concatenate([p[2] for p in parts]) if parts else np.empty(0, np.float32)
        return csr_array((data, indices, indptr), shape=(len(texts), len(self.keys)))

    def rows(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """What ``transform`` returns, as three arrays and in one thread: quick for a few texts."""
        return self._rows(texts)

    def state(self) -> dict[str, Any]:
        """The vocabulary as arrays."""
        blob = "\n".join(self.terms).encode("utf-8", "surrogatepass")
        return {
            "ngrams": self.ngrams,
            "keys": self.keys,
            "idf": self.idf,
            "terms": np.frombuffer(blob, dtype=np.uint8),
            "given": self.given,
            "documents": self.documents,
            "rare": self.rare,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the vocabulary."""
        self.ngrams, self.given = int(state["ngrams"]), bool(state.get("given", False))
        self.documents, self.rare = int(state.get("documents", 0)), np.asarray(state.get("rare", self.rare))
        self.keys, self.idf = unlocked(state["keys"], np.uint64), unlocked(state["idf"], np.float32)
        self.terms = bytes(state["terms"]).decode("utf-8", "surrogatepass").split("\n")
        self._table = None

    def document_frequencies(self, texts: Sequence[str]) -> KeyCounts:
        """The sorted hashes of all n-grams and their document frequencies."""

        def counted(batch: Sequence[str]) -> KeyCounts:
            hashes, indptr = parsed_rows(batch)[:2] if self.given else self._hashes(batch)
            keys = np.unique(hashes)
            latest, counts = np.full(len(keys), -1, dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
            _count_documents(_Lookup(keys).find(hashes), indptr, latest, counts)
            return keys, counts

        runs: list[KeyCounts] = [(np.empty(0, np.uint64), np.empty(0, np.int64))]
        batches, threads = list(_batches(texts)), thread_count()
        for at in range(0, len(batches), threads):
            for found in in_threads(counted, batches[at : at + threads]):
                runs.append(found)
                while len(runs) > 1 and len(runs[-2][0]) < 2 * len(runs[-1][0]):  # so that a key is merged only a few times
                    runs.append(merged(runs.pop(), runs.pop()))
        return reduce(merged, reversed(runs))

    def _find_terms(self, texts: Sequence[str]) -> list[str]:
        """The term of every column, taken from its first occurrence."""
        if self.given:
            return [str(key) for key in self.keys.tolist()]
        terms = [""] * len(self.keys)
        seen = np.zeros(len(self.keys), dtype=bool)
        for batch in _batches(texts):
            hashes, _, starts, stops = word_hashes(batch, ngrams=self.ngrams, lowercase=self.lowercase)
            found = self.columns(hashes)
            first = _first_places(found, len(self.keys))
            first = first[(first >= 0) & ~seen]
            seen[found[first]] = True
            joined = "".join(batch)
            # the entries of single words; each is followed by those of the longer n-grams that end with the same word
            words = np.flatnonzero(np.diff(stops, prepend=-1))
            ending = np.searchsorted(words, first, side="right") - 1
            for column, p, end in zip(found[first].tolist(), first.tolist(), ending.tolist(), strict=True):
                begin = end - (p - words[end])  # each further entry is one word longer
                term = " ".join(joined[starts[q] : stops[q]] for q in words[begin : end + 1])
                terms[column] = term.lower() if self.lowercase else term
            if seen.all():
                break
        return terms

    @property
    def _places(self) -> _Lookup:
        """The hash table of the keys."""
        if self._table is None:
            self._table = _Lookup(self.keys)
        return self._table

    def occurrences(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For every n-gram of a prepared text that is in the vocabulary: its column, the number of its last word, its length."""
        hashes, _, _, stops = word_hashes([text], ngrams=self.ngrams, lowercase=self.lowercase)
        columns = self.columns(hashes).astype(np.int64)
        new = np.diff(stops, prepend=-1) > 0  # the entries that end with a word are consecutive, each one word longer
        word = np.cumsum(new) - 1
        length = np.arange(len(word)) - np.flatnonzero(new)[word] + 1
        known = columns >= 0
        return columns[known], word[known], length[known]

    def columns(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The column of every hash or feature id; -1 if it is not in the vocabulary."""
        return self._places.find(hashes)

    def _hashes(self, texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        hashes, indptr, _, _ = word_hashes(texts, ngrams=self.ngrams, lowercase=self.lowercase)
        return hashes, indptr

    def _rows(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        if self.given:
            keys, indptr, values = parsed_rows(texts)
            return unit_rows(self.columns(keys), indptr, values, len(self.keys))
        hashes, indptr = self._hashes(texts)
        found = self.columns(hashes)
        own = np.zeros(len(texts) + 1, dtype=np.int64)
        indices, data = np.empty(len(found), np.int32), np.empty(len(found), np.float32)
        count = _weigh(found, indptr, self.idf, self.sublinear, own, indices, data)
        return own, indices[:count].copy(), data[:count].copy()


def _first_places(found: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    """The first position of every column; -1 if it does not occur."""
    places = np.full(size, -1, dtype=np.int64)
    known = np.flatnonzero(found >= 0)[::-1]
    places[found[known]] = known  # of several values for one element, numpy keeps the last
    return places


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split the texts into batches of bounded length, at least one per thread."""
    whole = sum(map(len, texts))
    if whole <= _LEAST:
        yield from [texts] if len(texts) else []
        return
    most = max(_LEAST, min(_BATCH, whole) // thread_count())
    start = size = 0
    for i, text in enumerate(texts):
        if size and size + len(text) > most:
            yield texts[start:i]
            start, size = i, 0
        size += len(text)
    if start < len(texts):
        yield texts[start:]


def tfidf_rows(tfidf: Tfidf, texts: Sequence[str], learned: Sequence[str], run: Run) -> csr_array:
    """The rows of all texts, with the vocabulary of the texts ``learned``; a stage of the run."""

    def make() -> dict[str, Any]:
        tfidf.fit(learned)
        return {"tfidf": tfidf.state(), "features": tfidf.transform(texts)}

    state = run.stage("tfidf", make)
    tfidf.restore(state["tfidf"])
    return csr_array(state["features"])
