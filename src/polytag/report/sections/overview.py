"""The summary: what was trained, how good it is with both decisions, and whether runs differ."""

from __future__ import annotations

from polytag.analysis.significance import SystemComparison, compare_systems
from polytag.report.chart import Chart, Series
from polytag.report.data_table import DataTable, Rows
from polytag.report.draft import Draft
from polytag.report.evidence import Evidence, RunEvidence
from polytag.report.markup import Element, code, element, paragraph, strong, table

NAMES = {
    "micro_f1": "micro-F1", "macro_f1": "macro-F1", "samples_f1": "samples-F1", "subset_accuracy": "exact sets",
    "hamming_loss": "Hamming loss", "micro_precision": "precision", "micro_recall": "recall", "p@1": "P@1", "p@5": "P@5",
    "ndcg@5": "nDCG@5", "calibration_error": "calibration error", "predicted_labels_per_document": "labels/document",
}  # fmt: skip
_BOTH = ("micro_f1", "macro_f1", "samples_f1", "subset_accuracy", "hamming_loss", "micro_precision", "micro_recall",
         "predicted_labels_per_document")  # fmt: skip
_RANKING = ("p@1", "p@5", "ndcg@5", "calibration_error")


def add_summary(draft: Draft, evidence: Evidence) -> None:
    """Models, data and metrics."""
    part = draft.section("Summary")
    part.add(*_headline(evidence), _runs(evidence))
    if not evidence.tested:
        part.add(paragraph("There are no test documents; give some with ", code("--test"), " to see how good the runs are."))
        return
    part.add(draft.table(_decisions(evidence), _DECISIONS), draft.table(_rankings(evidence), _RANKINGS))


_DECISIONS = (
    "F1 is 1 if exactly the true labels are predicted. Micro-F1 counts every assignment equally, macro-F1 every label equally. "
    "'Fitted' uses the thresholds that were fitted on validation documents, 'plain' gives every label from probability 0.5."
)
_RANKINGS = "P@5 is the share of true labels among the five best ones; it needs no decision. A calibration error of 0 is best."


def _headline(evidence: Evidence) -> list[Element]:
    if not evidence.tested:
        return []
    best = max((run for run, _ in evidence.tested), key=lambda run: run.metrics["micro_f1"])
    several = f", the best of {len(evidence.runs)} runs" if len(evidence.runs) > 1 else ""
    documents = f" on {len(evidence.ids):,} test documents{several}. "
    exact = f"For {best.metrics['subset_accuracy']:.0%} of them, it predicts exactly the true set of labels."
    return [paragraph(strong(best.name), " reaches micro-F1 ", strong(f"{best.metrics['micro_f1']:.3f}"), documents, exact)]


def _runs(evidence: Evidence) -> Element:
    header = ["run", "model", "labels", "trained on", "training time", "size", "decision", "what it is"]
    rows = [[run.name, *_facts(run)] for run in evidence.runs]
    return table(header, rows, "The runs")


def _facts(run: RunEvidence) -> list[str]:
    facts = run.facts
    seconds = "" if run.train_seconds is None else _duration(run.train_seconds)
    size = f"{facts['bytes'] / 1e6:,.1f} MB"
    return [
        facts["model"], f"{facts['labels']:,}", f"{facts['trained_on_documents']:,} documents", seconds, size,
        facts["decision"], facts["what"],
    ]  # fmt: skip


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _decisions(evidence: Evidence) -> DataTable:
    rows: Rows = []
    for run in evidence.runs:
        for decision, metrics in (("fitted", run.metrics), ("plain", run.plain_metrics)):
            rows.append([f"{run.name}, {decision}", *(metrics[key] for key in _BOTH)])
    return DataTable("Metrics of label sets, with two decisions", ["run", *(NAMES[key] for key in _BOTH)], rows)


def _rankings(evidence: Evidence) -> DataTable:
    rows: Rows = [[run.name, *(run.metrics.get(key) for key in _RANKING)] for run in evidence.runs]
    return DataTable("Metrics of rankings and probabilities", ["run", *(NAMES[key] for key in _RANKING)], rows)


# -- several runs ------------------------------------------------------------------------------------------------------

_DIFFERENCE = (
    "The point is the difference, the line its 95% interval over resampled test documents. A line that does not touch 0 means "
    "that other documents of this kind would hardly turn the result around."
)


def add_comparison(draft: Draft, evidence: Evidence) -> None:
    """Every run against the first one, by paired bootstrap."""
    if len(evidence.tested) < 2:
        return
    first, base = evidence.tested[0]
    part = draft.section("Comparison", f"Every run against {first.name}, on the same {len(evidence.ids):,} documents.")
    found = [
        compare_systems(base.truth, base.predicted, other.predicted, names=(first.name, run.name), seed=evidence.seed)
        for run, other in evidence.tested[1:]
    ]
    part.add(element("ul", *(element("li", _verdict(one)) for one in found)))
    part.add(draft.figure(_differences(found)), draft.table(_significance(found), _SIGNIFICANCE))


_SIGNIFICANCE = (
    "p is the probability of so large a difference if both runs were equally good; below 0.05 it is usually called significant."
)


def _verdict(found: SystemComparison) -> str:
    row = next(row for row in found.rows if row.metric == "micro_f1")
    name, than = found.second, found.first
    if row.low <= 0 <= row.high:
        return f"{name} and {than} are not clearly different in micro-F1 ({row.difference:+.3f}, p = {row.p:.3f})."
    better = "better" if row.difference > 0 else "worse"
    interval = f"95% interval {row.low:+.3f} to {row.high:+.3f}"
    return f"{name} is {better} than {than} in micro-F1 by {abs(row.difference):.3f} ({interval})."


def _differences(found: list[SystemComparison]) -> Chart:
    series = [
        Series(
            f"{one.second} minus {one.first}", [NAMES[row.metric] for row in one.rows], [row.difference for row in one.rows],
            [row.low for row in one.rows], [row.high for row in one.rows],
        )
        for one in found
    ]  # fmt: skip
    return Chart("range", "Differences between runs", "metric", "difference", series, _DIFFERENCE)


def _significance(found: list[SystemComparison]) -> DataTable:
    rows: Rows = [
        [f"{one.second}, {NAMES[row.metric]}", row.first, row.second, f"{row.difference:+.4f}",
         f"{row.low:+.4f} to {row.high:+.4f}", f"{row.p:.3f}"]
        for one in found for row in one.rows
    ]  # fmt: skip
    header = ["run and metric", found[0].first, "run", "difference", "95% interval", "p"]
    return DataTable(f"Differences to {found[0].first}, paired bootstrap with {found[0].rounds:,} rounds", header, rows)
