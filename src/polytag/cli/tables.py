"""Tables for the terminal and JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.table import Table

from polytag.storage.plain_json import plain

Found = TypeVar("Found")
_COMPARED = ("micro_f1", "macro_f1", "subset_accuracy", "hamming_loss", "p@1", "p@3", "p@5")
_LOWER_IS_BETTER = {"hamming_loss", "train_seconds", "megabytes", "calibration_error"}


def as_json(value: Any) -> str:
    """Indented JSON; non-finite numbers become null."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False)


class _Printer(Console):
    """A console that leaves a closed pipe to its caller; rich would end the program with exit code 1."""

    def on_broken_pipe(self) -> None:
        """Raise again."""
        raise BrokenPipeError


def show(what: RenderableType) -> None:
    """Print to standard output, 160 characters wide if that is not a terminal."""
    console = _Printer()
    if not console.is_terminal:
        console = _Printer(width=160)
    console.print(what)


def print_result(found: Found, table: Callable[[Found], RenderableType], json: bool) -> None:
    """Print a result as JSON or as a table."""
    if json:
        typer.echo(as_json(found))
    else:
        show(table(found))


def metrics_table(found: Mapping[str, float]) -> Table:
    """One metric per row."""
    table = Table("metric", "value", box=None, header_style="dim")
    table.columns[1].justify = "right"
    for key, value in found.items():
        whole = key in ("documents", "unseen_labels") or key.endswith("_labels")
        table.add_row(key, f"{value:,.0f}" if whole else f"{value:.4f}", style="bold" if key in ("micro_f1", "macro_f1") else "")
    return table


def comparison_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Models as rows, metrics as columns, the best values in bold."""
    extra = {"train_seconds": "train s", "documents_per_second": "docs/s", "megabytes": "MB"}
    keys = [key for key in (*_COMPARED, *extra) if any(key in row for row in rows)]
    table = Table("model", *(extra.get(key, key.replace("_", " ")) for key in keys), box=None, header_style="dim")
    for column in table.columns[1:]:
        column.justify = "right"
    best = {key: (min if key in _LOWER_IS_BETTER else max)(row[key] for row in rows) for key in keys}
    for row in rows:
        cells = [f"{row[key]:.4f}" if key in _COMPARED else f"{row[key]:,.1f}" for key in keys]
        table.add_row(row["model"], *(f"[bold]{c}[/]" if row[k] == best[k] else c for k, c in zip(keys, cells, strict=True)))
    return table


def run_table(found: Mapping[str, Any]) -> Table:
    """The properties of a run, one per row."""
    table = Table(box=None, show_header=False)
    for key, value in found.items():
        if isinstance(value, Mapping):
            for name, item in value.items():
                table.add_row(f"[dim]{key}[/] {name}", _short(item))
        else:
            table.add_row(key, _short(value))
    return table


def model_table(found: Mapping[str, Any]) -> Table:
    """A model's settings, one per row, in groups; a setting without effect by default has a note."""
    table = Table("setting", "type", "default", "meaning", title=found["what"], title_justify="left", box=None)
    title = None
    for option in found["options"]:
        if option["group"] != title:
            title = option["group"]
            table.add_row(f"[bold]{title}[/]", "", "", "")
        words = option["help"] + (f" ({', '.join(map(str, option['choices']))})" if option["choices"] else "")
        words += f" [dim]no effect {option['idle']}[/]" if option["idle"] else ""
        table.add_row(f"  {option['name']}", option["type"], _short(option["default"]), words)
    if found["more"]:
        table.caption = f"{found['more']} more settings: polytag info {found['model']} --all"
        table.caption_justify = "left"
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
