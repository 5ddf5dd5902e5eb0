"""The Python reference of docs/api.md, made from the signatures and docstrings of the public names."""

from __future__ import annotations

import inspect
import re
from typing import Any

import polytag

FIRST = ("Classifier", "Corpus", "LabelSet", "Scores", "Decision", "Recipe", "Run", "Model")


def api_reference() -> str:
    """Every public name, the words of the design first, then the errors."""
    rest = [name for name in polytag.__all__ if name not in FIRST]
    return "\n".join(_section(name, getattr(polytag, name)) for name in (*FIRST, *rest))


def _section(name: str, thing: Any) -> str:
    parts = [f"## `{name}`", "", f"`{thing.__module__}.{name}`: {_words(thing)}", ""]
    if not issubclass(thing, Exception):
        parts += ["```text", _signature(name, thing), "```", ""]
    rows = [_row(attribute, value) for attribute, value in vars(thing).items() if _public(attribute, value)]
    if rows:
        parts += ["| method | meaning |", "|---|---|", *rows, ""]
    return "\n".join(parts)


def _public(name: str, value: Any) -> bool:
    return not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, classmethod | staticmethod | property))


def _row(name: str, value: Any) -> str:
    if isinstance(value, property):
        return f"| `{name}` | {_cell(_words(value.fget))} |"
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return f"| `{_cell(_signature(name, function))}` | {_cell(_words(function))} |"


def _signature(name: str, thing: Any) -> str:
    """Names and defaults of the parameters; types are in the code, where an editor shows them."""
    shown: list[str] = []
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        shown.append(parameter.name + _default(parameter.default))
    return f"{name}({', '.join(shown)})"


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    text = repr(value)
    return "=..." if text.startswith("<") else f"={text}"


def _words(thing: Any) -> str:
    """The first paragraph of a docstring in one line."""
    first = re.split(r"\n\s*\n", inspect.getdoc(thing) or "", maxsplit=1)[0]
    return " ".join(first.split()).replace("``", "`")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
