"""Polytag: multi-label text classification, from ten labels to half a million, flat or in a tree."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polytag.classifier import Classifier
    from polytag.config.recipe import Recipe
    from polytag.corpus import Corpus
    from polytag.decision.decision import Decision
    from polytag.errors import ArtefactError, ConfigError, DataError, NotFittedError, PolytagError
    from polytag.labels import LabelSet
    from polytag.models.model import Model
    from polytag.run import Run
    from polytag.scores import Scores

_PLACES = {
    "Classifier": "classifier",
    "Corpus": "corpus",
    "Decision": "decision.decision",
    "LabelSet": "labels",
    "Model": "models.model",
    "Recipe": "config.recipe",
    "Run": "run",
    "Scores": "scores",
    **dict.fromkeys(("ArtefactError", "ConfigError", "DataError", "NotFittedError", "PolytagError"), "errors"),
}

__all__ = [  # the public API; names are imported on first use, so that the command line starts fast
    "ArtefactError",
    "Classifier",
    "ConfigError",
    "Corpus",
    "DataError",
    "Decision",
    "LabelSet",
    "Model",
    "NotFittedError",
    "PolytagError",
    "Recipe",
    "Run",
    "Scores",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _PLACES:
        raise AttributeError(f"module 'polytag' has no attribute {name!r}")
    return getattr(importlib.import_module(f"polytag.{_PLACES[name]}"), name)
