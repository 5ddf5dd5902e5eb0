"""Ranges: what a search may try, as a recipe declares it under [tune]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from polytag.errors import ConfigError
from polytag.models.model import suggestion

TRIALS = 20
Check: TypeAlias = Callable[[Any, str], Any]
"""Gives a value in an option's own type, or an error that begins with where the value stands."""


class Range(NamedTuple):
    """What is tried for one option: the numbers from low to high, or some values."""

    name: str
    low: float = 0
    high: float = 0
    log: bool = False
    choices: tuple[Any, ...] = ()


class Search(NamedTuple):
    """How many trials a search makes, over which ranges."""

    trials: int = TRIALS
    ranges: tuple[Range, ...] = ()


def read_search(table: Mapping[str, Any], model: str, options: Mapping[str, Check]) -> Search:
    """The table [tune] of a recipe, checked against the options of its model, which is named for people."""
    _known(table, ("trials", "ranges"), "[tune]")
    trials, ranges = table.get("trials", TRIALS), table.get("ranges", {})
    if type(trials) is not int or trials < 1:
        raise ConfigError(f"[tune] 'trials' is {trials!r}, but it must be a whole number, at least 1")
    if not isinstance(ranges, Mapping):
        raise ConfigError(f"[tune] 'ranges' is {ranges!r}, but it must be a table; write the ranges under [tune.ranges]")
    for name in ranges:
        if name not in options:
            raise ConfigError(f"[tune.ranges] {model} has no option {name!r}; {suggestion(name, list(options))}")
    # By name: a table that was written and read again may have another order, and the draws of a search follow the order.
    return Search(trials, tuple(_range(name, ranges[name], options[name]) for name in sorted(ranges)))


def _known(table: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in keys:
            raise ConfigError(f"{where} has no key {key!r}; {suggestion(key, keys)}")


def _range(name: str, value: Any, check: Check) -> Range:
    where = f"[tune.ranges] {name!r}"
    if isinstance(value, Mapping):
        return _between(name, value, check, where)
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where} is {value!r}, but it must be a table such as {{low = 1, high = 10}}, or a list of values")
    value = [list(item) if isinstance(item, tuple) else item for item in value]  # as TOML and JSON have them
    for number, item in enumerate(value):
        check(item, where)
        if item in value[:number]:
            raise ConfigError(f"{where} has {item!r} twice; name every value once")
    if len(value) < 2:
        raise ConfigError(f"{where} is {value!r}: nothing to choose from; name two values or more, or set it under [options]")
    return Range(name, choices=tuple(value))


def _between(name: str, table: Mapping[str, Any], check: Check, where: str) -> Range:
    """A range of numbers; whole ones where the option takes nothing else."""
    _known(table, ("low", "high", "log"), where)
    for key in ("low", "high"):
        if key not in table:
            raise ConfigError(f"{where} has no {key!r}; give it as {{low = 1, high = 10}}")
    low, high = (_number(table[key], check, f"{where}: {key!r}") for key in ("low", "high"))
    log = table.get("log", False)
    if not isinstance(log, bool):
        raise ConfigError(f"{where}: 'log' is {log!r}, but it must be true or false")
    if low >= high:
        raise ConfigError(f"{where}: 'low' is {table['low']!r} and 'high' {table['high']!r}; 'low' must be the smaller one")
    if log and low <= 0:
        raise ConfigError(f"{where}: 'low' is {table['low']!r}, but with log = true it must be above 0")
    return Range(name, low, high, log)


def _number(value: Any, check: Check, where: str) -> float:
    found = check(value, where)
    found = found[0] if isinstance(found, list | tuple) and len(found) == 1 else found  # c = 2 is a list of one
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < float("inf"):
        raise ConfigError(f"{where} is {value!r}, but only numbers have a range; list the values instead, as in [true, false]")
    return found
