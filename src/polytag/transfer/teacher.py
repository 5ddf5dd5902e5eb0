"""A trained classifier as a teacher: probabilities of documents that it was not trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.config.registry import MODELS
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.kernels.sparse_rows import stack_rows
from polytag.models.mixed import Mixed
from polytag.models.mixture.part import Part
from polytag.run import Run
from polytag.scores import Scores
from polytag.storage.state_json import State
from polytag.transfer.text_views import views_of

CERTAIN = 0.01  # probabilities nearer than this to 0 or 1 are 0 or 1, so that targets are sparse
_AT_ONCE = 2_000  # texts that are scored at once
_MOST = 100  # labels per document that a teacher names


class Taught(NamedTuple):
    """What a teacher says about texts (documents, labels): its probabilities, and the labels that it would predict."""

    soft: csr_array
    predicted: csr_array


def taught_by(teacher: Classifier, texts: Sequence[str], run: Run) -> Taught:
    """What a teacher says about texts that it was not trained on."""
    soft, predicted = [], []
    part = Part("teacher", teacher.model)  # turns margins that nobody calibrated into probabilities
    for start in run.track(range(0, len(texts), _AT_ONCE), "the teacher's scores"):
        scores = teacher.scores(texts[start : start + _AT_ONCE], min(_MOST, len(teacher.labels)))
        predicted.append(teacher.decision.decide(scores, teacher.labels))
        soft.append(as_targets(scores if scores.kind == "probability" else part.probabilities(scores, teacher.labels.names)))
    return Taught(stack_rows(soft), stack_rows(predicted))


def as_targets(scores: Scores) -> csr_array:
    """Probabilities as sparse targets; what is almost certain is certain."""
    matrix = scores.matrix
    values = np.where(matrix.data > 1 - CERTAIN, 1, matrix.data).astype(np.float32)
    keep = values >= CERTAIN
    indptr = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr]
    return csr_array((values[keep], matrix.indices[keep].astype(np.int32), indptr), shape=matrix.shape)


class OutOfFold(NamedTuple):
    """Probabilities of training documents and of their views by a teacher that was trained without them, and of other texts.

    The views of a document follow each other. Other texts have the mean of all teachers.
    """

    labelled: csr_array
    views: csr_array
    others: csr_array

    @classmethod
    def of(cls, said: Sequence[State], parts: Sequence[tuple[Any, Any]], views: int) -> Self:
        """What the teachers say together; ``parts`` are the rows that each has learned from, and those that it has not."""
        held = np.concatenate([rows for _, rows in parts])
        further = np.repeat(held * views, views) + np.tile(np.arange(views), len(held))
        mean = csr_array(reduce(add, [csr_array(one["others"]) for one in said]) * np.float32(1 / len(said)))
        mean.sort_indices()
        return cls(
            csr_array(stack_rows([csr_array(one["soft"]) for one in said])[np.argsort(held, kind="stable")]),
            csr_array(stack_rows([csr_array(one["views"]) for one in said])[np.argsort(further, kind="stable")]),
            as_targets(Scores(mean, (), "probability", 0.0)),
        )


def out_of_fold(teacher: Classifier, corpus: Corpus, folds: int, others: Sequence[str], run: Run, views: int = 0) -> OutOfFold:
    """What teachers say that were trained on these documents alone, each without a fold.

    A teacher would be over-confident about its own training documents. So its recipe is trained again without each fold; a
    mixture keeps its weights. Documents outside of ``corpus`` are unknown to all of them, so that students can be compared there.
    """
    recipe = _repeatable(teacher)
    parts = corpus.folds(folds, seed=recipe.seed)
    said = []
    for number, part in enumerate(run.track(parts, "teachers without a fold"), start=1):
        make = partial(without_fold, recipe, corpus, part, others, views)
        said.append(run.stage(f"teacher{number}", make, key={"views": views}))
    return OutOfFold.of(said, parts, views)


def without_fold(recipe: Recipe, corpus: Corpus, part: tuple[Any, Any], others: Sequence[str], views: int) -> State:
    """What a teacher without a fold says about its documents, their views and other texts; ``part`` has its rows and others."""
    quiet, (learned, held) = Run(None, progress=False), part
    teacher = Classifier(recipe).fit(corpus.subset(learned), None, quiet)
    shown = views_of(corpus.texts, views, recipe.seed)
    asked = {
        "soft": [corpus.texts[row] for row in held.tolist()],
        "views": [shown[row * views + number] for row in held.tolist() for number in range(views)],
        "others": others,
    }
    nothing = csr_array((0, len(corpus.labels)), dtype=np.float32)
    return {key: taught_by(teacher, texts, quiet).soft if len(texts) else nothing for key, texts in asked.items()}


def _repeatable(teacher: Classifier) -> Recipe:
    """The recipe of a teacher without its data and promise; ConfigError if it cannot be trained again."""
    recipe = dataclasses.replace(teacher.recipe, data={}, promise=None, costs={}, tune={})
    model = teacher.model.core
    if not isinstance(model, Mixed):
        return recipe
    finished = next((name for name in model.parts if name.partition(":")[0] not in MODELS), None)
    if finished is not None:
        raise ConfigError(
            f"the part {finished!r} of the teacher is a finished run, which is not trained again without a fold; "
            "give --unlabelled texts and --folds 0"
        )
    options: dict[str, Any] = {**recipe.options, "folds": 0}
    if len(model.parts) > 1:
        times = max(1, len(model.shares) // len(model.parts))
        options["weights"] = [float(sum(model.shares[at * times : (at + 1) * times])) for at in range(len(model.parts))]
        return dataclasses.replace(recipe, options=options)
    part = model.parts[0]
    own = {**model.settings.get("all", {}), **model.settings.get(part, {})}
    return dataclasses.replace(recipe, model=part.partition(":")[0], options=own)
