"""Search ranges, as a recipe declares them under [tune]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from polytag.errors import ConfigError, brief, suggestion

TRIALS, MOST_TRIALS = 20, 1_000_000
Check: TypeAlias = Callable[[Any, str], Any]
"""Casts a value to the type of an option; the second argument, its location, begins the error message."""


class Range(NamedTuple):
    """The values of one option in a search: the numbers from low to high, or a list of choices."""

    name: str
    low: float = 0
    high: float = 0
    log: bool = False
    choices: tuple[Any, ...] = ()


class Search(NamedTuple):
    """The number of trials of a search, its ranges, the trials in parallel, and the share of documents of a pilot (0 = none)."""

    trials: int = TRIALS
    ranges: tuple[Range, ...] = ()
    at_once: int = 1
    pilot: float = 0.0


def read_search(table: Mapping[str, Any], model: str, options: Mapping[str, Check]) -> Search:
    """The table [tune] of a recipe, checked against the options of its model; ``model`` is its name in errors."""
    _known(table, ("trials", "ranges", "at_once", "pilot"), "[tune]")
    ranges, pilot = table.get("ranges", {}), table.get("pilot", 0.0)
    trials, at_once = (_count(table, name, usual) for name, usual in (("trials", TRIALS), ("at_once", 1)))
    if not isinstance(pilot, int | float) or not 0 <= pilot < 1:
        raise ConfigError(f"[tune] 'pilot' is {brief(pilot)}, but it must be a share of the documents, at least 0 and below 1")
    if not isinstance(ranges, Mapping):
        raise ConfigError(f"[tune] 'ranges' is {brief(ranges)}, but it must be a table; write the ranges under [tune.ranges]")
    for name in ranges:
        if name not in options:
            raise ConfigError(f"[tune.ranges] {model} has no option {name!r}; {suggestion(name, list(options))}")
    # Sorted by name: the draws of a search depend on the order, which a written and re-read table may not keep.
    return Search(trials, tuple(_range(name, ranges[name], options[name]) for name in sorted(ranges)), at_once, pilot)


def _count(table: Mapping[str, Any], name: str, usual: int) -> int:
    value = table.get(name, usual)
    if type(value) is not int or not 1 <= value <= MOST_TRIALS:
        raise ConfigError(
            f"[tune] {name!r} is {brief(value)}, but it must be a whole number, at least 1 and at most {MOST_TRIALS}"
        )
    return value


def _known(table: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in keys:
            raise ConfigError(f"{where} has no key {key!r}; {suggestion(key, keys)}")


def _range(name: str, value: Any, check: Check) -> Range:
    where = f"[tune.ranges] {name!r}"
    if isinstance(value, Mapping):
        return _between(name, value, check, where)
    if not isinstance(value, list | tuple):
        wanted = "a table such as {low = 1, high = 10}, or a list of values"
        raise ConfigError(f"{where} is {brief(value)}, but it must be {wanted}")
    value = [list(item) if isinstance(item, tuple) else item for item in value]  # as in TOML and JSON
    for number, item in enumerate(value):
        check(item, where)
        if item in value[:number]:
            raise ConfigError(f"{where} has {brief(item)} twice; name every value once")
    if len(value) < 2:
        advice = "name two values or more, or set it under [options]"
        raise ConfigError(f"{where} is {brief(value)}: nothing to choose from; {advice}")
    return Range(name, choices=tuple(value))


def _between(name: str, table: Mapping[str, Any], check: Check, where: str) -> Range:
    """A range of numbers; integers if the option accepts only integers."""
    _known(table, ("low", "high", "log"), where)
    for key in ("low", "high"):
        if key not in table:
            raise ConfigError(f"{where} has no {key!r}; give it as {{low = 1, high = 10}}")
    low, high = (_number(table[key], check, f"{where}: {key!r}") for key in ("low", "high"))
    log = table.get("log", False)
    if not isinstance(log, bool):
        raise ConfigError(f"{where}: 'log' is {brief(log)}, but it must be true or false")
    if low >= high:
        given = f"'low' is {brief(table['low'])} and 'high' {brief(table['high'])}"
        raise ConfigError(f"{where}: {given}; 'low' must be the smaller one")
    if log and low <= 0:
        raise ConfigError(f"{where}: 'low' is {brief(table['low'])}, but with log = true it must be above 0")
    return Range(name, low, high, log)


def _number(value: Any, check: Check, where: str) -> float:
    found = check(value, where)
    found = found[0] if isinstance(found, list | tuple) and len(found) == 1 else found  # c = 2 is a list of one
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < float("inf"):
        raise ConfigError(f"{where} is {brief(value)}, but only numbers have a range; list the values, as in [true, false]")
    return found
