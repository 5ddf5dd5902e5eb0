"""``polytag distil`` as functions: the quality of a teacher, such as a mixture, in one fast model.

The student learns probabilities in place of labels: for labelled documents a mean of the true labels and of what the teacher
says out of fold, for unlabelled texts what the teacher says. Thresholds are fitted anew, on labelled documents alone.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
from polytag.models.model import HeldOut, Model
from polytag.run import Run
from polytag.scores import Scores
from polytag.storage.artefact import artefact_folder, manifest_digest
from polytag.transfer.alike_texts import alike
from polytag.transfer.teacher import as_targets, out_of_fold, taught_by
from polytag.verbs.training import DataPlan

log = logging.getLogger(__name__)
FOLDS = 5
_CLEAR = 0.2  # over the root of the held-out documents: smaller gains of linear students were losses on new documents
_SURELY = 0.05  # a larger gain is enough on any number of documents
TRUSTS, FIRST = (0.0, 0.1, 0.3, 0.5, 0.8, 1.0), 0.3  # compared for linear students, and the first of them
TRUST = 0.8  # of networks: the better one of 0.3 and 0.8 on validation documents of reuters and aapd-even
SURE = 0.5  # an unlabelled text for which no label is that likely is left out: it is of another kind than the labelled ones


@dataclass(frozen=True)
class Lesson:
    """How a student learns from a teacher.

    ``folds`` is the number of teachers that are trained for out-of-fold probabilities; with 0, labelled documents keep their
    true labels. ``trust`` is the share of the teacher in the targets of labelled documents. None = 0.8 for networks; linear
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
    asked = dataclasses.replace(train, soft=train.truth)
    warn_of_ignored(Classifier(recipe).model, recipe.model, asked)  # before the teacher is asked
    labels = _labels_of(teacher, train, valid)
    train, valid = train.with_labels(labels), None if valid is None else valid.with_labels(labels)
    train.require_trainable()
    train, valid, _ = train.hold_out(valid, recipe.seed)
    if len(unlabelled):
        rows = run.stage("alike", lambda: {"rows": alike(train.texts, unlabelled, run)})["rows"]
        unlabelled = [unlabelled[row] for row in np.asarray(rows).tolist()]
        if not lesson.folds and not unlabelled:
            raise DataError("none of the unlabelled texts is like the labelled documents; give other texts, or --folds 5")
    if lesson.folds:
        said, others = out_of_fold(teacher, train, lesson.folds, unlabelled, run)
    else:
        taught = run.stage("unlabelled", lambda: taught_by(teacher, unlabelled, run)._asdict())
        said, others = train.truth, csr_array(taught["soft"])
    more = _known(unlabelled, others, labels, run) if len(unlabelled) else None
    school = _School(recipe, train, valid, said, more, run)
    trust = (lesson.trust or TRUST) if lesson.folds else 0.0  # linear students that choose their own start at FIRST
    if not school.linear:
        return school.student(trust).classifier
    best = _climbed(school.student) if lesson.folds and lesson.trust is None else school.student(trust)
    plain = dataclasses.replace(school, more=None).student(0.0)
    if valid is not None and best.value - plain.value < min(_CLEAR / math.sqrt(len(valid)), _SURELY):
        log.warning(
            "the teacher has nothing to teach: %.4f without it, %.4f with it, on held-out documents", plain.value, best.value
        )
        best, school = plain, dataclasses.replace(school, more=None)
    return school.again(best)


class _Student(NamedTuple):
    """A student, its trust in the teacher, and its metric on documents that no teacher saw."""

    trust: float
    value: float
    classifier: Classifier


@dataclass(frozen=True)
class _School:
    """What students learn: documents with true labels and with what teachers say, and further texts; and the held-out documents.

    No teacher was trained on the held-out documents. A linear teacher knows its documents by heart, and a linear student learns
    that from it: on documents of a teacher, a student with more trust always looks better.
    """

    recipe: Recipe
    train: Corpus
    valid: Corpus | None
    said: csr_array
    more: Corpus | None
    run: Run

    @property
    def linear(self) -> bool:
        """Whether the student would use held-out documents for training."""
        return Classifier(self.recipe).model.learns_from_valid

    def student(self, trust: float) -> _Student:
        """Train with this trust in the teacher; thresholds are fitted out of fold or on held-out documents, as is better."""
        model = Classifier(self.recipe).model
        with self.run.part(f"student-{trust:g}-{0 if self.more is None else len(self.more)}") as inner:
            held = model.fit(self._taught(trust), None if self.linear else self.valid, inner)
        if self.linear:
            held = _labelled_only(held, len(self.train), 0 if self.more is None else len(self.more))
        found = [self._judged(trust, model, held, own=not self.linear)]
        if self.linear and self.valid is not None:
            found.append(self._judged(trust, model, HeldOut(self.valid.truth, model.score(self.valid.texts)), own=True))
        best = max(found, key=lambda one: one.value)
        self.run.log("student", {"trust": trust, "value": best.value})
        return best

    def _judged(self, trust: float, model: Model, held: HeldOut | None, *, own: bool) -> _Student:
        """A student with a decision fitted on these scores; ``own`` if they are those of the held-out documents."""
        found = Classifier.of_trained(model, self.recipe, held, self.train, self.valid)
        report = found.decision.report
        if own or self.valid is None:
            return _Student(
                trust, float(report.get("cross_fitted", {}).get(report.get("rule"), report.get("fitted", 0.0))), found
            )
        sets = found.outcome(self.valid).predicted
        return _Student(trust, float(main_metrics(self.valid.truth, sets)[self.recipe.optimise]), found)

    def again(self, student: _Student) -> Classifier:
        """A linear student that is trained again, on the held-out documents too; calibration and decision stay."""
        found = student.classifier
        if self.valid is not None:
            with self.run.part("again") as inner:
                found.model = Classifier(self.recipe).model
                found.model.fit(self._taught(student.trust).concat(self.valid), None, inner)
        return found

    def _taught(self, trust: float) -> Corpus:
        train = self.train if not trust else dataclasses.replace(self.train, soft=_blend(self.train.truth, self.said, trust))
        return train if self.more is None else train.concat(self.more)


def _climbed(taught: Callable[[float], _Student]) -> _Student:
    """The best linear student: with more trust, or else with less, as long as it gets better."""
    at = TRUSTS.index(FIRST)
    best = taught(TRUSTS[at])
    for step in (1, -1):
        first = at
        while 0 <= at + step < len(TRUSTS) and (other := taught(TRUSTS[at + step])).value > best.value:
            at, best = at + step, other
        if at != first:
            break
    return best


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


def _known(texts: Sequence[str], soft: csr_array, labels: Any, run: Run) -> Corpus | None:
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
    ids = [f"unlabelled-{number + 1}" for number in rows.tolist()]
    return Corpus(ids, [texts[row] for row in rows.tolist()], labels, csr_array(likely[rows]), soft=csr_array(soft[rows]))


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
