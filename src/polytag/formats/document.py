"""A document, and the conversion of records with named columns to documents."""

from __future__ import annotations

import ast
import difflib
import json
import logging
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from polytag.errors import ConfigError, DataError, brief

log = logging.getLogger(__name__)

TEXT_NAMES = (
    "text",
    "body",
    "content",
    "abstract",
    "title",
    "document",
    "sentence",
    "description",
    "summary",
    "review",
    "message",
)
LABEL_NAMES = (
    "labels",
    "label",
    "tags",
    "tag",
    "categories",
    "category",
    "topics",
    "topic",
    "classes",
    "class",
    "keywords",
    "target_ind",
)
RAW_TEXT = ("title", "content")  # text columns in the files of the Extreme Classification Repository
ID_NAMES = ("id", "_id", "doc_id", "docid", "document_id", "uid", "uuid")
GROUP_NAMES = ("group",)
WEIGHT, UNKNOWN = "weight", "unknown"  # columns with the weight of a document, and with labels that nobody judged
SEPARATORS = (";", "|", ",")
LARGEST_WEIGHT = 1e9  # of a document
FEATURE = r"\d+:[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"  # feature id and weight, as in 17:0.25


@dataclass(frozen=True, slots=True)
class Document:
    """A text with an id and labels; documents of one group belong in the same split.

    ``weight`` says how much the document counts, 1 if it is None. Nobody judged whether the ``unknown`` labels apply.
    """

    id: str
    text: str
    labels: tuple[str, ...] = ()
    group: str | None = None
    weight: float | None = None
    unknown: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file; options that are not set are detected.

    ``text`` may name several columns (also as ``"title,body"``), which are joined by a space. ``separator`` separates the labels
    of a cell; the empty string means one label per cell. ``on_bad`` is ``fail`` (a bad line is an error) or ``skip``.
    """

    format: str | None = None
    text: Sequence[str] = ()
    labels: str | None = None
    id: str | None = None
    group: str | None = None
    separator: str | None = None
    on_bad: Literal["fail", "skip"] = "fail"

    def __post_init__(self) -> None:
        """Split a text option given as one string, and check the rest."""
        if isinstance(self.text, str):
            object.__setattr__(self, "text", tuple(name.strip() for name in self.text.split(",") if name.strip()))
        if not isinstance(self.text, Sequence) or not all(isinstance(name, str) for name in self.text):
            raise ConfigError(f"text is {brief(self.text)}; it must be the name of a column, or a list of names")
        for key in ("format", "labels", "id", "group", "separator"):
            if not isinstance(getattr(self, key), str | None):
                raise ConfigError(f"{key} is {brief(getattr(self, key))}; it must be text")
        if self.on_bad not in ("fail", "skip"):
            raise ConfigError(f"on_bad is {brief(self.on_bad)}; it must be 'fail' or 'skip'")


class BadLine(Exception):
    """The reason why a line is not a document; the reader adds file and line."""


class Cells:
    """Parser of label cells: a list, or a string that is split at a given or detected separator."""

    def __init__(self, separator: str | None, where: str) -> None:
        """Take the separator, if it is known; the empty string means one label per cell."""
        self.separator = separator
        self.where = where

    def detect(self, cells: Iterable[object]) -> None:
        """Detect the separator, unless it is known: the first of ``; | ,`` that occurs in these cells."""
        if self.separator is None:
            strings = [cell for cell in cells if isinstance(cell, str) and _listed(cell) is None]
            self.separator = next((mark for mark in SEPARATORS if any(mark in cell for cell in strings)), None)
            if self.separator is not None:
                log.info("%s: labels are separated by %r", self.where, self.separator)

    def labels(self, value: object) -> tuple[str, ...]:
        """The label names in a cell."""
        if isinstance(value, str):
            return self._split(value)
        if isinstance(value, list | tuple):
            return label_names(value)
        if _missing(value):
            return ()
        if isinstance(value, int) and not isinstance(value, bool):
            return (_digits(value),)
        if hasattr(value, "tolist"):  # an array, as in data frames
            return self.labels(value.tolist())
        raise BadLine(f"the labels are {_kind(value)}; they must be a list of names or a string")

    def _split(self, cell: str) -> tuple[str, ...]:
        if not cell or cell.isspace():
            return ()
        listed = _listed(cell)
        if listed is not None:
            return label_names(listed)
        if self.separator is None:
            self.detect((cell,))  # no earlier cell has a separator, so none was split wrongly
        if not self.separator:
            return (cell.strip(),)
        return tuple(name for name in (part.strip() for part in cell.split(self.separator)) if name)


def _listed(cell: str) -> list[str] | None:
    """The names in a cell that is a JSON or Python list; None if it is not."""
    cell = cell.strip()
    if not (cell.startswith("[") and cell.endswith("]")):
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list) and all(isinstance(name, str) for name in found):
            return found
    return None


def label_names(items: Iterable[object]) -> tuple[str, ...]:
    """The label names in a list: whole numbers become text, and blank names are dropped."""
    names = (item if type(item) is str else label_name(item) for item in items)
    return tuple(name for name in names if name and not name.isspace())


def label_name(item: object) -> str:
    """The name of a label, from text or a whole number."""
    if isinstance(item, str):
        return str(item)
    if isinstance(item, numbers.Integral) and not isinstance(item, bool):
        return _digits(int(item))
    raise BadLine(f"a label is {_kind(item)}; labels must be strings")


def _digits(number: float) -> str:
    try:
        return str(number)
    except ValueError:  # Python's limit of digits
        raise BadLine("a number has too many digits; shorten it, or write it as text") from None


def _missing(value: object) -> bool:
    """Whether a cell is empty: None, NaN, or the missing value of a data frame."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), f"of type {type(value).__name__}")


class Columns:
    """The columns with text, labels, id and group; converts records to documents."""

    def __init__(self, options: ReadOptions, need_labels: bool, where: str) -> None:
        """Store the options; ``resolve`` finds the columns."""
        self.options = options
        self.need_labels = need_labels
        self.where = where
        self.cells = Cells(options.separator, where)
        self.text: tuple[str, ...] = ()
        self.label: str | None = None
        self.id: str | None = None
        self.group: str | None = None
        self.weight: str | None = None
        self.unknown: str | None = None

    def resolve(self, names: Sequence[str]) -> None:
        """Find the columns by the given or the usual names; the error of a missing column lists the existing ones."""
        asked = self.options
        self.text = tuple(self._find(name, "text", (), names) or "" for name in asked.text)
        if not self.text and ("target_ind" in names or {"uid", *RAW_TEXT} <= set(names)):
            self.text = tuple(name for name in RAW_TEXT if name in names)
        if not self.text:
            detected = self._find(None, "text", TEXT_NAMES, names)
            if detected is None:
                raise DataError(f"{self.where}: no column looks like the text among {_list(names)}; name it with --text (text=)")
            self.text = (detected,)
        self.label = self._find(asked.labels, "label", LABEL_NAMES if self.need_labels else (), names)
        if self.label is None and self.need_labels:
            raise DataError(
                f"{self.where}: no column looks like labels among {_list(names)}; name it with --label-column (labels=)"
            )
        self.id = self._find(asked.id, "id", ID_NAMES, names)
        self.group = self._find(asked.group, "group", GROUP_NAMES, names)
        if self.need_labels:
            self.weight, self.unknown = (name if name in names and name not in self.used else None for name in (WEIGHT, UNKNOWN))

    def _find(self, asked: str | None, role: str, usual: Sequence[str], names: Sequence[str]) -> str | None:
        if asked is None:
            by_lower = {name.lower(): name for name in reversed(names) if name not in self.text}
            return next((by_lower[name] for name in usual if name in by_lower), None)
        if asked in names:
            return asked
        close = difflib.get_close_matches(asked, names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise DataError(f"{self.where}: there is no {role} column {asked!r} among {_list(names)}{hint}")

    @property
    def used(self) -> list[str]:
        """The names of the columns that are used."""
        names = (*self.text, self.label, self.id, self.group, self.weight, self.unknown)
        return list(dict.fromkeys(name for name in names if name is not None))

    def document(self, record: Mapping[str, Any], line: int) -> Document:
        """Convert a record to a document; without an id, the line number is its id."""
        labels: tuple[str, ...] = ()
        if self.label is not None:
            if self.label not in record:
                raise BadLine(f"no {self.label!r} here, only {_list(record)}; use an empty list for a document without labels")
            labels = self.cells.labels(record[self.label])
        name = _plain(record.get(self.id), self.id) if self.id is not None else ""
        group = _plain(record.get(self.group), self.group) if self.group is not None else ""
        document = Document(name or str(line), self._text(record), labels, group or None)
        if self.weight is None and self.unknown is None:
            return document
        return self._judged(document, record)

    def _judged(self, document: Document, record: Mapping[str, Any]) -> Document:
        """The document with its weight and its labels that nobody judged, where it has them."""
        weight = None if self.weight is None else _weight(record.get(self.weight))
        unknown = None if self.unknown is None else self.cells.labels(record.get(self.unknown))
        if unknown and (both := set(unknown) & set(document.labels)):
            raise BadLine(f"the label {min(both)!r} is among the labels and among the unknown ones; remove it from one")
        return replace(document, weight=weight, unknown=unknown or None)

    def _text(self, record: Mapping[str, Any]) -> str:
        parts = [_plain(record[name], name) for name in self.text if name in record]
        if not parts:
            raise BadLine(f"no {' or '.join(map(repr, self.text))} here, only {_list(record)}")
        return parts[0] if len(parts) == 1 else " ".join(part for part in parts if part)


def _weight(value: object) -> float | None:
    """The weight in a cell; an empty cell is no weight."""
    if _missing(value) or value == "":
        return None
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):
        found = -1.0
    if not 0 < found < LARGEST_WEIGHT:
        raise BadLine(f"the weight is {brief(value)}; it must be a number above 0; if it is no weight, rename the column")
    return found


def _plain(value: object, column: str) -> str:
    """A cell as text: missing values are empty, numbers are formatted."""
    if isinstance(value, str):
        return str(value)
    if _missing(value):
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _digits(value)
    raise BadLine(f"the column {column!r} is {_kind(value)}, not text")


def _list(names: Iterable[str], most: int = 12) -> str:
    shown = [" ".join(str(name).split())[:60] for name in names]  # a message is one line, even if a header has line breaks
    more = f", and {len(shown) - most} more" if len(shown) > most else ""
    return f"({', '.join(shown[:most])}{more})"
