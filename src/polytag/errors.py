"""Errors that a user can cause. Each message states what was wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class PolytagError(Exception):
    """Base of every error that is not a bug; the command line prints it in one line and exits with 2."""


class DataError(PolytagError):
    """A document, a label or a file is invalid."""


class ConfigError(PolytagError):
    """A setting, an option or a recipe is invalid."""


class NotFittedError(PolytagError):
    """A model or classifier was used before it was trained."""


class ArtefactError(PolytagError):
    """A saved model is damaged or cannot be read."""


def suggestion(word: str, known: Sequence[str]) -> str:
    """A hint for a misspelt word: the closest known word, or all known words."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
