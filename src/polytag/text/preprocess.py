"""Preprocessing of raw text; it is a saved setting of every model, so that prediction repeats that of training."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache

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
