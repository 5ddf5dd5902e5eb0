"""Errors that a user can cause. Each message states what was wrong, where, and what to do."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence

_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+\s*")


class PolytagError(Exception):
    """Base of every error that is not a bug; the command line prints it in one line and exits with 2."""

    def __init__(self, message: object = "") -> None:
        """Keep the message in one line, whatever file names and values it contains."""
        super().__init__(_BREAKS.sub(" ", str(message)).strip())


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


def brief(value: object, most: int = 60) -> str:
    """A value in a message: its ``repr`` in one line, truncated."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a number with too many digits, or an object whose repr fails
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}..."


def file_error(path: str | os.PathLike[str], error: OSError) -> DataError:
    """What the operating system says about a file of the user, as an error of this package."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: no such file")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path} is a folder; name a file")
    if isinstance(error, PermissionError):
        return DataError(f"{path}: permission denied")
    return DataError(f"{path}: {error.strerror or error}")
