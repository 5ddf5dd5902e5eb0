"""Values and their declared types: casting from TOML, JSON or Python, parsing from the command line, naming types."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal, Union

import numpy as np

_SWITCH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_WORDS_FOR = {bool: "true or false", int: "a whole number", float: "a number", str: "text", types.NoneType: "none"}


def _shape(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The origin and the arguments of a type; the members of a union are sorted from narrow to wide."""
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (Union, types.UnionType):
        order = [types.NoneType, bool, int, float]  # an int is a valid float, and any input is a valid str
        return Union, tuple(sorted(args, key=lambda member: order.index(member) if member in order else 4 + (member is str)))
    return origin, args


def _item_types(hint: Any, count: int) -> list[Any]:
    """The types of the items of a list or tuple with ``count`` items."""
    origin, args = _shape(hint)
    if origin is tuple and args and args[-1] is not Ellipsis:
        _require(count == len(args))
        return list(args)
    return [args[0] if args else Any] * count


def type_words(hint: Any) -> str:
    """The name of a type in messages."""
    origin, args = _shape(hint)
    if origin is Union:
        return " or ".join(type_words(member) for member in (*args[1:], args[0]))
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}"
    if origin in (list, tuple):
        fixed = origin is tuple and args and args[-1] is not Ellipsis
        return (
            f"a list ({', '.join(map(type_words, args))})"
            if fixed
            else f"a list, each {type_words(args[0])}"
            if args
            else "a list"
        )
    return "a table" if origin is dict else _WORDS_FOR.get(hint, "a value")


def cast(value: Any, hint: Any) -> Any:
    """A value from TOML, JSON or Python, cast to the declared type; ValueError if it does not fit."""
    value = value.item() if isinstance(value, np.generic) else value
    origin, args = _shape(hint)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if origin is Union:
        # The value's own type goes first, so that 1 and 1.0 stay distinct where both are allowed; "none" is always None.
        return _first_fit(cast, value, sorted(args, key=lambda member: member not in (types.NoneType, type(value))))
    if origin in (list, tuple):
        value = value if isinstance(value, list | tuple) else [value]  # c = 2 is a list of one, like --set c=2
        return origin(cast(item, kind) for item, kind in zip(value, _item_types(hint, len(value)), strict=True))
    if hint is types.NoneType:
        _require(value is None or (isinstance(value, str) and value.lower() == "none"))
        return None
    if hint is float:
        _require(number and abs(value) <= sys.float_info.max)  # NaN would pass every limit, and infinity some
        return float(value)
    if hint is int:
        _require(number and isinstance(value, int))
    elif origin is Literal:
        _require(value in args)
    elif origin in (bool, str, dict):
        _require(isinstance(value, origin))
    return value


def parse(text: str, hint: Any) -> Any:
    """The TOML value of command-line text; ValueError if it cannot be of the declared type."""
    origin, args = _shape(hint)
    if origin is Union:
        return _first_fit(lambda value, member: cast(parse(value, member), member), text, args)
    if origin in (list, tuple):
        inner = text.strip("[]() ").rstrip(",")
        parts = [part.strip() for part in inner.split(",")] if inner else []
        return [parse(part, kind) for part, kind in zip(parts, _item_types(hint, len(parts)), strict=True)]
    if origin is Literal:
        return next((choice for choice in args if str(choice) == text), text)
    if hint is bool:
        _require(text.lower() in _SWITCH)
        return _SWITCH[text.lower()]
    return hint(text) if hint in (int, float) else text


def _require(condition: object) -> None:
    if not condition:
        raise ValueError


def _first_fit(convert: Callable[[Any, Any], Any], value: Any, hints: Sequence[Any]) -> Any:
    for hint in hints:
        try:
            return convert(value, hint)
        except ValueError:
            continue
    raise ValueError
