"""``polytag train`` as functions: from files to artefact, in one or several processes."""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.formats.document import ReadOptions
from polytag.labels import LabelSet
from polytag.run import Run
from polytag.storage.artefact import artefact_folder, manifest_digest
from polytag.verbs.warming import share
from polytag.work.workplace import HERE, Workplace

_READING = ("format", "text", "labels", "separator", "on_bad")
_RANKS = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")  # the variables that accelerate checks


def first_process() -> bool:
    """Whether this process writes the run: it is the only one, or the one with rank 0."""
    ranks = (os.environ.get(name, "") for name in _RANKS)
    return next((int(rank) for rank in ranks if rank.isdigit()), 0) == 0


@dataclass(frozen=True)
class DataPlan:
    """The files of a training and how to read them; ``start`` is an earlier run to continue from."""

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
        """The plan of the command line, or of the recipe if the command line names no training file."""
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
        """The training and validation documents, with one label set."""
        labels = LabelSet.read(self.labels) if self.labels else None
        train = Corpus.read(self.train, labels=labels, options=self.options)
        if self.valid is None:
            return train, None
        valid = Corpus.read(self.valid, labels=train.labels, options=self.options)
        return train.with_labels(valid.labels), valid

    def recipe_table(self, train: Corpus, valid: Corpus | None) -> dict[str, Any]:
        """The table [data] of the recipe: paths, reading options and a fingerprint."""
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
    recipe: Recipe,
    plan: DataPlan,
    out: str | Path,
    *,
    resume: bool = False,
    earlier: Classifier | None = None,
    more: Corpus | None = None,
    workplace: Workplace = HERE,
) -> Classifier:
    """Read the data, train, and write recipe, log and artefact to the folder of the run.

    ``earlier`` is the classifier to continue from, if it is loaded already. ``more`` are documents besides those of the plan,
    such as corrections; they replace training documents with the same text. ``workplace`` is where pieces of the training run.
    """
    share("train", recipe.model)
    if plan.start is not None and earlier is None:
        earlier = Classifier.load(plan.start)
    recipe, train, valid = read_plan(recipe, plan, more)
    return train_corpora(recipe, train, valid, out, resume=resume, earlier=earlier, workplace=workplace)


def read_plan(recipe: Recipe, plan: DataPlan, more: Corpus | None = None) -> tuple[Recipe, Corpus, Corpus | None]:
    """The documents of a plan, with more of them, and the recipe that names them."""
    train, valid = plan.read()
    if more is not None:
        train = _replaced(train, more)
        valid = None if valid is None else valid.with_labels(train.labels)
    return dataclasses.replace(recipe, data=plan.recipe_table(train, valid)), train, valid


def _replaced(train: Corpus, more: Corpus) -> Corpus:
    """The training documents with more documents, which replace those with the same text."""
    labels, known = train.labels.union(more.labels), set(more.texts)
    kept = train.with_labels(labels).subset([number for number, text in enumerate(train.texts) if text not in known])
    return kept.concat(more.with_labels(labels))


def train_corpora(
    recipe: Recipe,
    train: Corpus,
    valid: Corpus | None,
    out: str | Path,
    *,
    resume: bool = False,
    earlier: Classifier | None = None,
    workplace: Workplace = HERE,
) -> Classifier:
    """Train on corpora, and write recipe, log and artefact to the folder of the run.

    Of several processes only the first opens the folder; the others take part in the training and write nothing.
    """
    classifier = Classifier(recipe)
    if earlier is not None:
        classifier.continue_from(earlier)
    with Run(out, resume=resume) if first_process() else Run(None, progress=False) as run:
        run.write_recipe(recipe)
        run.workplace = workplace
        start = time.monotonic()
        classifier.fit(train, valid, run)
        seconds = time.monotonic() - start
        if run.folder is not None:
            classifier.save(out)
        run.log("end", {"seconds": seconds})
        run.write_metrics({"held_out": classifier.decision.report, "train_seconds": seconds})
        run.clear_stages()
    return classifier
