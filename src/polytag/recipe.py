"""The recipe: everything that a training was told, as TOML that repeats it, and the one place where options are checked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import numbers
import os
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, Union

import numpy as np

from polytag.errors import ConfigError
from polytag.models.model import METRIC_NAMES, MODELS, Model, model_class, param, suggestion
from polytag.ranges import Search, read_search

_SWITCH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HEADER = "# What this training was told. The same recipe with the same data gives the same model.\n"


class Option(NamedTuple):
    """A hyper-parameter as a person reads about it."""

    name: str
    type: str
    default: Any
    help: str
    choices: tuple[Any, ...]


@dataclass
class Recipe:
    """What a training is told: the model with its options, the seed, how to decide, and which data."""

    model: str = param("br", "name of the model")
    options: dict[str, Any] = field(default_factory=dict, metadata={"help": "the model's hyper-parameters that were set"})
    seed: int = param(0, "same seed, same machine: same scores", minimum=0)
    optimise: str = param("micro_f1", "metric that choices are made for", choices=METRIC_NAMES)
    calibrate: bool = param(True, "turn scores into probabilities that can be trusted")
    closed: bool = param(False, "predict every ancestor of a predicted label too")
    min_labels: int | None = param(None, "fewest labels of a document; none: as in the training data", minimum=0)
    data: dict[str, Any] = field(default_factory=dict, metadata={"help": "the files, how to read them, their fingerprint"})
    tune: dict[str, Any] = field(default_factory=dict, metadata={"help": "what `polytag tune` may try: trials and ranges"})

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a TOML file; an unknown key or a value that does not fit is an error that names the file and the key."""
        table = _read_toml(Path(path))
        try:
            known = [f.name for f in dataclasses.fields(cls)]
            for key in table:
                if key not in known:
                    raise ConfigError(f"unknown key {key!r}; {_place_of(key, table.get('model', 'br'), known)}")
            return cls(**_check_fields(cls, table, "")).checked()
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def write(self, path: str | Path) -> None:
        """Write the recipe as TOML, in one step: a reader never sees half of it."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text(_HEADER + toml_text(self._table()), encoding="utf-8", newline="\n")
        os.replace(temporary, path)

    def checked(self) -> Self:
        """The same recipe with every value checked and cast, or an error that says which one does not fit."""
        values = _check_fields(type(self), {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}, "")
        options = validate_options(model_class(values["model"]), values["options"])
        for name in _shared(model_class(values["model"])):
            if options.pop(name, values[name]) != values[name]:
                raise ConfigError(f"the recipe has one {name!r} at its top and another under [options]; keep the one at the top")
        told = dataclasses.replace(self, **{**values, "options": options})
        told.search()
        return told

    def search(self) -> Search:
        """What [tune] declares: how many trials, over which ranges; the seed and the like are not searched."""
        cls = model_class(self.model)
        options = {name: f.check for name, f in _fields(cls).items() if name not in _shared(cls)}
        return read_search(self.tune, _title(cls), options)

    def with_overrides(self, settings: Sequence[str]) -> Self:
        """The recipe with settings such as ``c=2`` or ``ngrams=1,2`` applied: options of the model, or keys of the recipe."""
        cls = model_class(self.model)
        own = {name: f for name, f in _fields(type(self)).items() if name not in ("model", "options", "data", "tune")}
        options = {name: f for name, f in _fields(cls).items() if name not in own}
        changed: dict[str, Any] = {}
        chosen = dict(self.options)
        for setting in sorted(settings, key=lambda setting: "." in setting.partition("=")[0]):  # first which parts there are
            name, equals, text = setting.partition("=")
            name = name.strip()
            if not equals:
                raise ConfigError(f"--set {setting!r} has no value; write it as NAME=VALUE")
            if "." in name and hasattr(cls, "part_classes"):
                chosen["settings"] = _with_part_setting(cls, chosen, name, text.strip())
                continue
            if name not in own and name not in options:
                hint = "name it with --model" if name == "model" else suggestion(name, [*options, *own])
                raise ConfigError(f"--set {setting!r}: {_title(cls)} has no option {name!r}; {hint}")
            value = (own.get(name) or options[name]).from_text(text.strip(), f"--set {setting!r}: {name!r}")
            (changed if name in own else chosen)[name] = value
        return dataclasses.replace(self, options=chosen, **changed).checked()

    def fingerprint(self) -> str:
        """A checksum of everything that shapes the model; data with a ``fingerprint`` is known by that, not by its paths."""
        table = self._table()
        table.pop("tune", None)  # a training never looks at it
        table["data"] = self.data.get("fingerprint", table["data"])
        return hashlib.sha256(json.dumps(table, sort_keys=True, default=str).encode()).hexdigest()

    def _table(self) -> dict[str, Any]:
        """The recipe as TOML can hold it, tables last; TOML has no null, so an option without a value is the word none."""
        table = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("options", "data", "tune")}
        options = {name: "none" if value is None else value for name, value in self.options.items()}
        return {**table, "options": options, "data": dict(self.data), **({"tune": dict(self.tune)} if self.tune else {})}


def _with_part_setting(cls: Any, options: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
    """The settings of a model's parts with one more, named PART.OPTION."""
    part, _, option = name.rpartition(".")
    where = f"--set '{name}={text}'"
    kinds = cls.part_classes(part, options)
    known = {key: found for kind in reversed(kinds) for key, found in _fields(kind).items()}
    if option not in known:
        titles = " or ".join(dict.fromkeys(map(_title, kinds)))
        raise ConfigError(f"{where}: {titles} has no option {option!r}; {suggestion(option, list(known))}")
    settings = options.get("settings", {})
    return {**settings, part: {**settings.get(part, {}), option: known[option].from_text(text, f"{where}: {option!r}")}}


def build_model(recipe: Recipe) -> Model:
    """The untrained model that a recipe asks for."""
    recipe = recipe.checked()
    cls = model_class(recipe.model)
    return cls(**recipe.options, **{name: getattr(recipe, name) for name in _shared(cls)})


def _shared(cls: type[Any]) -> list[str]:
    """The options of a model that stand at the top of a recipe, such as the seed."""
    top = {f.name for f in dataclasses.fields(Recipe)}
    return [name for name in _fields(cls) if name in top]


def _place_of(key: str, model: Any, known: Sequence[str]) -> str:
    """What to do about a key at the top of a recipe that does not belong there."""
    if isinstance(model, str) and model in MODELS and key in _fields(model_class(model)):
        return f"it is an option of {model!r}: put it under [options]"
    return suggestion(key, known)


# --- checking options ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Field:
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


def _fields(cls: type[Any]) -> dict[str, _Field]:
    """The fields that a constructor takes, with their types resolved."""
    hints = typing.get_type_hints(cls)
    found = {}
    for f in dataclasses.fields(cls):
        if f.init:
            default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            help, choices = f.metadata.get("help", ""), tuple(f.metadata.get("choices", ()))
            limits = f.metadata.get("minimum"), f.metadata.get("maximum")
            found[f.name] = _Field(f.name, hints[f.name], default, help, choices, *limits)
    return found


def _title(cls: type[Any]) -> str:
    path = f"{cls.__module__}:{cls.__qualname__}"
    return next((f"the model {name!r}" for name, target in MODELS.items() if target == path), cls.__name__)


def _check_fields(cls: type[Any], values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    fields = _fields(cls)
    return {name: fields[name].check(value, f"{prefix}{name!r}") for name, value in values.items()}


def validate_options(cls: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options cast to the types that a model declares, or an error for a name or a value that does not fit."""
    known = list(_fields(cls))
    for name in options:
        if name not in known:
            raise ConfigError(f"{_title(cls)} has no option {name!r}; {suggestion(name, known)}")
    checked = _check_fields(cls, options, f"{_title(cls)}: the option ")
    further = getattr(cls, "checked_options", None)  # a model made of models checks what its parts are told
    return checked if further is None else dict(further(checked))


def describe_options(cls: type[Any]) -> list[Option]:
    """What can be set, for help texts: name, type in words, default, what it is for, and the choices if they are fixed."""
    return [Option(f.name, _type_words(f.hint), f.default, f.help, f.choices) for f in _fields(cls).values()]


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


# --- TOML ------------------------------------------------------------------------------------------------------------


def toml_text(table: Mapping[str, Any]) -> str:
    """A table as TOML that reads back equal; entries without a value (None) are left out, for TOML has none."""
    return "".join(f"{line}\n" for line in _toml_lines(table, ())).lstrip("\n")


def _toml_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None and not isinstance(value, Mapping):
            yield f"{_toml_key(key)} = {_toml_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield ""
            yield f"[{'.'.join(map(_toml_key, (*path, key)))}]"
            yield from _toml_lines(value, (*path, key))


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _toml_string(key)


def _toml_string(text: str) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")  # TOML cannot say half a surrogate pair
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    text = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return f'"{text}"'


def _toml_value(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return _toml_string(str(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, Mapping):
        pairs = [f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items() if item is not None]
        return f"{{{', '.join(pairs)}}}"
    raise TypeError(f"a {type(value).__name__} cannot be written to a recipe; use text, numbers, true/false, lists and tables")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; name a recipe (.toml)") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); name a recipe (.toml)") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8; convert it first") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}; text needs quotes, true and false none") from None
