"""Polytag reads plain text and assigns every label that fits: ten labels or half a million, flat or in a tree."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polytag.classifier import Classifier
    from polytag.corpus import Corpus
    from polytag.decision import Decision
    from polytag.errors import ArtefactError, ConfigError, DataError, NotFittedError, PolytagError
    from polytag.labels import LabelSet
    from polytag.models.model import Model
    from polytag.recipe import Recipe
    from polytag.run import Run
    from polytag.scores import Scores

_PLACES = {
    "Classifier": "classifier",
    "Corpus": "corpus",
    "Decision": "decision",
    "LabelSet": "labels",
    "Model": "models.model",
    "Recipe": "recipe",
    "Run": "run",
    "Scores": "scores",
    **dict.fromkeys(("ArtefactError", "ConfigError", "DataError", "NotFittedError", "PolytagError"), "errors"),
}

__all__ = [  # the public face; each is imported when first asked for, so that the command line starts fast
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
    """Import a public name when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'polytag' has no attribute {name!r}")
    return getattr(importlib.import_module(f"polytag.{_PLACES[name]}"), name)
