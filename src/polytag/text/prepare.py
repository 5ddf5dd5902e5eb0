"""Preparation of raw text: a saved setting of every model, so that prediction sees what training saw."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache

PREPARATIONS = ("none", "clean", "numbers")
NUMBER = "0"  # it survives the cleaning, and no other word can be it: all digits of a text go this way
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")


@cache
def _without_punctuation() -> dict[int, None]:
    """Every punctuation mark and symbol, to be deleted."""
    return {code: None for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] in "PS"}


def prepare(texts: Sequence[str], how: str, max_words: int = 0) -> Sequence[str]:
    """Prepare texts: ``none`` leaves them, ``clean`` lower-cases and deletes punctuation, ``numbers`` also merges all numbers.

    ``max_words`` keeps that many white-space separated words of each text; 0 keeps all.
    """
    if how == "numbers":
        texts = [_DIGITS.sub(f" {NUMBER} ", text) for text in texts]
    if how in ("clean", "numbers"):
        table = _without_punctuation()
        texts = [text.lower().translate(table) for text in texts]
    if max_words:
        texts = [" ".join(text.split(maxsplit=max_words)[:max_words]) for text in texts]
    return texts
