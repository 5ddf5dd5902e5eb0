"""Every label: how good, how frequent, and with which other labels it is confused."""

from __future__ import annotations

from polytag.analysis.label_pairs import pair_errors
from polytag.analysis.label_table import LabelRow, label_table
from polytag.report.chart import Chart, Series
from polytag.report.data_table import DataTable, Rows
from polytag.report.draft import Draft
from polytag.report.evidence import Evidence
from polytag.report.markup import details, paragraph

_ROWS, _PAIRS = 1000, 25


def add_labels(draft: Draft, evidence: Evidence) -> None:
    """The table of labels, its picture, and the pairs that go wrong."""
    if not evidence.tested:
        return
    part = draft.section("Labels", "How well each label is predicted.")
    tables = [
        (run.name, label_table(
            out.truth, out.predicted, out.labels.names, thresholds=out.thresholds, train_counts=out.train_counts,
            seed=evidence.seed,
        ))
        for run, out in evidence.tested
    ]  # fmt: skip
    part.add(draft.figure(_scatter([(name, table.rows) for name, table in tables])))
    name, last = tables[-1]
    part.add(draft.long_table(_of_one(name, last.rows)))
    if len(last.rows) > _ROWS:
        part.add(paragraph(f"Shown are the {_ROWS:,} labels with most test documents, of {len(last.rows):,}.", kind="note"))
    if len(tables) > 1:
        part.add(details("F1 of every run", draft.long_table(_of_all([(name, table.rows) for name, table in tables]))))
    if last.silent:
        part.add(paragraph(f"{last.silent:,} labels are neither true nor predicted in these documents.", kind="note"))
    _add_pairs(draft, evidence)


def _scatter(tables: list[tuple[str, tuple[LabelRow, ...]]]) -> Chart:
    series = []
    for name, every in tables:
        rows = [row for row in every if row.support]
        documents: list[float | str] = [row.train_documents or 0 for row in rows]
        series.append(Series(name, documents, [row.f1 for row in rows], names=[row.label for row in rows]))
    meaning = (
        "Each point is a label; hover for its name. Labels with few training documents (left) are usually harder; "
        "frequent labels far below are worth a look: their texts may be ambiguous, or their labels wrong."
    )
    return Chart("point", "F1 of every label", "training documents", "F1", series, meaning, log_x=True, bounds=(0, 1))


def _of_one(name: str, rows: tuple[LabelRow, ...]) -> DataTable:
    header = ["label", "F1", "95% interval", "precision", "recall", "true", "predicted", "training", "threshold"]
    body: Rows = [
        [row.label, row.f1, f"{row.low:.2f} to {row.high:.2f}", row.precision, row.recall, row.support, row.predicted,
         row.train_documents, row.threshold]
        for row in rows[:_ROWS]
    ]  # fmt: skip
    return DataTable(f"Labels of {name}; a wide interval means too few documents to judge", header, body)


def _of_all(tables: list[tuple[str, tuple[LabelRow, ...]]]) -> DataTable:
    found: list[dict[str, LabelRow]] = [{row.label: row for row in rows} for _, rows in tables]
    shown = [row for row in tables[-1][1] if row.support][:_ROWS]
    body: Rows = [[row.label, row.support, *(own[row.label].f1 for own in found)] for row in shown]
    return DataTable("F1 of every label, by run", ["label", "true", *(name for name, _ in tables)], body)


def _add_pairs(draft: Draft, evidence: Evidence) -> None:
    run, out = evidence.tested[-1]
    found = pair_errors(out.truth, out.predicted, out.labels.names, most=_PAIRS)
    part = draft.section("Labels that are confused", f"Pairs of labels on which {run.name} errs most often.")
    confused: Rows = [
        [f"{row.true} \N{RIGHTWARDS ARROW} {row.predicted}", row.documents, f"{row.share:.0%}"] for row in found.confused
    ]
    missed: Rows = [[f"{row.found}, without {row.missed}", row.documents, f"{row.share:.0%}"] for row in found.missed]
    header = ["missed label, and the one given instead", "documents", "of all its misses"]
    part.add(draft.long_table(DataTable("Labels given in place of others", header, confused)))
    part.add(
        paragraph("Two labels high in this list may mean nearly the same; better descriptions or a merge may help.", kind="note")
    )
    header = ["label found, without its companion", "documents", "of all with both"]
    part.add(draft.long_table(DataTable("Labels found without another true one", header, missed)))
    part.add(paragraph("A high share means that the model sees one half of a pair that belongs together.", kind="note"))
