"""``polytag info`` as functions: describe a trained model, or the settings of a model."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from polytag.classifier import Classifier
from polytag.config.settings import declared
from polytag.models.base.relabelled import Relabelled
from polytag.models.model import model_class
from polytag.storage.artefact import artefact_folder, artefact_info

OWN = "Model"  # title of the settings that belong to one model only


def describe_run(run: str | Path) -> dict[str, Any]:
    """The properties of a trained classifier."""
    return describe_classifier(Classifier.load(run), run)


def describe_classifier(classifier: Classifier, run: str | Path) -> dict[str, Any]:
    """The properties of a classifier that was loaded from this run."""
    stored, model = artefact_info(artefact_folder(run)), classifier.model
    counts = np.asarray(classifier.training["label_counts"])
    thresholds = np.asarray(classifier.decision.thresholds)
    return {
        "model": classifier.recipe.model,
        "what": _first_line(type(model.core)),
        **({"parts": {part.pop("name"): part for part in classifier.model.described_parts()}} if model.core.composite else {}),
        "polytag": stored.polytag,
        "format": stored.format,
        "bytes": stored.bytes,
        "card": stored.card,
        "labels": len(classifier.labels),
        "tree": classifier.labels.has_tree,
        "trained_on_documents": int(classifier.training["documents"]),
        "labels_without_documents": int((counts == 0).sum()),
        "calibrated": (model.calibration if isinstance(model, Relabelled) else classifier.calibration) is not None,
        "decision": classifier.decision.rule,
        "thresholds": [float(thresholds.min()), float(np.median(thresholds)), float(thresholds.max())],
        "promise": classifier.decision.promise or None,
        "min_labels": classifier.decision.min_labels,
        "closed": classifier.decision.closed,
        "held_out": classifier.decision.report,
        **({"edits": [str(edit) for edit in classifier.edits]} if classifier.edits else {}),
        "options": model.core.options(),
    }


def describe_model(name: str, *, everything: bool = False) -> dict[str, Any]:
    """A model's docstring and its settings in groups: the main ones, or all."""
    cls = model_class(name)
    known = declared(cls)
    defaults = {key: setting.default for key, setting in known.items()}
    shown = [s for s in known.values() if everything or (s.first and s.idle(defaults) is None)]
    shown.sort(key=lambda setting: (setting.group != "", list(known).index(setting.name)))
    options = [
        {
            "name": s.name, "group": s.title or OWN, "type": s.type, "default": s.default,
            "help": s.help, "choices": s.choices, "idle": s.idle(defaults),
        }
        for s in shown
    ]  # fmt: skip
    return {"model": name, "what": inspect.getdoc(cls), "options": options, "more": len(known) - len(shown)}


def _first_line(cls: type) -> str:
    return (inspect.getdoc(cls) or "").split("\n")[0]
