"""Settings: hyper-parameters declared as dataclass fields, alone or in groups, and their checks.

A model is a dataclass. Its fields are its own settings (``param``) and groups of settings that it shares with other models
(``group``). Recipes and the command line have no groups: names are unique over all groups of a model.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import numbers
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from polytag.config.registry import registered_name
from polytag.config.values import cast, parse, type_words
from polytag.errors import ConfigError, brief, suggestion

T = TypeVar("T")
LARGEST = 10**9  # of whole numbers without a declared maximum; compiled code and networks overflow far above it
Condition = Mapping[str, Sequence[Any]]
"""Settings by name, each with the values under which another setting has an effect."""


def param(
    default: Any,
    help: str,
    *,
    choices: Sequence[Any] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    when: Condition | None = None,
    unless: Condition | None = None,
    first: bool = False,
) -> Any:
    """Declare a setting: its default, help text, valid values, and when it has an effect.

    ``when`` and ``unless`` name other settings and their values; ``first`` marks the main settings of a model.
    """
    metadata = {
        "help": help, "choices": tuple(choices), "minimum": minimum, "maximum": maximum,
        "when": dict(when or {}), "unless": dict(unless or {}), "first": first,
    }  # fmt: skip
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def group(
    kind: type[Any],
    *,
    without: Sequence[str] = (),
    choices: Mapping[str, Sequence[Any]] | None = None,
    limits: Mapping[str, tuple[float | None, float | None]] | None = None,
    unless: Mapping[str, Condition] | None = None,
    one: Sequence[str] = (),
    **defaults: Any,
) -> Any:
    """Declare a group of settings in a model, with the model's own defaults.

    ``without`` names settings of the group that the model does not have. ``choices``, ``limits`` and ``unless`` restrict others.
    ``one`` names lists that are a single value in this model.
    """
    metadata = {
        "group": kind, "defaults": defaults, "without": frozenset(without), "choices": dict(choices or {}),
        "limits": dict(limits or {}), "unless": dict(unless or {}), "one": frozenset(one),
    }  # fmt: skip
    return field(default_factory=lambda: kind(**copy.deepcopy(defaults)), metadata=metadata)


@dataclass(frozen=True)
class Declared:
    """A declared setting: name, type, default, valid values, and when it has an effect."""

    name: str
    hint: Any
    default: Any
    help: str
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    when: Condition = field(default_factory=dict)
    unless: Condition = field(default_factory=dict)
    first: bool = False
    one: bool = False
    group: str = ""
    title: str = ""

    @property
    def type(self) -> str:
        """The name of the type in messages."""
        return type_words(self.hint)

    def check(self, value: Any, where: str) -> Any:
        """The value cast to the declared type; ConfigError if it is invalid."""
        try:
            result = cast(value, self.hint)
        except ValueError:
            raise self._error(value, where) from None
        items = result if isinstance(result, list | tuple) else [] if result is None else [result]
        for item in items:
            if self.choices and item not in self.choices and result not in self.choices:
                raise self._error(value, where)
            if isinstance(item, numbers.Real) and not self._in_range(item):
                raise self._error(value, where)
        return result

    def from_text(self, text: str, where: str) -> Any:
        """The value of text from the command line; ConfigError if it is invalid."""
        try:
            return self.check(parse(text, self.hint), where)
        except ValueError:
            raise self._error(text, where) from None

    def idle(self, values: Mapping[str, Any]) -> str | None:
        """Why the setting has no effect with these values of the other settings; None if it has one."""
        for name, wanted in self.when.items():
            if name in values and values[name] not in wanted:
                return f"with {name}={values[name]}; it is for {name}={' or '.join(map(str, wanted))}"
        for name, barred in self.unless.items():
            if name in values and values[name] in barred:
                return f"with {name}={values[name] if values[name] != '' else repr('')}"
        return None

    def _in_range(self, value: Any) -> bool:
        most = LARGEST if self.maximum is None and isinstance(value, int) else self.maximum
        return (self.minimum is None or value >= self.minimum) and (most is None or value <= most)

    def _error(self, value: Any, where: str) -> ConfigError:
        parts = [self.type]
        parts += [f"one of {', '.join(map(str, self.choices))}"] if self.choices else []
        parts += [f"at least {self.minimum:g}"] if self.minimum is not None else []
        parts += [f"at most {self.maximum:g}"] if self.maximum is not None else []
        parts += [f"at most {LARGEST:,}"] if self.maximum is None and isinstance(value, int) and value > LARGEST else []
        return ConfigError(f"{where} is {brief(value)}, but it must be {', '.join(parts)}")


def declared(cls: type[Any]) -> Mapping[str, Declared]:
    """The settings of a dataclass by name, those of its groups included."""
    kind: Any = cls
    return _declared(kind)


@functools.cache
def _declared(cls: Any) -> Mapping[str, Declared]:
    found: dict[str, Declared] = {}
    for setting in _all_declared(cls):
        assert setting.name not in found, f"{cls.__name__} has two settings called {setting.name!r}"
        found[setting.name] = setting
    return found


def _all_declared(cls: type[Any]) -> Iterator[Declared]:
    hints = typing.get_type_hints(cls)
    for f in dataclasses.fields(cls):
        if "group" in f.metadata:
            yield from _of_group(f)
        elif f.init:
            yield Declared(f.name, hints[f.name], _default(f), **_metadata(cls, f.name))


def _of_group(place: dataclasses.Field[Any]) -> Iterator[Declared]:
    """The settings of a group, as a model declares them."""
    metadata = place.metadata
    kind, defaults = metadata["group"], metadata["defaults"]
    title = (inspect.getdoc(kind) or "").split("\n")[0].rstrip(".")
    for setting in declared(kind).values():
        if setting.name in metadata["without"]:
            continue
        low, high = metadata["limits"].get(setting.name, (setting.minimum, setting.maximum))
        default, one = defaults.get(setting.name, setting.default), setting.name in metadata["one"]
        yield dataclasses.replace(
            setting,
            hint=typing.get_args(setting.hint)[0] if one else setting.hint,
            help=setting.help.partition(";")[0] if one else setting.help,  # the rest is about several values
            default=default[0] if one else default,
            choices=tuple(metadata["choices"].get(setting.name, setting.choices)),
            minimum=low,
            maximum=high,
            unless={**setting.unless, **metadata["unless"].get(setting.name, {})},
            one=one,
            group=place.name,
            title=title,
        )


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


def _metadata(cls: type[Any], name: str) -> dict[str, Any]:
    """The metadata of a field; a class that only overrides the default inherits those of its base."""
    fields = (vars(base).get("__dataclass_fields__", {}).get(name) for base in cls.__mro__)
    return dict(next((f.metadata for f in fields if f is not None and f.metadata), {"help": ""}))


# -- checks ------------------------------------------------------------------------------------------------------------


def title(cls: type[Any]) -> str:
    """The name of a class in errors: the registered name of a model."""
    name = registered_name(cls)
    return cls.__name__ if name is None else f"the model {name!r}"


def check_fields(cls: type[Any], values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The values cast to their declared types; the names must be known."""
    fields = declared(cls)
    return {name: fields[name].check(value, f"{prefix}{name!r}") for name, value in values.items()}


def check_settings(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model cast to their declared types; ConfigError for an unknown name or an invalid value."""
    known = declared(cls)
    for name in values:
        if name not in known:
            raise ConfigError(f"{title(cls)} has no option {brief(name)}; {suggestion(str(name), list(known))}")
    return check_fields(cls, values, f"{title(cls)}: the option ")


def refuse_idle(cls: type[Any], values: Mapping[str, Any]) -> None:
    """Raise for a setting that differs from its default but has no effect with the others."""
    known = declared(cls)
    together = {name: values.get(name, setting.default) for name, setting in known.items()}
    for name, value in values.items():
        reason = known[name].idle(together)
        if reason is not None and value != known[name].default:
            raise ConfigError(f"{title(cls)}: the option {name!r} has no effect {reason}; leave it out")


def built(cls: type[T], values: Mapping[str, Any]) -> T:
    """An object with these settings, each in its group."""
    known, own, grouped = declared(cls), dict[str, Any](), dict[str, dict[str, Any]]()
    for name, value in values.items():
        place = known[name].group
        (grouped.setdefault(place, {}) if place else own)[name] = [value] if known[name].one else value
    for f in dataclasses.fields(cls):  # type: ignore[arg-type]
        if f.name in grouped:
            own[f.name] = f.metadata["group"](**{**copy.deepcopy(f.metadata["defaults"]), **grouped[f.name]})
    return cls(**own)


def flat(settings: Any) -> dict[str, Any]:
    """The settings of an object by name, over all groups."""
    found = {}
    for setting in declared(type(settings)).values():
        value = getattr(getattr(settings, setting.group) if setting.group else settings, setting.name)
        found[setting.name] = value[0] if setting.one else value
    return found


def effective(settings: Any) -> dict[str, Any]:
    """The settings of an object that differ from their defaults and have an effect."""
    values, known = flat(settings), declared(type(settings))
    return {k: v for k, v in values.items() if v != known[k].default and known[k].idle(values) is None}


def assign(settings: Any, values: Mapping[str, Any]) -> None:
    """Change settings of an object by name, over all groups."""
    known = declared(type(settings))
    for name, value in values.items():
        place = getattr(settings, known[name].group) if known[name].group else settings
        setattr(place, name, [value] if known[name].one else value)
