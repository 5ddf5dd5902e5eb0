"""Training curves, from the logs of the runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polytag.report.chart import Chart, Series
from polytag.report.draft import Draft
from polytag.report.evidence import Evidence, RunEvidence
from polytag.report.sections.overview import NAMES

_KEPT = 300  # points of a curve; more cannot be seen
_KEYS = ("micro_f1", "macro_f1", "subset_accuracy")


def add_training(draft: Draft, evidence: Evidence) -> None:
    """Loss and validation metric over the steps; what a linear model tried instead."""
    charts = [chart for chart in (_losses(evidence), _validation(evidence), _strengths(evidence)) if chart is not None]
    if charts:
        part = draft.section("Training", "How the runs learned, from their logs.")
        part.add(draft.figures(*charts))


def _events(run: RunEvidence, name: str) -> list[Mapping[str, Any]]:
    found = [event for event in run.log if event.get("event") == name]
    return found[:: max(1, -(-len(found) // _KEPT))]


def _losses(evidence: Evidence) -> Chart | None:
    curves = [(run.name, [e for e in _events(run, "step") if e.get("loss") is not None]) for run in evidence.runs]
    series = [Series(name, [e["step"] for e in events], [e["loss"] for e in events]) for name, events in curves if events]
    meaning = "A loss that falls and then flattens means that the model has learned what it can from the training documents."
    return Chart("line", "Training loss", "step", "loss", series, meaning) if series else None


def _validation(evidence: Evidence) -> Chart | None:
    series, metric = [], "micro_f1"
    for run in evidence.runs:
        events = _events(run, "validation")
        if events:
            metric = next((key for key in _KEYS if key in events[0]), metric)
            points = [(e["step"], e[metric]) for e in events if e.get(metric) is not None]
            series.append(Series(run.name, [step for step, _ in points], [value for _, value in points]))
    meaning = "Quality on documents that the model does not train on: where the curve falls, the model only memorises."
    return Chart("line", "Validation during training", "step", NAMES[metric], series, meaning) if series else None


def _strengths(evidence: Evidence) -> Chart | None:
    series, metric = [], "micro_f1"
    for run in evidence.runs:
        for event in _events(run, "strength"):
            metric = next((key for key in _KEYS if key in event), metric)
            series.append(Series(run.name, [f"{c:g}" for c in event["c"]], event[metric]))
    meaning = "A linear model tries several strengths of regularisation (C) on held-out documents and takes the best one."
    return Chart("line", "Choice of C", "C", f"{NAMES[metric]}, held-out", series, meaning) if series else None
