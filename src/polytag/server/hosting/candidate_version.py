"""Learning from corrections: a candidate version, its difference to the version in service, and going live."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.server.hosting.hosted_model import HostedModel
from polytag.server.problem import Problem
from polytag.storage.artefact import artefact_folder
from polytag.verbs.difference import diff_classifiers

_PART = "candidate"  # folder of a candidate inside of the run
_EXPLAINED = 20  # changes with words in the difference


@dataclass(frozen=True)
class Candidate:
    """A version that learned from corrections, and what it changes."""

    model: HostedModel
    learned: int  # the last correction that it knows
    report: dict[str, Any]


def run_folder(model: HostedModel) -> Path:
    """The folder of the run that a model came from."""
    place = None if model.folder is None else artefact_folder(model.folder)
    if place is None or place.name != "model":
        raise Problem(409, f"the model {model.name!r} has no run to save to; serve the folder of a run")
    return place.parent


def learned(model: HostedModel, corrections: Corpus, last: int, test: Corpus | None) -> Candidate:
    """A copy of a model that learned from corrected texts; the one in service stays as it is."""
    start, folder = time.monotonic(), run_folder(model)
    classifier = Classifier.load(folder)
    learn = getattr(classifier, "learn", None)
    if learn is None:
        raise Problem(409, f"{model.classifier.recipe.model!r} cannot learn from corrections; train it --with-corrections")
    learn(corrections.texts, corrections.labels.decode(corrections.truth))
    seconds = time.monotonic() - start
    classifier.save(folder / _PART)
    fresh = HostedModel.load(folder / _PART)
    candidate = HostedModel(model.name, fresh.version, fresh.classifier, model.folder)
    report = {"live": model.version, "candidate": candidate.version, "corrections": len(corrections), "seconds": seconds}
    return Candidate(candidate, last, {**report, "difference": difference(model, candidate, [corrections, test])})


def difference(old: HostedModel, new: HostedModel, corpora: Sequence[Corpus | None]) -> dict[str, Any]:
    """Both versions side by side, on the corrected texts and on the test documents, if there are any."""
    found = {}
    for name, corpus in zip(("corrections", "test"), corpora, strict=True):
        if corpus is not None:
            changes = diff_classifiers(
                old.classifier, new.classifier, corpus, names=(old.version, new.version), explained=_EXPLAINED, rounds=200
            )
            found[name] = changes.to_json()
    return found


def save_live(model: HostedModel) -> None:
    """Write a version to its run, so that the next start serves it too."""
    model.classifier.save(run_folder(model))
