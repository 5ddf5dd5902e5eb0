"""Options: hyper-parameters as dataclasses declare them, and the one place where values are checked and cast."""

from __future__ import annotations

import dataclasses
import numbers
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Union

import numpy as np

from polytag.errors import ConfigError
from polytag.models.model import MODELS, suggestion

_SWITCH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class Option(NamedTuple):
    """A hyper-parameter as a person reads about it."""

    name: str
    type: str
    default: Any
    help: str
    choices: tuple[Any, ...]


@dataclass(frozen=True)
class Declared:
    """A declared hyper-parameter: its type, and what its values may be."""

    name: str
    hint: Any
    default: Any
    help: str
    choices: tuple[Any, ...]
    minimum: float | None
    maximum: float | None

    def check(self, value: Any, where: str) -> Any:
        """The value in the declared type, if it fits."""
        try:
            result = _cast(value, self.hint)
        except ValueError:
            raise self._misfit(value, where) from None
        items = result if isinstance(result, list | tuple) else [] if result is None else [result]
        for item in items:
            if self.choices and item not in self.choices and result not in self.choices:
                raise self._misfit(value, where)
            if isinstance(item, numbers.Real) and not self._in_range(float(item)):
                raise self._misfit(value, where)
        return result

    def from_text(self, text: str, where: str) -> Any:
        """The value that was typed on a command line."""
        try:
            return self.check(_parse(text, self.hint), where)
        except ValueError:
            raise self._misfit(text, where) from None

    def _in_range(self, value: float) -> bool:
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)

    def _misfit(self, value: Any, where: str) -> ConfigError:
        parts = [_type_words(self.hint)]
        parts += [f"one of {', '.join(map(str, self.choices))}"] if self.choices else []
        parts += [f"at least {self.minimum:g}"] if self.minimum is not None else []
        parts += [f"at most {self.maximum:g}"] if self.maximum is not None else []
        return ConfigError(f"{where} is {value!r}, but it must be {', '.join(parts)}")


def declared(cls: type[Any]) -> dict[str, Declared]:
    """The fields that a constructor takes, with their types resolved."""
    hints = typing.get_type_hints(cls)
    found = {}
    for f in dataclasses.fields(cls):
        if f.init:
            default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            said = _said_about(cls, f.name)
            help, choices = said.get("help", ""), tuple(said.get("choices", ()))
            limits = said.get("minimum"), said.get("maximum")
            found[f.name] = Declared(f.name, hints[f.name], default, help, choices, *limits)
    return found


def _said_about(cls: type[Any], name: str) -> Mapping[str, Any]:
    """What ``param`` said about a field; a class that only gives another default leaves that to its base."""
    fields = (vars(base).get("__dataclass_fields__", {}).get(name) for base in cls.__mro__)
    return next((f.metadata for f in fields if f is not None and f.metadata), {})


def title(cls: type[Any]) -> str:
    """What an error calls a class: the model by its registered name."""
    path = f"{cls.__module__}:{cls.__qualname__}"
    return next((f"the model {name!r}" for name, target in MODELS.items() if target == path), cls.__name__)


def check_fields(cls: type[Any], values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The values in their declared types; the names must be known."""
    fields = declared(cls)
    return {name: fields[name].check(value, f"{prefix}{name!r}") for name, value in values.items()}


def validate_options(cls: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options cast to the types that a model declares, or an error for a name or a value that does not fit."""
    known = list(declared(cls))
    for name in options:
        if name not in known:
            raise ConfigError(f"{title(cls)} has no option {name!r}; {suggestion(name, known)}")
    checked = check_fields(cls, options, f"{title(cls)}: the option ")
    further = getattr(cls, "checked_options", None)  # a model made of models checks what its parts are told
    return checked if further is None else dict(further(checked))


def describe_options(cls: type[Any]) -> list[Option]:
    """What can be set, for help texts: name, type in words, default, what it is for, and the choices if they are fixed."""
    return [Option(f.name, _type_words(f.hint), f.default, f.help, f.choices) for f in declared(cls).values()]


_WORDS_FOR = {bool: "true or false", int: "a whole number", float: "a number", str: "text", types.NoneType: "none"}


def _shape(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """What a type is made of: its origin and its arguments; the members of a union go from narrow to wide."""
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (Union, types.UnionType):
        order = [types.NoneType, bool, int, float]  # a whole number is also a number, and everything typed is text
        return Union, tuple(sorted(args, key=lambda member: order.index(member) if member in order else 4 + (member is str)))
    return origin, args


def _item_types(hint: Any, count: int) -> list[Any]:
    """The types of the items of a list or tuple that has so many."""
    origin, args = _shape(hint)
    if origin is tuple and args and args[-1] is not Ellipsis:
        _require(count == len(args))
        return list(args)
    return [args[0] if args else Any] * count


def _type_words(hint: Any) -> str:
    """A type as a person says it."""
    origin, args = _shape(hint)
    if origin is Union:
        return " or ".join(_type_words(member) for member in (*args[1:], args[0]))
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}"
    if origin in (list, tuple):
        fixed = origin is tuple and args and args[-1] is not Ellipsis
        return (
            f"a list ({', '.join(map(_type_words, args))})"
            if fixed
            else f"a list, each {_type_words(args[0])}"
            if args
            else "a list"
        )
    return "a table" if origin is dict else _WORDS_FOR.get(hint, "a value")


def _cast(value: Any, hint: Any) -> Any:
    """A value from TOML, JSON or Python in the declared type; ValueError if it is something else."""
    value = value.item() if isinstance(value, np.generic) else value
    origin, args = _shape(hint)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if origin is Union:
        # The value's own type goes first, so that 1 and 1.0 stay apart where both are allowed; but "none" is always none.
        return _first_fit(_cast, value, sorted(args, key=lambda member: member not in (types.NoneType, type(value))))
    if origin in (list, tuple):
        value = value if isinstance(value, list | tuple) else [value]  # c = 2 means what --set c=2 means: a list of one
        return origin(_cast(item, kind) for item, kind in zip(value, _item_types(hint, len(value)), strict=True))
    if hint is types.NoneType:
        _require(value is None or (isinstance(value, str) and value.lower() == "none"))
        return None
    if hint is float:
        _require(number and value == value)  # nan would pass every limit
        return float(value)
    if hint is int:
        _require(number and isinstance(value, int))
    elif origin is Literal:
        _require(value in args)
    elif origin in (bool, str, dict):
        _require(isinstance(value, origin))
    return value


def _parse(text: str, hint: Any) -> Any:
    """A value typed on a command line as TOML would have it; ValueError if it cannot be of the declared type."""
    origin, args = _shape(hint)
    if origin is Union:
        return _first_fit(lambda value, member: _cast(_parse(value, member), member), text, args)
    if origin in (list, tuple):
        inner = text.strip("[]() ").rstrip(",")
        parts = [part.strip() for part in inner.split(",")] if inner else []
        return [_parse(part, kind) for part, kind in zip(parts, _item_types(hint, len(parts)), strict=True)]
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
