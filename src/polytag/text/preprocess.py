"""Preprocessing of raw text; it is a saved setting of every model, so that prediction repeats that of training."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NUMBER = "0"  # it passes the cleaning, and no other word equals it, because all digits of a text are replaced
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")


@cache
def _punctuation(instead: str | None) -> dict[int, str | None]:
    """A translation table that deletes every punctuation mark and symbol, or puts something in its place."""
    return {code: instead for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] in "PS"}


def prepare(texts: Sequence[str], how: str, max_words: int = 0) -> Sequence[str]:
    """Preprocess texts: ``none`` does nothing, ``spaced`` lower-cases and puts a space in place of punctuation.

    ``clean`` deletes punctuation, so that "U.S./Japan" is one word. ``spaced-numbers`` and ``numbers`` also merge numbers.
    ``max_words`` is the maximum number of whitespace-separated words that are kept of each text; 0 keeps all.
    """
    if how.endswith("numbers"):
        texts = [_DIGITS.sub(f" {NUMBER} ", text) for text in texts]
    if how in ("clean", "numbers"):
        table = _punctuation(None)
        texts = [text.lower().translate(table) for text in texts]
    elif how != "none":
        table = _punctuation(" ")
        texts = [" ".join(text.lower().translate(table).split()) for text in texts]
    if max_words:
        texts = [" ".join(text.split(maxsplit=max_words)[:max_words]) for text in texts]
    return texts


class Aligned(NamedTuple):
    """A prepared text, and the place of each of its characters in the original text: where it starts and where it ends."""

    text: str
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def aligned(text: str, how: str, max_words: int = 0) -> Aligned:
    """Preprocess one text as ``prepare`` does, and remember where every character comes from."""
    place = np.arange(len(text), dtype=np.int64)
    found = Aligned(text, place, place + 1)
    if how.endswith("numbers"):
        found = _numbers_merged(text)
    if how != "none":
        sizes = [len(character.lower()) for character in found.text]  # a few letters become two
        found = Aligned(found.text.lower(), np.repeat(found.starts, sizes), np.repeat(found.ends, sizes))
        if how in ("clean", "numbers"):
            marks = _punctuation(None)
            found = _chosen(found, [at for at, character in enumerate(found.text) if ord(character) not in marks])
        else:
            found = _first_words(found._replace(text=found.text.translate(_punctuation(" "))), None)
    return _first_words(found, max_words) if max_words else found


def _numbers_merged(text: str) -> Aligned:
    """Every number replaced by one token, whose characters stand for all characters of the number."""
    pieces, starts, ends, at = [], [], [], 0
    for number in _DIGITS.finditer(text):
        first, last = number.span()
        pieces += [text[at:first], f" {NUMBER} "]
        starts += [*range(at, first), *[first] * (len(NUMBER) + 2)]
        ends += [*range(at + 1, first + 1), *[last] * (len(NUMBER) + 2)]
        at = last
    pieces.append(text[at:])
    rest = np.arange(at, len(text), dtype=np.int64)
    own = (np.array(side, dtype=np.int64) for side in (starts, ends))
    return Aligned("".join(pieces), *(np.concatenate(both) for both in zip(own, (rest, rest + 1), strict=True)))


def _first_words(found: Aligned, count: int | None) -> Aligned:
    """The first words, or all, joined by spaces; what stood between two words is one space."""
    words = [word.span() for word in re.finditer(r"\S+", found.text)][:count]
    kept = [at for start, end in words for at in (*range(start, end), end)][:-1]  # the first character after a word is a space
    chosen = _chosen(found, kept)
    return chosen._replace(text=" ".join(chosen.text.split()))


def _chosen(found: Aligned, kept: list[int]) -> Aligned:
    """Some characters of a text."""
    return Aligned("".join(found.text[at] for at in kept), found.starts[kept], found.ends[kept])
