"""``polytag compare`` as a function: train and evaluate several models on one corpus."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.storage.artefact import artefact_info
from polytag.verbs.training import DataPlan, train_corpora


def compare_models(recipes: Sequence[Recipe], plan: DataPlan, test: Path, out: Path | None = None) -> list[dict[str, Any]]:
    """Train every recipe and evaluate it on the test documents: metrics, training time, inference speed, size."""
    train, valid = plan.read()
    documents = Corpus.read(test, labels=train.labels, options=plan.options)
    with tempfile.TemporaryDirectory() as temporary:
        folder = out or Path(temporary)
        return [compare_one(recipe, train, valid, documents, folder / recipe.model) for recipe in recipes]


def compare_one(recipe: Recipe, train: Corpus, valid: Corpus | None, test: Corpus, folder: Path) -> dict[str, Any]:
    """Train and evaluate one recipe: a row of the table."""
    start = time.perf_counter()
    train_corpora(recipe, train, valid, folder)
    seconds = time.perf_counter() - start
    classifier = Classifier.load(folder)
    classifier.predict(test.texts[:8])  # load compiled code before the timing
    start = time.perf_counter()
    classifier.predict(test.texts)
    speed = len(test) / (time.perf_counter() - start)
    size = artefact_info(folder / "model").bytes
    measured = {"train_seconds": seconds, "documents_per_second": speed, "megabytes": size / 1e6}
    return {"model": recipe.model, **classifier.evaluate(test), **measured}
