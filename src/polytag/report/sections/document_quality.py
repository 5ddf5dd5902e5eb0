"""Which documents are hard: by number of true labels, by confidence; and whether probabilities can be trusted."""

from __future__ import annotations

from polytag.analysis.groups import by_frequency, by_label_count
from polytag.analysis.reliability import reliability, risk_coverage, set_confidence
from polytag.report.chart import Chart, Series
from polytag.report.data_table import DataTable, Rows
from polytag.report.draft import Draft
from polytag.report.evidence import Evidence


def add_groups(draft: Draft, evidence: Evidence) -> None:
    """Quality by number of true labels, and by frequency of the labels."""
    if not evidence.tested:
        return
    part = draft.section("Where it is hard", "Quality on groups of documents and of labels.")
    counts = [(run.name, by_label_count(out.truth, out.predicted, seed=evidence.seed).rows) for run, out in evidence.tested]
    groups = [
        (run.name, by_frequency(out.truth, out.predicted, out.train_counts, seed=evidence.seed).rows)
        for run, out in evidence.tested
    ]
    by_count = [
        Series(name, [r.name for r in rows], [r.micro_f1 for r in rows], [r.low for r in rows], [r.high for r in rows])
        for name, rows in counts
    ]
    by_group = [
        Series(name, [r.name for r in rows], [r.macro_f1 for r in rows], [r.low for r in rows], [r.high for r in rows])
        for name, rows in groups
    ]
    part.add(
        draft.figures(
            Chart(
                "line",
                "Quality by number of true labels",
                "true labels of a document",
                "micro-F1",
                by_count,
                _COUNT,
                bounds=(0, 1),
            ),
            Chart(
                "bar",
                "Quality by frequency of the label",
                "labels, frequent to rare",
                "macro-F1",
                by_group,
                _GROUP,
                bounds=(0, 1),
            ),
        )
    )
    names = [name for name, _ in counts]
    first = counts[0][1]
    rows: Rows = [[row.name, row.documents, *(own[at].micro_f1 for _, own in counts)] for at, row in enumerate(first)]
    part.add(draft.table(DataTable("Micro-F1 by number of true labels", ["true labels", "documents", *names], rows)))
    table: Rows = [
        [row.name, row.labels, f"{row.least_documents:,} to {row.most_documents:,}", *(own[at].macro_f1 for _, own in groups)]
        for at, row in enumerate(groups[0][1])
    ]
    header = ["group", "labels", "training documents", *names]
    part.add(draft.table(DataTable("Macro-F1 by frequency of the label in training", header, table), _SHARES))


_COUNT = "A falling line means that documents with many labels are harder; the band is the 95% interval."
_GROUP = "Bars that get shorter to the right mean that the model knows rare labels less well; thin lines are 95% intervals."
_SHARES = "The groups end where the more frequent labels have 50%, 75% and 90% of all assignments in training."


def add_trust(draft: Draft, evidence: Evidence) -> None:
    """Calibration and risk-coverage, of the runs that give probabilities."""
    sure = [(run, out) for run, out in evidence.tested if out.scores.kind == "probability"]
    if not sure:
        return
    part = draft.section("Can its confidence be trusted?", "A probability is useful if it says how often the model is right.")
    rows: Rows = []
    bins, risks = [], []
    for run, out in sure:
        found = reliability(out.truth, out.scores)
        bins.append(Series(run.name, [r.probability for r in found.rows], [r.true for r in found.rows]))
        risk = risk_coverage(out.truth, out.predicted, set_confidence(out.scores, out.predicted))
        risks.append(Series(run.name, [r.coverage for r in risk.rows], [r.subset_error for r in risk.rows]))
        rows.append([run.name, found.expected_error, found.largest_error, risk.area, risk.best_area, risk.random_area])
    part.add(
        draft.figures(
            Chart(
                "line",
                "Calibration",
                "predicted probability",
                "share that is true",
                bins,
                _CALIBRATION,
                bounds=(0, 1),
                diagonal=True,
            ),
            Chart(
                "line",
                "Risk and coverage",
                "share of documents that are kept",
                "share with a wrong set",
                risks,
                _RISK,
                bounds=(0, 1),
            ),
        )
    )
    header = ["run", "expected error", "largest error", "area under risk", "best possible", "random order"]
    part.add(draft.table(DataTable("Calibration, and risk over all coverages", header, rows), _AREAS))


_CALIBRATION = "On the dotted line, of all labels with probability 0.8 eight in ten are true; below it the model is too sure."
_RISK = "If the line falls to the left, the documents that the model is least sure of are those a person should check."
_AREAS = "Errors near 0 are best. The area under risk lies between that of a perfect order and that of a random one."
