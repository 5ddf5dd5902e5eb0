"""``polytag curve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polytag.cli.options import JsonOption, LabelsOption, Overrides, Reading

if TYPE_CHECKING:
    from rich.console import RenderableType

    from polytag.analysis.power_law import LearningCurve, MetricCurve

_LABELS = 15  # labels in the table


def curve(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="labelled documents, or a folder with a file train.*")],
    overrides: Overrides,
    reading: Reading,
    labels: LabelsOption = None,
    test: Annotated[Path | None, typer.Option("--test", help="test documents [default: a fifth is held out, per seed]")] = None,
    model: Annotated[str | None, typer.Option("--model", help="name of the model [default: br]")] = None,
    recipe: Annotated[Path | None, typer.Option("--recipe", help="TOML file with settings, as every run writes one")] = None,
    more: Annotated[int, typer.Option("--more", help="number of further documents to ask about")] = 100,
    sizes: Annotated[int, typer.Option("--sizes", help="numbers of documents to train on; 4 or more")] = 7,
    seeds: Annotated[int, typer.Option("--seeds", help="trainings per number of documents; 2 or more")] = 3,
    minutes: Annotated[
        float, typer.Option("--minutes", help="time limit; larger sizes that will not end in time are left out")
    ] = 10,
    out: Annotated[Path | None, typer.Option("--out", help="file for the whole result, as JSON; - = standard output")] = None,
    picture: Annotated[Path | None, typer.Option("--picture", help="file for a picture, .png or .svg")] = None,
    json: JsonOption = False,
) -> None:
    """Measure the learning curve of a corpus, and estimate what more labelled documents would buy, also per label."""
    from polytag.cli.tables import as_json, print_result
    from polytag.corpus import Corpus
    from polytag.formats.streams import writing, written
    from polytag.report.growth_chart import checked_picture, growth_picture
    from polytag.verbs.growth import CurvePlan, corpus_files, learning_curve

    plan = CurvePlan(sizes, seeds, minutes=minutes, more=more)
    chosen = overrides.recipe(recipe, model)
    if picture is not None:
        checked_picture(picture)
    file, own_labels = corpus_files(corpus)
    documents = Corpus.read(file, labels=labels or own_labels, options=reading.options())
    tested = None if test is None else Corpus.read(test, labels=documents.labels, options=reading.options())
    found = learning_curve(chosen, documents, plan, tested)
    if out is not None:
        with writing(out) as target:
            target.write(as_json(found.to_json()) + "\n")
    if picture is not None:
        with written(picture) as place:
            place.write_bytes(growth_picture(found, picture))
    if json:
        print_result(found.to_json(), str, json)
    elif str(out) != "-":
        print_result(found, _table, json)


def _table(found: LearningCurve) -> RenderableType:
    from rich.console import Group

    lines = [f"{found.model}, {found.documents:,} documents, {found.seeds} seeds, {found.test_documents:,} test documents each"]
    return Group(*lines, "", _points(found), "", _gains(found), *_checks(found), "", _labels(found))


def _points(found: LearningCurve) -> RenderableType:
    from rich.table import Table

    table = Table("training documents", *(row.metric for row in found.metrics), box=None, header_style="dim")
    for column in table.columns:
        column.justify = "right"
    for at, point in enumerate(found.metrics[0].points):
        table.add_row(f"{point.documents:,}", *(f"{row.points[at].value:.4f}" for row in found.metrics))
    table.add_row(f"{found.documents:,} (fitted)", *(f"{row.now.value:.4f}" for row in found.metrics), style="bold")
    return table


def _gains(found: LearningCurve) -> RenderableType:
    from rich.table import Table

    table = Table("more documents", *(row.metric for row in found.metrics), box=None, header_style="dim")
    for column in table.columns:
        column.justify = "right"
    for at, gain in enumerate(found.metrics[0].gains):
        own = (row.gains[at] for row in found.metrics)
        table.add_row(f"+{gain.more:,}", *(f"{one.gain:+.4f} ({one.low:+.4f} to {one.high:+.4f})" for one in own))
    limits = (row.limit for row in found.metrics)
    table.add_row("limit", *(f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})" for one in limits))
    return table


def _checks(found: LearningCurve) -> list[str]:
    return ["", *(_check(row) for row in found.metrics if row.held_back is not None)]


def _check(row: MetricCurve) -> str:
    assert row.held_back is not None
    check = row.held_back
    inside = "inside" if check.covered else "outside"
    return (
        f"[dim]check: {row.metric} at {check.documents:,} documents is {check.measured:.4f}, {inside} the interval "
        f"{check.low:.4f} to {check.high:.4f} that smaller sizes give[/dim]"
    )


def _labels(found: LearningCurve) -> RenderableType:
    from rich.markup import escape
    from rich.table import Table

    table = Table("label", "documents", "F1", f"+{found.more:,} documents", "95% interval", box=None, header_style="dim")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in found.labels[:_LABELS]:
        cells = f"{row.documents:,}", f"{row.f1:.3f}", f"{row.gain:+.4f}", f"{row.low:+.4f} to {row.high:+.4f}"
        table.add_row(escape(row.label), *cells)
    rest, silent = len(found.labels) - _LABELS, found.labels_without_estimate
    words = [f"{rest:,} more labels: --out FILE writes all"] if rest > 0 else []
    words += [f"{silent:,} labels have too few documents to say"] if silent else []
    table.caption, table.caption_justify = "; ".join(words) or None, "left"
    return table
