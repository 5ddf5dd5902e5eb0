"""Schemas: what a saved state must look like, checked in one place before compiled code or an allocation uses it.

An artefact may come from a stranger who recomputed its checksums. A schema names every part of a state: its type, its rank, its
size in terms of other sizes, the range and the order of its values. Sizes have names. A name gets its value where it first
occurs, or from the caller (the number of labels); everywhere else it must agree. ``"labels+1"`` is one more than ``labels``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from polytag.storage.state_json import State

Size: TypeAlias = int | str
Sizes: TypeAlias = dict[str, int]
_FEW = 1 << 16  # entries that are compared at once, so that a check needs little memory


@dataclass(frozen=True)
class Array:
    """An array of one of these types; its values are at least ``low`` and below ``below``, and in this order.

    ``order`` is ``rising`` (never falls), ``strict`` (rises from entry to entry), ``distinct``, ``offsets`` (from 0, rising, up
    to ``total``) or nothing.
    """

    types: tuple[str, ...]
    shape: tuple[Size, ...]
    low: float | None = None
    below: Size | None = None
    order: str = ""
    total: Size | None = None


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix of float32 with this shape; its columns were checked when it was decoded."""

    shape: tuple[Size, Size]
    ascending: bool = False


@dataclass(frozen=True)
class Number:
    """A finite number, whole or not, within bounds that may be sizes."""

    low: float
    high: float | str
    whole: bool = True


@dataclass(frozen=True)
class Count:
    """A whole number that is a size."""

    size: str


@dataclass(frozen=True)
class Text:
    """A text, one of ``choices`` if there are any."""

    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Switch:
    """True or false."""


@dataclass(frozen=True)
class Optional:
    """None, or what the schema says."""

    schema: Schema


@dataclass(frozen=True)
class Items:
    """A list of equal things, ``count`` or at least ``least`` of them; ``own`` sizes hold inside of one item alone."""

    item: Schema
    count: Size | None = None
    least: int = 0
    own: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Named:
    """A table with any names and values of one kind."""

    value: Schema


@dataclass(frozen=True)
class Anything:
    """JSON values that other code checks."""

    kind: type = dict


@dataclass(frozen=True)
class Variant:
    """A table of one of several kinds, which its value of ``tag`` names."""

    tag: str
    kinds: Mapping[str, Table]


@dataclass(frozen=True)
class Table:
    """A table with exactly these names; those of ``optional`` may be missing. ``own`` sizes hold inside of it alone.

    ``rules`` are checks over the whole table that say what compiled code assumes; each raises ValueError.
    """

    fields: Mapping[str, Schema]
    optional: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    rules: tuple[Callable[[State, Sizes], None], ...] = field(default=())


Schema: TypeAlias = "Array | Sparse | Number | Count | Text | Switch | Optional | Items | Named | Anything | Variant | Table"


def check(schema: Schema, value: Any, sizes: Mapping[str, int], place: str = "state") -> Sizes:
    """Raise ValueError, with the place, unless the value is what the schema says; the sizes that it has."""
    known = dict(sizes)
    _CHECKS[type(schema)](schema, value, known, place)
    return known


def _wrong(place: str, expected: str) -> ValueError:
    return ValueError(f"{place} is not {expected}")


def _size(size: Size, found: int, sizes: Sizes) -> bool:
    """Whether a size is what it should be; a name without a value gets it here."""
    if isinstance(size, int):
        return found == size
    name, plus, more = size.partition("+")
    wanted = found - int(more) if plus else found
    return wanted >= 0 and sizes.setdefault(name, wanted) == wanted


def _bound(bound: float | str, sizes: Sizes) -> float:
    return sizes[bound] if isinstance(bound, str) else bound


def _array(schema: Array, value: Any, sizes: Sizes, place: str) -> None:
    if not isinstance(value, np.ndarray) or value.dtype.name not in schema.types or value.ndim != len(schema.shape):
        raise _wrong(place, f"an array of {' or '.join(schema.types)} with {len(schema.shape)} dimensions")
    if not all(_size(size, found, sizes) for size, found in zip(schema.shape, value.shape, strict=True)):
        raise _wrong(place, f"of the size {', '.join(map(str, schema.shape))}")
    if schema.order and not _ordered(schema, value, sizes):
        raise _wrong(place, f"in order ({schema.order})")
    if value.size and schema.low is not None and not value.min() >= schema.low:
        raise _wrong(place, f"at least {schema.low:g}")
    if value.size and schema.below is not None and not value.max() < _bound(schema.below, sizes):
        raise _wrong(place, f"below {schema.below}")


def _ordered(schema: Array, value: NDArray[Any], sizes: Sizes) -> bool:
    if schema.order == "distinct":
        ordered = np.sort(value)
        return bool((ordered[1:] != ordered[:-1]).all())
    if schema.order == "offsets":
        assert schema.total is not None
        if not len(value) or value[0] != 0 or not _size(schema.total, int(value[-1]), sizes):
            return False
    for start in range(0, max(0, len(value) - 1), _FEW):  # compared, not subtracted: differences overflow
        one, next_one = value[start : start + _FEW], value[start + 1 : start + _FEW + 1]
        if not (one[: len(next_one)] < next_one if schema.order == "strict" else one[: len(next_one)] <= next_one).all():
            return False
    return True


def _sparse(schema: Sparse, matrix: Any, sizes: Sizes, place: str) -> None:
    value: Any = matrix if issparse(matrix) else None
    if value is None or value.data.dtype != np.float32:
        raise _wrong(place, "a sparse matrix of float32")
    if {value.indices.dtype.name, value.indptr.dtype.name} - {"int32", "int64"}:
        raise _wrong(place, "a sparse matrix with int32 or int64 indices")
    if not all(_size(size, int(found), sizes) for size, found in zip(schema.shape, value.shape, strict=True)):
        raise _wrong(place, f"of the size {', '.join(map(str, schema.shape))}")
    if schema.ascending and not _ascending(value.indices, value.indptr):
        raise _wrong(place, "a sparse matrix with ascending columns in every row")


def _ascending(indices: NDArray[Any], indptr: NDArray[Any]) -> bool:
    falls = np.flatnonzero(indices[1:] <= indices[:-1]) + 1  # only where a new row begins
    return bool(np.isin(falls, indptr).all())


def _number(schema: Number, value: Any, sizes: Sizes, place: str) -> None:
    fits = isinstance(value, int if schema.whole else int | float) and not isinstance(value, bool)
    if not fits or not schema.low <= value <= _bound(schema.high, sizes):
        raise _wrong(place, f"a {'whole ' if schema.whole else ''}number from {schema.low:g} to {schema.high}")


def _count(schema: Count, value: Any, sizes: Sizes, place: str) -> None:
    if type(value) is not int or value < 0 or not _size(schema.size, value, sizes):
        raise _wrong(place, f"the size {schema.size}")


def _text(schema: Text, value: Any, sizes: Sizes, place: str) -> None:
    if not isinstance(value, str) or (schema.choices and value not in schema.choices):
        raise _wrong(place, f"one of {', '.join(schema.choices)}" if schema.choices else "text")


def _switch(schema: Switch, value: Any, sizes: Sizes, place: str) -> None:
    if not isinstance(value, bool):
        raise _wrong(place, "true or false")


def _optional(schema: Optional, value: Any, sizes: Sizes, place: str) -> None:
    if value is not None:
        _CHECKS[type(schema.schema)](schema.schema, value, sizes, place)


def _items(schema: Items, value: Any, sizes: Sizes, place: str) -> None:
    if not isinstance(value, list) or len(value) < schema.least:
        raise _wrong(place, f"a list of at least {schema.least}")
    if schema.count is not None and not _size(schema.count, len(value), sizes):
        raise _wrong(place, f"a list of {schema.count}")
    if schema.item == Text() and set(map(type, value)) <= {str}:
        return  # names of half a million labels
    inner = _CHECKS[type(schema.item)]
    for number, item in enumerate(value):
        with _inside(schema.own, sizes):
            inner(schema.item, item, sizes, f"{place}/{number}")


def _named(schema: Named, value: Any, sizes: Sizes, place: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(place, "a table")
    if schema.value == Text() and set(map(type, value.values())) <= {str}:
        return
    inner = _CHECKS[type(schema.value)]
    for name, item in value.items():
        inner(schema.value, item, sizes, f"{place}/{name}")


def _anything(schema: Anything, value: Any, sizes: Sizes, place: str) -> None:
    if not isinstance(value, schema.kind):
        raise _wrong(place, f"a {schema.kind.__name__}")


def _variant(schema: Variant, value: Any, sizes: Sizes, place: str) -> None:
    kind = value.get(schema.tag) if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in schema.kinds:
        raise _wrong(place, f"a table whose {schema.tag} is {' or '.join(schema.kinds)}")
    _table(schema.kinds[kind], value, sizes, place)


def _table(schema: Table, value: Any, sizes: Sizes, place: str) -> None:
    if not isinstance(value, dict) or not set(schema.fields) - schema.optional <= set(value) <= set(schema.fields):
        raise _wrong(place, f"a table of {', '.join(schema.fields)}")
    with _inside(schema.own, sizes):
        for name, inner in schema.fields.items():
            if name in value:
                _CHECKS[type(inner)](inner, value[name], sizes, f"{place}/{name}")
        for rule in schema.rules:
            rule(value, sizes)


@contextmanager
def _inside(own: frozenset[str], sizes: Sizes) -> Iterator[None]:
    """Inside, these sizes have no value yet; outside they are as before."""
    outside = {name: sizes.pop(name) for name in own if name in sizes}
    yield
    for name in own:
        sizes.pop(name, None)
    sizes.update(outside)


_CHECKS: dict[type[Any], Callable[[Any, Any, Sizes, str], None]] = {
    Array: _array, Sparse: _sparse, Number: _number, Count: _count, Text: _text, Switch: _switch, Optional: _optional,
    Items: _items, Named: _named, Anything: _anything, Variant: _variant, Table: _table,
}  # fmt: skip


def parts(schema: Schema, place: str = "") -> Iterator[tuple[str, Schema]]:
    """Every part of a schema with its place; ``*`` stands for any name or number."""
    yield place, schema
    if isinstance(schema, Table):
        for name, inner in schema.fields.items():
            yield from parts(inner, f"{place}/{name}")
    elif isinstance(schema, Items | Named):
        yield from parts(schema.item if isinstance(schema, Items) else schema.value, f"{place}/*")
    elif isinstance(schema, Optional):
        yield from parts(schema.schema, place)
    elif isinstance(schema, Variant):
        for kind in schema.kinds.values():
            yield from parts(kind, place)
