"""``polytag distil`` as functions: the quality of a teacher, such as a mixture, in one fast model.

The student learns probabilities in place of labels: for labelled documents a mean of the true labels and of what the teacher
says out of fold, for unlabelled texts what the teacher says. Thresholds are fitted anew, on labelled documents alone.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
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
from polytag.models.base.judgement import warn_of_ignored
from polytag.models.model import HeldOut
from polytag.run import Run
from polytag.scores import Scores
from polytag.storage.artefact import artefact_folder, manifest_digest
from polytag.transfer.teacher import as_targets, out_of_fold, taught_by
from polytag.verbs.training import DataPlan

log = logging.getLogger(__name__)
FOLDS = 5
TRUSTS, TRUST = (0.0, 0.1, 0.3, 0.5, 0.8, 1.0), 0.3  # compared for linear students, from that of networks on
SURE = 0.5  # an unlabelled text for which no label is that likely is left out: it is of another kind than the labelled ones


@dataclass(frozen=True)
class Lesson:
    """How a student learns from a teacher.

    ``folds`` is the number of teachers that are trained for out-of-fold probabilities; with 0, labelled documents keep their
    true labels. ``trust`` is the share of the teacher in the targets of labelled documents. None = 0.3 for networks; linear
    students are trained with more, or with less, as long as they get better on held-out documents.
    """

    folds: int = FOLDS
    trust: float | None = None

    def __post_init__(self) -> None:
        """Check both."""
        if self.folds < 0 or self.folds == 1:
            raise ConfigError(f"--folds is {self.folds}; give 0, for no out-of-fold probabilities, or at least 2")
        if self.trust is not None and not 0 < self.trust <= 1:
            raise ConfigError(f"--trust is {self.trust:g}; it must be above 0 and at most 1")


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
    student = Classifier(recipe)
    warn_of_ignored(student.model, recipe.model, dataclasses.replace(train, soft=train.truth))  # before the teacher is asked
    labels = _labels_of(teacher, train, valid)
    train, valid = train.with_labels(labels), None if valid is None else valid.with_labels(labels)
    train.require_trainable()
    if valid is None and not student.model.learns_from_valid:
        train, valid, _ = train.hold_out(None, recipe.seed)
    documents = train if valid is None else train.concat(valid)
    said = out_of_fold(teacher, documents, lesson.folds, run) if lesson.folds else None
    more = _pseudo_labelled(teacher, unlabelled, labels, run) if len(unlabelled) else None

    def taught(trust: float) -> Classifier:
        soft = None if said is None else _blend(documents.truth, said, trust)
        with run.part(f"student-{trust:g}") as inner:
            found = _student(recipe, dataclasses.replace(documents, soft=soft), len(train), more, inner)
        run.log("student", {"trust": trust, "value": _value(found)})
        return found

    if lesson.folds and lesson.trust is None and student.model.learns_from_valid:
        return _climbed(taught)
    return taught((lesson.trust or TRUST) if lesson.folds else 0.0)


def _value(student: Classifier) -> float:
    return float(student.decision.report.get("fitted", 0.0))


def _climbed(taught: Callable[[float], Classifier]) -> Classifier:
    """The best linear student: with more trust, or else with less, as long as it gets better."""
    at = TRUSTS.index(TRUST)
    best = taught(TRUSTS[at])
    for step in (1, -1):
        first = at
        while 0 <= at + step < len(TRUSTS) and _value(other := taught(TRUSTS[at + step])) > _value(best):
            at, best = at + step, other
        if at != first:
            break
    return best


def _student(recipe: Recipe, documents: Corpus, first: int, more: Corpus | None, run: Run) -> Classifier:
    """Train on the first documents and on unlabelled texts; the other documents are those of validation."""
    model = Classifier(recipe).model
    train = documents.subset(np.arange(first))
    valid = documents.subset(np.arange(first, len(documents))) if len(documents) > first else None
    held = model.fit(train if more is None else train.concat(more), valid, run)
    return Classifier.of_trained(model, recipe, _labelled_only(held, first, 0 if more is None else len(more)), train, valid)


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
    if not trust:
        return truth
    mixed = csr_array(truth * np.float32(1 - trust) + soft * np.float32(trust))
    mixed.sort_indices()
    return as_targets(Scores(mixed, (), "probability", 0.0))


def _pseudo_labelled(teacher: Classifier, texts: Sequence[str], labels: Any, run: Run) -> Corpus | None:
    """Unlabelled texts with the probabilities and the predictions of the teacher; those that it does not know are left out."""
    state = run.stage("unlabelled", lambda: taught_by(teacher, texts, run)._asdict())
    soft, predicted = csr_array(state["soft"]), csr_array(state["predicted"])
    sure = np.zeros(len(texts), dtype=np.bool_)
    sure[np.repeat(np.arange(len(texts)), np.diff(soft.indptr))[soft.data >= SURE]] = True
    rows = np.flatnonzero(sure)
    run.log("unlabelled", {"texts": len(texts), "known": len(rows)})
    if len(rows) < len(texts) / 2:
        log.warning(
            "the teacher is sure of a label for %s of %s unlabelled texts; the others are left out", len(rows), len(texts)
        )
    if not len(rows):
        return None
    ids = [f"unlabelled-{number + 1}" for number in rows.tolist()]
    return Corpus(ids, [texts[row] for row in rows.tolist()], labels, csr_array(predicted[rows]), soft=csr_array(soft[rows]))


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
        run.log("lesson", {"teacher": str(source), "unlabelled": len(texts), **dataclasses.asdict(lesson)})
        start = time.monotonic()
        student = distil(teacher, recipe, train, valid, unlabelled=texts, lesson=lesson, run=run)
        student.save(out)
        seconds = time.monotonic() - start
        run.log("end", {"seconds": seconds})
        run.write_metrics({"held_out": student.decision.report, "train_seconds": seconds})
        run.clear_stages()
    return student
