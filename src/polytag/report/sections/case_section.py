"""Case studies: some documents with the labels of every run."""

from __future__ import annotations

from collections.abc import Sequence

from polytag.analysis.cases import Case, Choose, case_studies
from polytag.report.draft import Draft
from polytag.report.evidence import Evidence
from polytag.report.markup import Element, element, paragraph
from polytag.report.page import Section

_LETTERS, _LABELS = 700, 20


def add_cases(draft: Draft, evidence: Evidence) -> None:
    """Documents that the last run does better or worse than the first, and those it does worst."""
    if not evidence.tested:
        return
    part = draft.section("Case studies", "Single documents; they illustrate and prove nothing.")
    part.add(element("p", _tag("right", "right"), _tag("given, but not true", "wrong"), _tag("true, but missed", "missed")))
    first, last = evidence.tested[0][0].name, evidence.tested[-1][0].name
    if len(evidence.tested) > 1:
        _add(part, evidence, "gain", f"{last} does better than {first}")
        _add(part, evidence, "loss", f"{last} does worse than {first}")
    _add(part, evidence, "worst", f"The least correct sets of {last}")


def _add(part: Section, evidence: Evidence, choose: Choose, title: str) -> None:
    out = evidence.tested[-1][1]
    predictions = {run.name: own.predicted for run, own in evidence.tested}
    found = case_studies(
        out.truth, predictions, out.labels.names, ids=evidence.ids, texts=evidence.texts, train=evidence.train, choose=choose,
        count=3, seed=evidence.seed,
    )  # fmt: skip
    if found.rows:
        part.add(element("h3", title), paragraph(f"The first {len(found.rows)} of {found.candidates:,} documents.", kind="note"))
        part.add(*(_case(case) for case in found.rows))


def _case(case: Case) -> Element:
    short = case.text[:_LETTERS] + ("\N{HORIZONTAL ELLIPSIS}" if len(case.text) > _LETTERS else "")
    lines = [
        element(
            "p", element("strong", f"{one.system} "), f"F1 {one.f1:.2f} ",
            *_tags(one.right, "right"), *_tags(one.wrong, "wrong"), *_tags(one.missed, "missed"),
        )
        for one in case.systems
    ]  # fmt: skip
    return element("article", element("h4", case.id), element("blockquote", short), *lines, attributes={"class": "case"})


def _tags(labels: Sequence[str], kind: str) -> list[Element]:
    more = [element("span", f"and {len(labels) - _LABELS} more")] if len(labels) > _LABELS else []
    return [*(_tag(label, kind) for label in labels[:_LABELS]), *more]


def _tag(label: str, kind: str) -> Element:
    return element("span", label, attributes={"class": f"tag {kind}", "title": kind})
