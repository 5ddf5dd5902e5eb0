"""Which words a text has, where they are in it, and what each of them contributes to its tf-idf row."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from polytag.config.groups.text_settings import TextSettings
from polytag.text.feature_rows import are_rows, parsed_rows
from polytag.text.preprocess import Aligned, aligned
from polytag.text.tfidf import Tfidf
from polytag.text.words import word_hashes

_PIECE = re.compile(r"\S+")


class WordShares(NamedTuple):
    """The words of a text and their shares of its features.

    ``spans`` (words, 2) are start and end of each word in the original text. ``shares`` (words, features) sums to the tf-idf
    row of the text: equal words divide the value of their feature, and the words of an n-gram divide that of the n-gram.
    """

    spans: NDArray[np.int64]
    shares: csr_array


def word_spans(text: str) -> NDArray[np.int64]:
    """Start and end (words, 2) of the words of a text; of a feature vector such as ``17:0.25 203:1``, those of its entries."""
    return spans_of(text, given=are_rows([text]))


def spans_of(text: str, *, given: bool) -> NDArray[np.int64]:
    """The same for a text that is known to be a feature vector, or not."""
    if given:
        return np.array([entry.span() for entry in _PIECE.finditer(text)], dtype=np.int64).reshape(-1, 2)
    _, _, starts, stops = word_hashes([text], ngrams=1, lowercase=True)
    return np.stack([starts, stops], axis=1)


def spans_in(original: Aligned, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """Spans of a prepared text as spans (any, 2) of the original text; an empty one stays empty."""
    if not len(original.text):
        return np.zeros((len(starts), 2), dtype=np.int64)
    last = len(original.text) - 1
    first, end = original.starts[np.minimum(starts, last)], original.ends[np.clip(stops - 1, 0, last)]
    return np.stack([first, np.where(stops > starts, end, first)], axis=1)


def word_shares(tfidf: Tfidf, text: str, settings: TextSettings) -> WordShares:
    """The words of a text and their shares of the row that ``tfidf`` makes of it."""
    original = aligned(text, settings.preprocess, settings.max_words)
    row = tfidf.transform([original.text])
    place, column, part = _entries(tfidf, original.text) if tfidf.given else _occurrences(tfidf, original.text)
    spans = spans_of(original.text, given=tfidf.given)
    whole = np.bincount(column, part, minlength=1)  # what all occurrences of a feature weigh together
    values = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
    known = np.array([values.get(one, 0.0) for one in column.tolist()])
    share = np.divide(known * part, whole[column], out=np.zeros(len(part)), where=whole[column] != 0)
    shares = coo_array((share, (place, column)), shape=(len(spans), len(tfidf.keys)))
    return WordShares(spans_in(original, spans[:, 0], spans[:, 1]), csr_array(shares))


def _occurrences(tfidf: Tfidf, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Word, feature and weight of every word of every n-gram of the vocabulary."""
    columns, ends, sizes = tfidf.occurrences(text)
    place = np.repeat(ends, sizes) - _count_down(sizes)
    return place, np.repeat(columns, sizes), np.repeat(1.0 / sizes, sizes)


def _count_down(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, ... size - 1 for every size."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _entries(tfidf: Tfidf, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The same of a feature vector: its entries that are in the vocabulary."""
    keys, _, weights = parsed_rows([text])
    columns = tfidf.columns(keys).astype(np.int64)
    known = np.flatnonzero(columns >= 0)
    return known, columns[known], weights[known].astype(np.float64)
