"""What Python callers pass, checked in one place: texts, labels, numbers of labels, seeds and paths.

Every error names the argument and says what to pass instead.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse

from polytag.errors import ConfigError, DataError, brief
from polytag.formats.document import LARGEST_WEIGHT, BadLine, label_names

_NO_LIST = (str, bytes, bytearray, Mapping, set, frozenset)


class Labelled(NamedTuple):
    """The label names of every text; ``classes`` are all names in order, if the labels came as an indicator matrix."""

    rows: list[tuple[str, ...]]
    classes: tuple[str, ...] | None = None


# -- texts -------------------------------------------------------------------------------------------------------------


def checked_texts(texts: Any, first: int = 0) -> list[str]:
    """The texts as a list of str; ``first`` is the number of the first one in messages."""
    found = list(listed_texts(texts))
    for row, text in enumerate(found, start=first):
        if not isinstance(text, str):
            raise DataError(f"text {row} is of type {type(text).__name__} ({brief(text)}); {_text_advice(text)}")
    return found


def listed_texts(texts: Any) -> Iterable[Any]:
    """The texts, not yet checked one by one, if they are a list or anything else that can be iterated in order."""
    if isinstance(texts, str):
        raise DataError("give a list of texts, not one string; a file is read by Corpus.read(path)")
    if _is_frame(texts):
        raise DataError("give a list of texts, not a data frame; pass one of its columns, as in frame['text']")
    if not _is_list(texts):
        raise DataError(f"give a list of texts, not {_kind(texts)}; pass a list of str, or corpus.texts of a Corpus")
    found: Iterable[Any] = texts
    return found


def _text_advice(text: Any) -> str:
    if _is_missing(text):
        return "use '' for a missing text"
    return "decode it first, as in text.decode('utf-8')" if isinstance(text, bytes | bytearray) else "pass a str"


# -- labels ------------------------------------------------------------------------------------------------------------


def checked_labels(labels: Any, classes: Any = None) -> Labelled:
    """The label names of every text, from lists of names or from an indicator matrix with named columns."""
    if _is_frame(labels):
        return _of_frame(labels, classes)
    if issparse(labels) or (hasattr(labels, "__array__") and getattr(labels, "ndim", 0) == 2 and not _has_text(labels)):
        return _of_matrix(labels, classes)
    if isinstance(labels, str) or not _is_list(labels):
        raise DataError(f"the labels are {_kind(labels)}; pass one list of label names for every text, as in [['a', 'b'], ['c']]")
    rows = list(labels)
    if classes is not None or is_indicator(rows):
        return _of_matrix(_as_matrix(rows), classes)
    return Labelled([_names(own, row) for row, own in enumerate(rows)])


def checked_weights(weights: Any) -> list[float | None]:
    """The weights of texts: numbers above 0."""
    if isinstance(weights, str) or not isinstance(weights, Iterable):
        raise DataError(f"the weights are {brief(weights)}; pass a list with one number for every text")
    found: list[float | None] = []
    for row, weight in enumerate(weights):
        number = float(weight) if isinstance(weight, int | float | np.integer | np.floating) else -1.0
        if not 0 < number < LARGEST_WEIGHT:
            raise DataError(f"the weight of text {row} is {brief(weight)}; it must be a number above 0")
        found.append(number)
    return found


def _names(own: Any, row: int) -> tuple[str, ...]:
    if isinstance(own, str):
        raise DataError(f"the labels of text {row} are the plain string {own!r}; put them into a list: [{own!r}]")
    if isinstance(own, set | frozenset):
        own = sorted(own, key=str)
    if not _is_list(own):
        advice = "use [] for a text without labels" if _is_missing(own) else "put them into a list"
        raise DataError(f"the labels of text {row} are {_kind(own)}; {advice}")
    try:
        return label_names(own.tolist() if hasattr(own, "tolist") else own)
    except BadLine as bad:
        raise DataError(f"the labels of text {row}: {bad}; numbers and names are fine, as in ['a', 7]") from None


def is_indicator(rows: Sequence[Any]) -> bool:
    """Whether lists are rows of 0 and 1, all of one length: as label names every text would have the labels 0 and 1."""
    width = len(rows[0]) if rows and isinstance(rows[0], list | tuple | np.ndarray) else 0
    return width > 1 and all(
        isinstance(row, list | tuple | np.ndarray) and len(row) == width and all(map(_is_bit, row)) for row in rows
    )


def _is_bit(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.generic) and not isinstance(value, str | bytes) and value in (0, 1)


def _as_matrix(rows: Sequence[Any]) -> Any:
    try:
        found = np.array([list(row) for row in rows])
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.ndim != 2:
        raise DataError("classes= names the columns of an indicator matrix, but the labels are no matrix; leave classes= out")
    return found


def _of_matrix(matrix: Any, classes: Any) -> Labelled:
    """The labels of a sparse or dense matrix of 0 and 1."""
    if matrix.ndim != 2:
        raise DataError(f"the labels are a sparse array with {matrix.ndim} dimensions; an indicator matrix has two")
    found = _copied(matrix)
    found.sum_duplicates()
    found.eliminate_zeros()
    odd = found.data[found.data != 1]
    if len(odd):
        raise DataError(f"the labels are a matrix with the value {odd[0]}; an indicator matrix has 0 and 1 alone")
    n, width = found.shape
    if classes is None:
        raise DataError(
            f"the labels are an indicator matrix ({n} x {width}); name its columns with classes=, as in "
            "classes=binarizer.classes_"
        )
    names = _class_names(classes, width)
    indices, indptr = found.indices.tolist(), found.indptr.tolist()
    return Labelled([tuple(names[j] for j in indices[indptr[i] : indptr[i + 1]]) for i in range(n)], names)


def _copied(matrix: Any) -> Any:
    """The matrix as sparse rows; what the caller passed stays as it is."""
    sparse: bool = issparse(matrix)
    if sparse:
        return matrix.tocsr(copy=True)
    array = np.asarray(matrix)
    if array.dtype.kind not in "biuf":
        raise DataError(f"the labels are a matrix of {array.dtype}; an indicator matrix has 0 and 1 alone")
    return csr_array(array if array.dtype.kind != "b" else array.astype(np.int8))


def _of_frame(frame: Any, classes: Any) -> Labelled:
    """The labels of a frame of 0 and 1, column by column, so that a frame of sparse columns is never dense."""
    columns = list(frame.columns)
    if len(set(columns)) < len(columns):
        raise DataError("the labels are a data frame with two columns of one name; rename one")
    names = _class_names(columns if classes is None else classes, len(columns))
    rows: list[list[str]] = [[] for _ in range(len(frame))]
    for column, name in zip(columns, names, strict=True):
        values = np.asarray(frame[column])
        odd = values[~np.isin(values, (0, 1))] if values.dtype.kind in "biuf" else [v for v in values if not _is_bit(v)]
        if len(odd):
            raise DataError(
                f"the labels are a data frame with {brief(odd[0])} in its column {brief(column)}; an indicator matrix has 0 "
                "and 1 alone; pass a column of lists as frame['labels'], or use Corpus.from_frame"
            )
        for row in np.flatnonzero(values.astype(np.int8)).tolist():
            rows[row].append(name)
    return Labelled([tuple(row) for row in rows], names)


def _class_names(classes: Any, width: int) -> tuple[str, ...]:
    """The names of the columns of an indicator matrix."""
    if isinstance(classes, str) or not _is_list(classes):
        raise DataError(f"classes= is {_kind(classes)}; pass one name for every column, as in ['a', 'b']")
    given = list(classes)
    try:
        names = label_names(given)
    except BadLine as bad:
        raise DataError(f"classes=: {bad}") from None
    if len(names) < len(given):
        raise DataError("classes= has a blank name; give every column a name")
    if len(names) != width:
        raise DataError(f"classes= has {len(names)} names for {width} columns of the indicator matrix; name every column")
    if twice := len(names) - len(set(names)):
        raise DataError(f"classes= has {twice} names twice; every label name must be unique")
    return names


# -- numbers, paths and options ----------------------------------------------------------------------------------------


def checked_count(k: Any, most: int, least: int = 1, name: str = "k") -> int:
    """A number of labels: whole, at least ``least``, and clipped to ``most``, which no document exceeds."""
    found = _whole(k)
    if found is None:
        raise ConfigError(f"{name} is {brief(k)}; it must be a whole number, at least {least}")
    if found < least:
        raise ConfigError(f"{name} is {brief(k)}; it must be at least {least}")
    return min(found, max(most, 0))


def checked_seed(seed: Any) -> int:
    """A seed: a whole number that is not negative."""
    found = _whole(seed)
    if found is None or found < 0:
        raise ConfigError(f"the seed is {brief(seed)}; it must be a whole number, at least 0")
    return found


def checked_path(path: Any) -> Path:
    """A path from a str or a path object."""
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise ConfigError(f"{brief(path)} is not a path; pass a str or a pathlib.Path")
    if "\0" in os.fspath(path):
        raise ConfigError(f"{brief(path)} is not a path; it has a null character")
    return Path(path)


def checked_mapping(value: Any, what: str, example: str) -> dict[str, Any]:
    """A mapping with text as keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{what} are {brief(value)}; pass a dict such as {example}")
    return dict(value)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


# -- kinds of values ---------------------------------------------------------------------------------------------------


def _is_list(value: Any) -> bool:
    """Whether a value can be iterated in order: a list, a tuple, an array, a column of a frame, a generator."""
    if value is None or isinstance(value, _NO_LIST):
        return False
    try:
        iter(value)
    except TypeError:
        return False
    return True


def _is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def _has_text(array: Any) -> bool:
    """Whether a matrix has text or objects, as label names in rows of equal length are."""
    return np.asarray(array).dtype.kind in "OUS"


def _is_missing(value: Any) -> bool:
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or type(value).__name__ in ("NAType", "NaTType", "NoneType")
    )


def _kind(value: Any) -> str:
    """What a value is, in a message."""
    if value is None:
        return "None"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, bool | int | float | np.generic):
        return f"the number {brief(value)}"
    return f"a value of type {type(value).__name__}"


def text_of(pair: Any) -> Any:
    """The text of a pair (item, text)."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"a document is {brief(pair)}; pass pairs (item, text), as in ('7', 'Fish quotas agreed')")
    return pair[1]
