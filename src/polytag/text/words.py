"""Words of many texts at once, as 64-bit hashes: a compiled scan over code points.

A word is a sequence of letters, digits, marks and underscores. An ideograph or kana is a word of its own, so that text without
spaces is split too. Two consecutive words are a bigram, and so on.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polytag.kernels.array_views import unlocked
from polytag.kernels.compiler import kernel, njit

SEPARATOR, WORD, ALONE = 0, 1, 2
_LIMIT = 0x30000  # code points above are rare ideographs, each a word of its own
_SIZES = (0x250, 0x3000)  # sizes of tables for texts in Latin script, and in any other alphabet
_SEED, _PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
_JOIN = np.uint64(0x9E3779B97F4A7C15)


@cache
def _tables(lowercase: bool, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """The class of every code point below the size, and its lower-case form."""
    kinds = np.zeros(size, dtype=np.uint8)
    fold = np.arange(size, dtype=np.uint32)
    for code in range(size):
        character = chr(code)
        if unicodedata.category(character)[0] in "LNM" or character == "_":
            kinds[code] = WORD
            if lowercase:
                lower = character.lower()
                fold[code] = ord(lower) if len(lower) == 1 else code
    for first, last in ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FFFF)):
        kinds[first : last + 1] = ALONE
    return kinds, fold


def _needed(text: str, codes: NDArray[np.uint32]) -> int:
    """The size of the tables that these code points need: the whole ones take a fifth of a second to fill."""
    largest = 0 if text.isascii() else int(codes.max())
    return next((size for size in _SIZES if largest < size), _LIMIT)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _mix(h: Any) -> Any:
    """Mix the bits, because hash tables use the low ones."""
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    return h


@kernel(
    "int64(uint32[::1],int64[::1],uint8[::1],uint32[::1],uint64[::1],int64[::1],uint64[::1],int64[::1],int64[::1],int64[::1])"
)
def _scan(
    codes: Any, ends: Any, kinds: Any, fold: Any, recent_hash: Any, recent_start: Any, hashes: Any, starts: Any, stops: Any,
    indptr: Any,
) -> int:  # fmt: skip
    """Write the hash and the position of every n-gram of every document; return their number.

    ``recent_hash`` and ``recent_start`` are buffers for the words of one n-gram.
    """
    ngrams = len(recent_hash)
    limit = len(kinds)
    count = 0
    at = 0
    for d in range(len(ends)):
        words = 0
        end = ends[d]
        while at < end:
            code = codes[at]
            kind = kinds[code] if code < limit else ALONE
            if kind == SEPARATOR:
                at += 1
                continue
            start = at
            h = _SEED
            while True:
                h = (h ^ np.uint64(fold[code] if code < limit else code)) * _PRIME
                at += 1
                if kind == ALONE or at >= end:
                    break
                code = codes[at]
                if code >= limit or kinds[code] != WORD:
                    break
            for n in range(min(ngrams - 1, words), 0, -1):
                recent_hash[n] = recent_hash[n - 1]
                recent_start[n] = recent_start[n - 1]
            recent_hash[0] = h
            recent_start[0] = start
            words += 1
            h = np.uint64(0)
            for n in range(min(ngrams, words)):
                h = _mix(h * _JOIN + recent_hash[n])
                hashes[count] = h
                starts[count] = recent_start[n]
                stops[count] = at
                count += 1
        at = end
        indptr[d + 1] = count
    return count


def word_hashes(
    texts: Sequence[str], *, ngrams: int, lowercase: bool
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Hashes of all n-grams in order, the offsets of the documents, and start and end of each n-gram in the joined text."""
    joined = "".join(texts)
    codes = unlocked(np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32), np.uint32)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    size = len(codes) * ngrams
    hashes, starts, stops = np.empty(size, np.uint64), np.empty(size, np.int64), np.empty(size, np.int64)
    indptr = np.zeros(len(texts) + 1, dtype=np.int64)
    recent = np.empty(ngrams, np.uint64), np.empty(ngrams, np.int64)
    count = _scan(codes, ends, *_tables(lowercase, _needed(joined, codes)), *recent, hashes, starts, stops, indptr)
    return hashes[:count], indptr, starts[:count], stops[:count]
