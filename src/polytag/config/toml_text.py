"""Reading TOML with helpful errors, and writing TOML that reads back equal."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polytag.errors import ConfigError

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def toml_text(table: Mapping[str, Any]) -> str:
    """A table as TOML that reads back equal; None is left out, as TOML has no null."""
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
    text = text.encode("utf-8", "replace").decode("utf-8")  # TOML cannot represent a lone surrogate
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


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a file; errors name the file."""
    try:
        return parsed_toml(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; name a recipe (.toml)") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); name a recipe (.toml)") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8; convert it first") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}; text needs quotes, true and false do not") from None


def parsed_toml(text: str) -> dict[str, Any]:
    """The table of a text; ValueError if it is none, also if it is nested too deeply or a number has too many digits."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
