"""What verbs that train say at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polytag.cli.standard_streams import note

if TYPE_CHECKING:
    from polytag.classifier import Classifier


def note_training(classifier: Classifier, did: str, out: Path) -> None:
    """Say what was decided on held-out documents, then what was done, on how many documents and labels."""
    report = classifier.decision.report
    if "promise" in report:
        note(f"{report['promise']} needs {report['labels_per_document']:.1f} labels a document")
    if "cost_per_document" in report:
        note(f"mistakes cost {report['cost_per_document']:.4g} a document")
    if report:
        error = f", calibration error {report['calibration_error']:.4f}" if "calibration_error" in report else ""
        note(f"{report['metric']} {report['fitted']:.4f} on held-out documents ({report['rule']}){error}")
    note(f"{did} on {classifier.training['documents']:,} documents, {len(classifier.labels):,} labels: {out}")
