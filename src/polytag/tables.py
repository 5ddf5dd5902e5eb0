"""Tables for the terminal, and JSON for scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import typer
from rich.console import Console, RenderableType
from rich.table import Table

Found = TypeVar("Found")
_COMPARED = ("micro_f1", "macro_f1", "subset_accuracy", "hamming_loss", "p@1", "p@3", "p@5")
_LESS_IS_BETTER = {"hamming_loss", "train_seconds", "megabytes", "calibration_error"}


def as_json(value: Any) -> str:
    """Indented JSON; what is not finite becomes null."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show(what: RenderableType) -> None:
    """Print to standard output, as wide as it needs where that is not a terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(what)


def tell(found: Found, table: Callable[[Found], RenderableType], json: bool) -> None:
    """Print a result: as JSON for scripts, or as a table for a person."""
    if json:
        typer.echo(as_json(found))
    else:
        show(table(found))


def metrics_table(found: Mapping[str, float]) -> Table:
    """One metric a row, in groups."""
    table = Table("metric", "value", box=None, header_style="dim")
    table.columns[1].justify = "right"
    for key, value in found.items():
        whole = key in ("documents", "unseen_labels") or key.endswith("_labels")
        table.add_row(key, f"{value:,.0f}" if whole else f"{value:.4f}", style="bold" if key in ("micro_f1", "macro_f1") else "")
    return table


def comparison_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Models as rows, what is measured as columns, the best in bold."""
    extra = {"train_seconds": "train s", "documents_per_second": "docs/s", "megabytes": "MB"}
    keys = [key for key in (*_COMPARED, *extra) if any(key in row for row in rows)]
    table = Table("model", *(extra.get(key, key.replace("_", " ")) for key in keys), box=None, header_style="dim")
    for column in table.columns[1:]:
        column.justify = "right"
    best = {key: (min if key in _LESS_IS_BETTER else max)(row[key] for row in rows) for key in keys}
    for row in rows:
        cells = [f"{row[key]:.4f}" if key in _COMPARED else f"{row[key]:,.1f}" for key in keys]
        table.add_row(row["model"], *(f"[bold]{c}[/]" if row[k] == best[k] else c for k, c in zip(keys, cells, strict=True)))
    return table


def run_table(found: Mapping[str, Any]) -> Table:
    """The facts about a run, one a row."""
    table = Table(box=None, show_header=False)
    for key, value in found.items():
        if isinstance(value, Mapping):
            for name, item in value.items():
                table.add_row(f"[dim]{key}[/] {name}", _short(item))
        else:
            table.add_row(key, _short(value))
    return table


def model_table(found: Mapping[str, Any]) -> Table:
    """A model's settings, one a row."""
    table = Table("setting", "type", "default", "what it is for", title=found["what"], title_justify="left", box=None)
    for option in found["options"]:
        words = option["help"] + (f" ({', '.join(map(str, option['choices']))})" if option["choices"] else "")
        table.add_row(option["name"], option["type"], _short(option["default"]), words)
    return table


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_short(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_short(item) for item in value)
    return str(value)
