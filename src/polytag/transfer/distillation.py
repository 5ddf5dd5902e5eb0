"""``polytag distil`` as functions: the quality of a teacher, such as a mixture, in one fast model.

The student learns probabilities in place of labels: for labelled documents a mean of the true labels and of what the teacher
says out of fold, for parts of them and for unlabelled texts what the teacher says. Thresholds are fitted anew, on labelled
documents alone.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.errors import ConfigError, DataError
from polytag.formats.document_files import Reader
from polytag.metrics.of_sets import main_metrics
from polytag.models.base.judgement import warn_of_ignored
from polytag.models.base.linear_model import LinearModel
from polytag.models.model import HeldOut, Model
from polytag.run import Run
from polytag.scores import Scores
from polytag.storage.artefact import artefact_folder, manifest_digest
from polytag.transfer.teacher import as_targets, out_of_fold, taught_by
from polytag.transfer.text_views import views_of
from polytag.verbs.training import DataPlan

log = logging.getLogger(__name__)
FOLDS = 5
VIEWS = 2  # parts of every labelled document that a teacher labels too
TRUST = 0.5  # share of the teacher in the targets of labelled documents
OTHERS = 0.3  # weight of a text without labels for linear students: its target is no more than what a teacher says
BALANCE = 0.1  # of linear students: probabilities need less weight for the positives of rare labels than labels do
STRENGTHS = 1.0, 2.0  # C of linear students: targets that are probabilities, of more texts, need less regularisation
_CLEARLY = 0.2  # over the root of the held-out documents: a difference in F1 that is more than chance
SURE = 0.5  # an unlabelled text for which no label is that likely is left out: it is of another kind than the labelled ones


@dataclass(frozen=True)
class Lesson:
    """How a student learns from a teacher.

    ``folds`` is the number of teachers that are trained for out-of-fold probabilities; with 0, labelled documents keep their
    true labels, and there are no views. ``trust`` is the share of the teacher in the targets of labelled documents (0.5 unless
    given), ``views`` the number of random parts of each that the teacher labels too (2 unless given).
    """

    folds: int = FOLDS
    trust: float | None = None
    views: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.folds < 0 or self.folds == 1:
            raise ConfigError(f"--folds is {self.folds}; give 0, for no out-of-fold probabilities, or at least 2")
        if self.views is not None and self.views < 0:
            raise ConfigError(f"--views is {self.views}; give 0, or the number of parts of every labelled document")
        if self.trust is not None and not 0 < self.trust <= 1:
            raise ConfigError(f"--trust is {self.trust:g}; it must be above 0 and at most 1")
        for name, value in (("--trust", self.trust), ("--views", self.views)):
            if value and not self.folds:
                raise ConfigError(f"{name} is {value:g}, but without folds the teacher says nothing about labelled documents")

    @property
    def share(self) -> float:
        """The share of the teacher in the targets of labelled documents; none without folds."""
        return (TRUST if self.trust is None else self.trust) if self.folds else 0.0

    @property
    def parts(self) -> int:
        """The number of views of a document; none without folds."""
        return (VIEWS if self.views is None else self.views) if self.folds else 0


def distil(
    teacher: Classifier,
    recipe: Recipe,
    train: Corpus,
    valid: Corpus | None = None,
    *,
    unlabelled: Sequence[str] = (),
    lesson: Lesson | None = None,
    run: Run | None = None,
) -> Classifier:
    """Train the model of a recipe on what a teacher says; ``train`` and ``valid`` are the documents of the teacher."""
    lesson, run = lesson or Lesson(), run or Run()
    if not lesson.folds and not len(unlabelled):
        raise ConfigError("without folds and unlabelled texts there is nothing to learn from the teacher; give one of them")
    asked = dataclasses.replace(train, soft=train.truth)
    warn_of_ignored(Classifier(recipe).model, recipe.model, asked)  # before the teacher is asked
    labels = _labels_of(teacher, train, valid)
    train, valid = train.with_labels(labels), None if valid is None else valid.with_labels(labels)
    train.require_trainable()
    train, valid, _ = train.hold_out(valid, recipe.seed)
    if lesson.folds:
        said, seen, others = out_of_fold(teacher, train, lesson.folds, unlabelled, run, lesson.parts)
    else:
        taught = run.stage("unlabelled", lambda: taught_by(teacher, unlabelled, run)._asdict())
        said, seen, others = train.truth, train.truth[:0], csr_array(taught["soft"])
    lessons = train if not lesson.share else dataclasses.replace(train, soft=_blend(train.truth, said, lesson.share))
    model = Classifier(recipe).model
    weight = OTHERS if model.learns_from_valid else None
    if seen.shape[0]:
        shown = views_of(train.texts, lesson.parts, teacher.recipe.seed)
        lessons = lessons.concat(_unsure("view", shown, seen, labels, weight))
    texts: list[str] = []
    if len(unlabelled) and (more := _known(unlabelled, others, labels, weight, run)) is not None:
        lessons, texts = lessons.concat(more), more.texts
    if model.learns_from_valid:
        return _linear_student(recipe, lessons, (train, valid), texts, run)
    with run.part("student") as inner:
        held = model.fit(lessons, valid, inner)
    return Classifier.of_trained(model, recipe, held, train, valid)


def _linear_student(
    recipe: Recipe, lessons: Corpus, known: tuple[Corpus, Corpus | None], others: list[str], run: Run
) -> Classifier:
    """The student, or the model without a teacher if that is clearly better on documents that neither has seen.

    The words are those of the model without a teacher, and of texts without labels where there is room. No teacher was trained on
    the validation documents: a linear teacher knows its documents by heart, and a linear student learns that from it, so there it
    looks better than it is. In the end the student is trained on them too; calibration and decision stay.
    """
    train, valid = known
    with run.part("plain") as inner:
        plain = Classifier(recipe).fit(train, None, inner)
    recipe_of_student = dataclasses.replace(recipe, options={"balance": BALANCE, "c": list(STRENGTHS), **recipe.options})
    model = _with_words(recipe_of_student, plain.model, others)
    with run.part("student") as inner:
        held = _labelled_only(model.fit(lessons, None, inner), len(train), len(lessons) - len(train))
    student = Classifier.of_trained(model, recipe_of_student, held, train, valid)
    if valid is None:
        return student
    values = [float(main_metrics(valid.truth, one.outcome(valid).predicted)[recipe.optimise]) for one in (plain, student)]
    run.log("students", {"plain": values[0], "taught": values[1], "documents": len(valid)})
    if values[1] < values[0] - _CLEARLY / math.sqrt(len(valid)):
        log.warning("the teacher has nothing to teach: %.4f without it, %.4f with it, on held-out documents", *values)
        with run.part("again") as inner:
            return Classifier(recipe).fit(train, valid, inner)
    assert model.prior is not None
    student.model = last = _with_words(recipe_of_student, model, ())
    last.refit(lessons.concat(valid), model.prior.strength, run)
    return student


def _with_words(recipe: Recipe, plain: Model, others: Sequence[str]) -> LinearModel:
    """The model of a linear student, with the words of the plain one and of other texts."""
    model = Classifier(recipe).model
    assert isinstance(model, LinearModel)
    model.take_words(plain, others)
    return model


def _labels_of(teacher: Classifier, train: Corpus, valid: Corpus | None) -> Any:
    """The labels of the teacher; the documents must have no others."""
    labels = teacher.labels
    for corpus in (train, valid):
        used = [] if corpus is None else [corpus.labels[int(number)] for number in np.unique(corpus.truth.indices)]
        if unknown := [name for name in used if name not in labels]:
            raise DataError(f"the teacher does not know the label {unknown[0]!r}; give the documents that it was trained on")
    return labels


def _blend(truth: csr_array, soft: csr_array, trust: float) -> csr_array:
    """The mean of true labels and probabilities, the latter with the weight ``trust``."""
    mixed = csr_array(truth * np.float32(1 - trust) + soft * np.float32(trust))
    mixed.sort_indices()
    return as_targets(Scores(mixed, (), "probability", 0.0))


def _known(texts: Sequence[str], soft: csr_array, labels: Any, weight: float | None, run: Run) -> Corpus | None:
    """Unlabelled texts with the probabilities of the teacher; those that it does not know are left out."""
    likely = csr_array((soft >= SURE).astype(np.float32))
    rows = np.flatnonzero(np.diff(likely.indptr))
    run.log("unlabelled", {"texts": len(texts), "known": len(rows)})
    if len(rows) < len(texts) / 2:
        log.warning(
            "the teacher is sure of a label for %s of %s unlabelled texts; the others are left out", len(rows), len(texts)
        )
    if not len(rows):
        return None
    return _unsure("unlabelled", [texts[row] for row in rows.tolist()], csr_array(soft[rows]), labels, weight)


def _unsure(name: str, texts: list[str], soft: csr_array, labels: Any, weight: float | None) -> Corpus:
    """Texts with the probabilities of a teacher; what is likely counts as true where labels are asked for."""
    likely = csr_array((soft >= SURE).astype(np.float32))
    weights = None if weight is None else np.full(len(texts), weight, dtype=np.float32)
    return Corpus([f"{name}-{number + 1}" for number in range(len(texts))], texts, labels, likely, weights=weights, soft=soft)


def _labelled_only(held: HeldOut | None, first: int, more: int) -> HeldOut | None:
    """Held-out scores without those of unlabelled texts, which follow the first documents."""
    if held is None or held.rows is None or not more:
        return held
    keep = np.flatnonzero((held.rows < first) | (held.rows >= first + more))
    rows: NDArray[np.int64] = held.rows[keep]
    rows = np.where(rows < first, rows, rows - more)
    scores = dataclasses.replace(held.scores, matrix=held.scores.matrix[keep], decoded=None, log_probability=None)
    return HeldOut(held.truth[keep], scores, rows)


def distil_run(
    source: str | Path,
    recipe: Recipe,
    plan: DataPlan,
    out: str | Path,
    *,
    unlabelled: Path | None = None,
    lesson: Lesson | None = None,
    resume: bool = False,
) -> Classifier:
    """Read teacher and data, distil, and write recipe, log and artefact to the folder of the run."""
    lesson, teacher = lesson or Lesson(), Classifier.load(source)
    train, valid = plan.read()
    texts = [] if unlabelled is None else [document.text for document in Reader(unlabelled, plan.options)]
    data = plan.recipe_table(train, valid)
    digest = manifest_digest(artefact_folder(source))
    recipe = dataclasses.replace(recipe, data={**data, "fingerprint": data["fingerprint"] + digest})
    with Run(out, resume=resume) as run:
        run.write_recipe(recipe)
        told = {"folds": lesson.folds, "trust": lesson.share, "views": lesson.parts}
        run.log("lesson", {"teacher": str(source), "unlabelled": len(texts), **told})
        start = time.monotonic()
        student = distil(teacher, recipe, train, valid, unlabelled=texts, lesson=lesson, run=run)
        student.save(out)
        seconds = time.monotonic() - start
        run.log("end", {"seconds": seconds})
        run.write_metrics({"held_out": student.decision.report, "train_seconds": seconds})
        run.clear_stages()
    return student
