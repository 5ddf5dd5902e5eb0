"""What a trained model is, and which settings a model has: what ``polytag info`` says."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from polytag.artefact import artefact_folder, artefact_info
from polytag.classifier import Classifier
from polytag.models.model import model_class
from polytag.options import describe_options


def describe_run(run: str | Path) -> dict[str, Any]:
    """The facts about a trained classifier."""
    folder = artefact_folder(run)
    classifier, stored = Classifier.load(folder), artefact_info(folder)
    counts = np.asarray(classifier.training["label_counts"])
    thresholds = np.asarray(classifier.decision.thresholds)
    described = getattr(classifier.model, "described_parts", None)  # of a model made of models
    return {
        "model": classifier.recipe.model,
        "what": _first_line(type(classifier.model)),
        **({} if described is None else {"parts": {part.pop("name"): part for part in described()}}),
        "polytag": stored.polytag,
        "format": stored.format,
        "bytes": stored.bytes,
        "labels": len(classifier.labels),
        "tree": classifier.labels.has_tree,
        "trained_on_documents": int(classifier.training["documents"]),
        "labels_without_documents": int((counts == 0).sum()),
        "calibrated": classifier.calibration is not None,
        "decision": classifier.decision.rule,
        "thresholds": [float(thresholds.min()), float(np.median(thresholds)), float(thresholds.max())],
        "min_labels": classifier.decision.min_labels,
        "closed": classifier.decision.closed,
        "held_out": classifier.decision.report,
        "options": classifier.model.options(),
    }


def describe_model(name: str) -> dict[str, Any]:
    """A model's own words and its settings."""
    cls = model_class(name)
    return {"model": name, "what": inspect.getdoc(cls), "options": [option._asdict() for option in describe_options(cls)]}


def _first_line(cls: type) -> str:
    return (inspect.getdoc(cls) or "").split("\n")[0]
