"""Near-duplicate documents by MinHash (Broder 1997) and banded locality-sensitive hashing.

A document is the set of its word n-grams. Documents whose signatures agree in all rows of a band share a bucket. Within a bucket
each document is compared with the first one and with the previous one only, so the work grows with the documents, not with their
square. The Jaccard similarity of the sets is computed exactly for these pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polytag.kernels.compiler import njit
from polytag.kernels.threads import in_threads
from polytag.text.words import word_hashes

SIMILAR = 0.8  # Jaccard similarity of near-duplicates
BANDS, BAND_ROWS = 20, 5  # a pair of similarity 0.8 shares a bucket with probability 0.9996, one of 0.3 with 0.05
NGRAMS = 3
_BATCH = 2000  # documents that are hashed at once


class CloseDocuments(NamedTuple):
    """Pairs of document numbers, the smaller first, and their Jaccard similarity."""

    pairs: NDArray[np.int64]
    similarity: NDArray[np.float32]


class Shingles(NamedTuple):
    """The distinct n-grams of every document as sorted hashes."""

    indptr: NDArray[np.int64]
    hashes: NDArray[np.uint64]


def shingles(texts: Sequence[str], ngrams: int = NGRAMS) -> Shingles:
    """The sets of word n-grams of one to ``ngrams`` words."""
    counts, parts = [0], []
    for start in range(0, len(texts), _BATCH):
        hashes, indptr, _, _ = word_hashes(texts[start : start + _BATCH], ngrams=ngrams, lowercase=True)
        for first, last in pairwise(indptr.tolist()):
            own = np.unique(hashes[first:last])
            counts.append(len(own))
            parts.append(own)
    return Shingles(np.cumsum(counts, dtype=np.int64), np.concatenate(parts) if parts else np.empty(0, np.uint64))


def signatures(sets: Shingles, size: int, seed: int = 0) -> NDArray[np.uint64]:
    """MinHash signatures (documents, size): the minimum of each of ``size`` random hash functions over the set."""
    rng = np.random.default_rng(seed)
    factors = rng.integers(1, 1 << 63, size, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    offsets = rng.integers(0, 1 << 63, size, dtype=np.uint64)
    n = len(sets.indptr) - 1
    out = np.full((n, size), np.iinfo(np.uint64).max, dtype=np.uint64)

    def tile(start: int) -> None:
        _minima(sets.indptr, sets.hashes, start, min(start + _BATCH, n), factors, offsets, out)

    for _ in in_threads(tile, range(0, n, _BATCH)):
        pass
    return out


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _minima(indptr: Any, hashes: Any, start: int, stop: int, factors: Any, offsets: Any, out: Any) -> None:
    for i in range(start, stop):
        for p in range(indptr[i], indptr[i + 1]):
            for j in range(len(factors)):
                value = (hashes[p] ^ offsets[j]) * factors[j]
                value ^= value >> np.uint64(32)
                value *= np.uint64(0xD6E8FEB86659FD93)
                value ^= value >> np.uint64(32)
                if value < out[i, j]:
                    out[i, j] = value


def close_documents(texts: Sequence[str], *, similar: float = SIMILAR, seed: int = 0) -> CloseDocuments:
    """Pairs of near-duplicates, in the order of the documents; texts without words are left out."""
    sets = shingles(texts)
    signed = signatures(sets, BANDS * BAND_ROWS, seed)
    return _close_among(sets, signed, np.flatnonzero(np.diff(sets.indptr)), similar)


def copies_between(parts: Sequence[Sequence[str]], *, similar: float = SIMILAR, seed: int = 0) -> dict[tuple[int, int], int]:
    """For every two parts (earlier, later): the number of documents of the later one with a near-duplicate in the earlier one."""
    sets = shingles([text for part in parts for text in part])
    signed = signatures(sets, BANDS * BAND_ROWS, seed)
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    filled = np.diff(sets.indptr) > 0
    found = {}
    for earlier, later in combinations(range(len(parts)), 2):
        rows = np.flatnonzero(filled & ((owner == earlier) | (owner == later)))
        pairs = _close_among(sets, signed, rows, similar).pairs
        across = pairs[owner[pairs[:, 0]] != owner[pairs[:, 1]]]
        found[earlier, later] = len(np.unique(across[:, 1]))
    return found


def _close_among(sets: Shingles, signed: NDArray[np.uint64], rows: NDArray[np.int64], similar: float) -> CloseDocuments:
    """Pairs of near-duplicates among some documents; in a bucket each is compared with its first one, of the earliest part."""
    pairs = _bucket_pairs(signed[rows], rows)
    jaccard = np.empty(len(pairs), dtype=np.float32)
    _jaccards(sets.indptr, sets.hashes, pairs, jaccard)
    keep = jaccard >= similar
    return CloseDocuments(pairs[keep], jaccard[keep])


def _bucket_pairs(signed: NDArray[np.uint64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distinct pairs of rows that share a bucket of any band: each with the first and with the previous of the bucket."""
    found = [np.empty((0, 2), dtype=np.int64)]
    for band in range(BANDS):
        keys = np.ascontiguousarray(signed[:, band * BAND_ROWS : (band + 1) * BAND_ROWS])
        order = np.lexsort(keys.T)  # stable: equal keys keep the order of the rows
        same = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
        at = np.flatnonzero(same) + 1
        begins = np.flatnonzero(~np.concatenate([[False], same]))
        first = begins[np.searchsorted(begins, at, side="right") - 1]
        found += [np.stack([rows[order[before]], rows[order[at]]], axis=1) for before in (first, at - 1)]
    return np.unique(np.concatenate(found), axis=0)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _jaccards(indptr: Any, hashes: Any, pairs: Any, out: Any) -> None:
    """Merge the sorted sets of both documents of every pair."""
    for t in range(len(pairs)):
        p, p_end = indptr[pairs[t, 0]], indptr[pairs[t, 0] + 1]
        q, q_end = indptr[pairs[t, 1]], indptr[pairs[t, 1] + 1]
        size, both = (p_end - p) + (q_end - q), 0
        while p < p_end and q < q_end:
            if hashes[p] == hashes[q]:
                both += 1
                p += 1
                q += 1
            elif hashes[p] < hashes[q]:
                p += 1
            else:
                q += 1
        out[t] = both / max(size - both, 1)
