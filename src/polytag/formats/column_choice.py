"""What reading says about its columns: those it took by their usual names, and others that look like text."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from polytag.formats.document import GROUP_NAMES, ID_NAMES, LABEL_NAMES, TEXT_NAMES, Columns

log = logging.getLogger(__name__)

LOOKED_AT = 200  # records in which columns are compared
_HEADINGS = ("subject", "heading", "headline", "header", "question", "comment", "comments", "note", "notes", "transcript")
_WORD = re.compile(r"[^\W\d_]{2,}")  # two letters or more
_WORDS = 3.0  # words per cell of a column that looks like text
_HEADING_WORDS = 1.5  # the same, if its name is usual for text
_LETTERS = 0.6  # share of letters among the characters that are no space; dates, numbers and codes have fewer
_DISTINCT = 0.5  # share of different cells; categories repeat


def announce(columns: Columns, records: Sequence[Mapping[str, Any]], option: str = "--text %s") -> None:
    """Log the columns that were detected, unless they are plain to see; warn of columns that look like text too.

    ``option`` is how the caller names several text columns.
    """
    if columns.weight or columns.unknown:
        extra = [
            f"{what} from {name}" for what, name in (("weights", columns.weight), ("unjudged labels", columns.unknown)) if name
        ]
        log.info("%s: %s", columns.where, ", ".join(extra))
    if columns.options.text:
        return
    others = left_out(columns, records)
    took = ([f"labels from {columns.label}"] if columns.label else []) + [f"text from {' and '.join(columns.text)}"]
    chosen = f"{columns.where}: {', '.join(took)}"
    if others:
        wanted = [name for name in _names(records) if name in (*columns.text, *others)]
        verb = "looks" if len(others) == 1 else "look"
        log.warning("%s; %s %s like text too: %s", chosen, " and ".join(others), verb, option % ",".join(wanted))
    elif columns.text != ("text",) or columns.label not in (None, "labels"):
        log.info("%s", chosen)


def left_out(columns: Columns, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns that are not used although they look like text, in the order of the file."""
    unused = [name for name in _names(records) if name not in columns.used and _may_be_text(name)]
    return [name for name in unused if looks_like_text([record.get(name) for record in records[:LOOKED_AT]], name)]


def looks_like_text(cells: Sequence[object], name: str) -> bool:
    """Whether cells are sentences or headings: words rather than codes, and different from row to row."""
    texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    if len(texts) * 2 < len(cells) or len(set(texts)) <= _DISTINCT * len(texts):
        return False
    whole = "".join(texts)
    letters = sum(map(str.isalpha, whole)) / max(1, sum(not mark.isspace() for mark in whole))
    words = sum(_WORD.search(word) is not None for text in texts for word in text.split()) / len(texts)
    return letters >= _LETTERS and words >= (_HEADING_WORDS if name.lower() in (*TEXT_NAMES, *_HEADINGS) else _WORDS)


def _names(records: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for record in records[:LOOKED_AT] for name in record))


def _may_be_text(name: object) -> bool:
    """Whether a column of this name could be given to ``--text``; those for labels, ids and groups are no text."""
    usual = {*LABEL_NAMES, *ID_NAMES, *GROUP_NAMES}
    return isinstance(name, str) and name.isprintable() and "," not in name and name.lower() not in usual
