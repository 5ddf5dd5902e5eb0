"""A training from files to artefact: what ``polytag train`` does, alone or as one of several processes."""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polytag.artefact import artefact_folder, manifest_digest
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.formats import ReadOptions
from polytag.labels import LabelSet
from polytag.recipe import Recipe
from polytag.run import Run

_READING = ("format", "text", "labels", "separator", "on_bad")
_RANKS = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")  # where accelerate looks too


def first_process() -> bool:
    """Whether this process keeps the run: it is the only one, or the first of those that were launched together."""
    told = (os.environ.get(name, "") for name in _RANKS)
    return next((int(rank) for rank in told if rank.isdigit()), 0) == 0


@dataclass(frozen=True)
class DataPlan:
    """Which files a training reads, and how; ``start`` is an earlier run that it goes on from."""

    train: Path
    valid: Path | None
    labels: Path | None
    options: ReadOptions
    start: Path | None = None

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        train: Path | None,
        valid: Path | None,
        labels: Path | None,
        options: ReadOptions,
        start: Path | None = None,
    ) -> DataPlan:
        """From the command line, or from the recipe where that names no training file."""
        if train is not None:
            return cls(train, valid, labels, options, start)
        data = recipe.data
        if "train" not in data:
            raise ConfigError("no training documents; name a file, or a recipe that has one under [data]")
        paths = {key: Path(data[key]) if key in data else None for key in ("train", "valid", "labels", "from")}
        reading = {key: value for key, value in data.get("reading", {}).items() if key in _READING}
        assert paths["train"] is not None
        found = valid or paths["valid"], labels or paths["labels"], ReadOptions(**reading), start or paths["from"]
        return cls(paths["train"], *found)

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
        others = (("valid", self.valid), ("labels", self.labels), ("from", self.start))
        data |= {key: str(value) for key, value in others if value}
        reading = {key: getattr(self.options, key) for key in _READING if getattr(self.options, key) not in (None, (), "fail")}
        if reading:
            data["reading"] = {key: list(value) if isinstance(value, tuple) else value for key, value in reading.items()}
        start = "" if self.start is None else manifest_digest(artefact_folder(self.start))
        data["fingerprint"] = train.fingerprint() + ("" if valid is None else valid.fingerprint()) + start
        return data


def train_run(
    recipe: Recipe, plan: DataPlan, out: str | Path, *, resume: bool = False, earlier: Classifier | None = None
) -> Classifier:
    """Read the data, train, and leave recipe, log and artefact in the folder of the run.

    ``earlier`` is the model that the plan starts from, where that is loaded already.
    """
    if plan.start is not None and earlier is None:
        earlier = Classifier.load(plan.start)
    train, valid = plan.read()
    recipe = dataclasses.replace(recipe, data=plan.told(train, valid))
    return train_corpora(recipe, train, valid, out, resume=resume, earlier=earlier)


def train_corpora(
    recipe: Recipe,
    train: Corpus,
    valid: Corpus | None,
    out: str | Path,
    *,
    resume: bool = False,
    earlier: Classifier | None = None,
) -> Classifier:
    """Train on corpora that were read, and leave recipe, log and artefact in the folder of the run.

    Of several processes only the first one opens the folder; the others compute with it and keep nothing.
    """
    classifier = Classifier(recipe)
    if earlier is not None:
        classifier.continue_from(earlier)
    with Run(out, resume=resume) if first_process() else Run(None, progress=False) as run:
        run.write_recipe(recipe)
        start = time.monotonic()
        classifier.fit(train, valid, run)
        seconds = time.monotonic() - start
        if run.folder is not None:
            classifier.save(out)
        run.log("end", {"seconds": seconds})
        run.write_metrics({"held_out": classifier.decision.report, "train_seconds": seconds})
        run.clear_stages()
    return classifier
