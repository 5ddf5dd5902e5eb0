"""A training from files to artefact: what ``polytag train`` does."""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.formats import ReadOptions
from polytag.labels import LabelSet
from polytag.recipe import Recipe
from polytag.run import Run

log = logging.getLogger(__name__)
_READING = ("format", "text", "labels", "separator", "on_bad")


@dataclass(frozen=True)
class DataPlan:
    """Which files a training reads, and how."""

    train: Path
    valid: Path | None
    labels: Path | None
    options: ReadOptions

    @classmethod
    def of(cls, recipe: Recipe, train: Path | None, valid: Path | None, labels: Path | None, options: ReadOptions) -> DataPlan:
        """From the command line, or from the recipe where that names no training file."""
        if train is not None:
            return cls(train, valid, labels, options)
        data = recipe.data
        if "train" not in data:
            raise ConfigError("no training documents; name a file, or a recipe that has one under [data]")
        paths = {key: Path(data[key]) if key in data else None for key in ("train", "valid", "labels")}
        reading = {key: value for key, value in data.get("reading", {}).items() if key in _READING}
        assert paths["train"] is not None
        return cls(paths["train"], valid or paths["valid"], labels or paths["labels"], ReadOptions(**reading))

    def read(self) -> tuple[Corpus, Corpus | None]:
        """The training and validation documents, under one label set."""
        labels = LabelSet.read(self.labels) if self.labels else None
        train = Corpus.read(self.train, labels=labels, options=self.options)
        if self.valid is None:
            return train, None
        valid = Corpus.read(self.valid, labels=train.labels, options=self.options)
        return train.with_labels(valid.labels), valid

    def told(self, train: Corpus, valid: Corpus | None) -> dict[str, Any]:
        """What a recipe remembers about the data."""
        data: dict[str, Any] = {"train": str(self.train)}
        data |= {key: str(value) for key, value in (("valid", self.valid), ("labels", self.labels)) if value}
        reading = {key: getattr(self.options, key) for key in _READING if getattr(self.options, key) not in (None, (), "fail")}
        if reading:
            data["reading"] = {key: list(value) if isinstance(value, tuple) else value for key, value in reading.items()}
        data["fingerprint"] = train.fingerprint() + ("" if valid is None else valid.fingerprint())
        return data


def train_run(recipe: Recipe, plan: DataPlan, out: str | Path, *, resume: bool = False) -> Classifier:
    """Read the data, train, and leave recipe, log and artefact in the folder of the run."""
    train, valid = plan.read()
    return train_corpora(dataclasses.replace(recipe, data=plan.told(train, valid)), train, valid, out, resume=resume)


def train_corpora(recipe: Recipe, train: Corpus, valid: Corpus | None, out: str | Path, *, resume: bool = False) -> Classifier:
    """Train on corpora that were read, and leave recipe, log and artefact in the folder of the run."""
    with Run(out, resume=resume) as run:
        run.write_recipe(recipe)
        start = time.monotonic()
        classifier = Classifier(recipe).fit(train, valid, run)
        seconds = time.monotonic() - start
        classifier.save(out)
        run.log("end", {"seconds": seconds})
        run.write_metrics({"held_out": classifier.decision.report, "train_seconds": seconds})
        run.clear_stages()
    return classifier
