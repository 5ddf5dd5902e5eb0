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
def _without_punctuation() -> dict[int, None]:
    """A translation table that deletes every punctuation mark and symbol."""
    return {code: None for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] in "PS"}


def prepare(texts: Sequence[str], how: str, max_words: int = 0) -> Sequence[str]:
    """Preprocess texts: ``none`` does nothing, ``clean`` lower-cases and deletes punctuation, ``numbers`` also merges numbers.

    ``max_words`` is the maximum number of whitespace-separated words that are kept of each text; 0 keeps all.
    """
    if how == "numbers":
        texts = [_DIGITS.sub(f" {NUMBER} ", text) for text in texts]
    if how in ("clean", "numbers"):
        table = _without_punctuation()
        texts = [text.lower().translate(table) for text in texts]
    if max_words:
        texts = [" ".join(text.split(maxsplit=max_words)[:max_words]) for text in texts]
    return texts
