"""``polytag diff``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polytag.cli.options import JsonOption, Reading

if TYPE_CHECKING:
    from rich.console import RenderableType

    from polytag.verbs.difference import RunDifference

_LABELS, _EXAMPLES = 20, 2  # labels, and documents of each, in the table


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="the run to compare with, or its model folder")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="the run in question, or its model folder")],
    documents: Annotated[Path, typer.Argument(metavar="FILE", help="labelled documents, which neither run was trained on")],
    reading: Reading,
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help="the documents have no labels; nothing is judged")] = False,
    fail_below: Annotated[
        list[str] | None,
        typer.Option("--fail-below", help="exit with 1 if new minus old of a metric is below this, as in micro_f1=-.005"),
    ] = None,
    reasons: Annotated[int, typer.Option("--reasons", help="number of changes explained by words; 0 = none", min=0)] = 100,
    out: Annotated[Path | None, typer.Option("--out", help="file for all changes, as JSON; - = standard output")] = None,
    json: JsonOption = False,
) -> None:
    """List the documents whose labels change between two runs, by label, with reasons and the side of the truth."""
    from polytag.cli.standard_streams import note
    from polytag.cli.tables import as_json, print_result
    from polytag.formats.streams import writing
    from polytag.verbs.difference import diff_runs, parsed_bounds

    bounds = parsed_bounds(fail_below or [])
    labelled, options = not unlabelled, reading.options()
    found = diff_runs(old, new, documents, options=options, labelled=labelled, bounds=bounds, explained=reasons)
    if out is not None:
        with writing(out) as file:
            file.write(as_json(found.to_json()) + "\n")
    if json:
        print_result(found.to_json(), str, json)
    elif str(out) != "-":
        print_result(found, _table, json)
    for failure in found.failures:
        note(f"{failure.metric} changes by {failure.difference:+.4f}, which is below {failure.bound:+g}")
    if found.failures:
        raise typer.Exit(1)


def _table(found: RunDifference) -> RenderableType:
    """Metrics, then the labels that change most with some documents."""
    from rich.console import Group

    changes = found.changes
    line = (
        f"{changes.changed_documents:,} of {found.documents:,} documents change, with {changes.changes:,} labels gained or lost"
    )
    if changes.new_is_right is not None:
        line += f"; the truth is with the new run in {changes.new_is_right:,}, with the old run in {changes.old_is_right:,}"
    return Group(*([_metrics(found), ""] if found.significance else []), line, "", _labels(found))


def _metrics(found: RunDifference) -> RenderableType:
    from rich.table import Table

    table = Table("metric", "old", "new", "difference", "95% interval", "p", box=None, header_style="dim")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in found.significance.rows if found.significance else ():
        values = f"{row.first:.4f}", f"{row.second:.4f}", f"{row.difference:+.4f}", f"{row.low:+.4f} to {row.high:+.4f}"
        table.add_row(row.metric, *values, f"{row.p:.3f}")
    return table


def _labels(found: RunDifference) -> RenderableType:
    from rich.markup import escape
    from rich.table import Table

    from polytag.verbs.difference import examples

    judged = found.changes.new_is_right is not None
    heads = ("label", "gained", "lost", *(("new right", "old right") if judged else ()), "documents, as in")
    table = Table(*heads, box=None, header_style="dim")
    for column in table.columns[1:-1]:
        column.justify = "right"
    for row in found.changes.rows[:_LABELS]:
        shown = []
        for change in examples(row.documents, _EXAMPLES):
            words = f" ({', '.join(reason.text for reason in change.reasons)})" if change.reasons else ""
            shown.append(f"{'+' if change.change == 'gained' else '-'}{change.id}{words}")
        sides = (f"{row.new_is_right:,}", f"{row.old_is_right:,}") if judged else ()
        table.add_row(escape(row.label), f"{row.gained:,}", f"{row.lost:,}", *sides, escape("; ".join(shown)))
    if len(found.changes.rows) > _LABELS:
        table.caption = f"{len(found.changes.rows) - _LABELS:,} more labels: --out FILE writes all"
        table.caption_justify = "left"
    return table
