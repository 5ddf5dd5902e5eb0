"""``polytag audit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polytag.cli.options import JsonOption, LabelsOption, Reading

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from polytag.audit.findings import Audit

_SUSPECTS, _OTHERS = 20, 8  # rows of the tables on a terminal


def audit(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="labelled documents")],
    reading: Reading,
    labels: LabelsOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="file for the findings: .jsonl = every document with proposed labels, to correct; .html = a page"
        ),
    ] = None,
    suspects: Annotated[int, typer.Option("--suspects", help="maximum number of suspect labels that are reported", min=1)] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="random seed; same seed, same machine: same findings")] = 0,
    json: JsonOption = False,
) -> None:
    """Find labels that are probably wrong or missing, copies that disagree, labels that mean the same or cannot be learned."""
    from polytag.cli.tables import print_result
    from polytag.verbs.auditing import audit_file, audit_record

    _, found = audit_file(corpus, labels, out, reading.options(), seed=seed, suspects=suspects)
    if json:
        print_result(audit_record(found), str, json)
    else:
        print_result(found, _tables, json)


def _tables(found: Audit) -> RenderableType:
    """One table per question."""
    from rich.console import Group

    from polytag.audit.findings import PROPOSED

    likely = sum(suspect.error >= PROPOSED for suspect in found.suspects)
    sizes = f"{found.documents:,} documents, {len(found.labels):,} labels, {found.assignments:,} given"
    line = f"{sizes}; {likely:,} of the suspects are probably errors"
    parts: list[RenderableType] = [line, "", _suspects(found)]
    for table in (_copies(found), _same(found), _unlearnable(found)):
        if table.row_count:
            parts += ["", table]
    return Group(*parts)


def _table(title: str, *heads: str, rest: int = 0) -> Table:
    from rich.table import Table

    caption = f"{rest:,} more: --out FILE, --json" if rest > 0 else None
    return Table(*heads, title=title, title_justify="left", caption=caption, caption_justify="left", box=None, header_style="dim")


def _suspects(found: Audit) -> Table:
    from rich.markup import escape

    rest = len(found.suspects) - _SUSPECTS
    table = _table("Suspect labels", "error", "document", "", "label", "text", "others", "nearest", "words", rest=rest)
    for one in found.suspects[:_SUSPECTS]:
        words = " ".join(f"{'+' if value > 0 else '-'}{word}" for word, value in one.words)
        numbers = f"{one.text:.3f}", f"{max(one.context, 0):.2f}", f"{one.agreement:.2f}"
        table.add_row(
            f"{one.error:.2f}", escape(one.id), "given" if one.given else "missing", escape(one.label), *numbers, escape(words)
        )
    return table


def _copies(found: Audit) -> Table:
    from rich.markup import escape

    rest = len(found.copies) - _OTHERS
    table = _table("Copies with different labels", "alike", "one", "other", "only one has", "only the other has", rest=rest)
    for pair in found.copies[:_OTHERS]:
        cells = (*pair.ids, ", ".join(pair.only_one), ", ".join(pair.only_other))
        table.add_row(f"{pair.similarity:.2f}", *(escape(cell) for cell in cells))
    return table


def _same(found: Audit) -> Table:
    from rich.markup import escape

    rest = len(found.same) - _OTHERS
    table = _table("Labels that may mean the same", "one", "other", "given", "texts", "overlap", "names", rest=rest)
    for pair in found.same[:_OTHERS]:
        names = escape(found.labels[pair.one]), escape(found.labels[pair.other])
        table.add_row(*names, pair.how, f"{pair.texts:.2f}", f"{pair.overlap:.2f}", f"{pair.names:.2f}")
    return table


def _unlearnable(found: Audit) -> Table:
    from rich.markup import escape

    rest = len(found.unlearnable) - _OTHERS
    table = _table("Labels that cannot be learned", "label", "documents", "AP", "chance", "reason", rest=rest)
    for one in found.unlearnable[:_OTHERS]:
        numbers = f"{one.documents:,}", f"{one.average_precision:.4f}", f"{one.chance:.4f}"
        table.add_row(escape(found.labels[one.label]), *numbers, one.reason)
    return table
