"""Ensemble members from finished runs, and whether their scores on validation documents are held-out scores."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from polytag.config.recipe import Recipe
from polytag.decision.calibration import Platt
from polytag.errors import ConfigError
from polytag.models.base.saved_model import SavedModel
from polytag.models.mixture.part import Part, out_of_fold, scores_candidates_only
from polytag.models.model import HeldOut, Model
from polytag.scores import Scores
from polytag.storage.artefact import artefact_folder, manifest_digest

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

log = logging.getLogger(__name__)


class Trained(Protocol):
    """The attributes of a trained classifier that an ensemble needs."""

    model: Model
    calibration: Platt | None
    recipe: Recipe


class FinishedRun(NamedTuple):
    """A trained model, its calibration, the fingerprint of its training documents, and the checksum of its artefact."""

    model: Model
    calibration: Platt | None
    documents: str
    digest: str

    @classmethod
    def of(cls, classifier: Trained) -> Self:
        """From a classifier in memory."""
        classifier.model.require_fitted()
        documents = str(classifier.recipe.data.get("fingerprint", ""))
        return cls(classifier.model, classifier.calibration, documents, "")

    @classmethod
    def load(cls, run: str) -> Self:
        """From the folder of a run; its ONNX export is not used, because the ensemble is saved without it."""
        folder = artefact_folder(run)
        return cls(*SavedModel.load(folder), _documents_of(folder), manifest_digest(folder))


def _documents_of(folder: Path) -> str:
    """The fingerprints of a run's training and validation documents, from its recipe; empty if unknown."""
    try:
        return str(Recipe.read(folder.parent / "recipe.toml").data.get("fingerprint", ""))
    except ConfigError:
        return ""


def part_of_run(
    name: str,
    taken: FinishedRun,
    columns: NDArray[np.int32] | None,
    corpora: tuple[Corpus, Corpus],
    run: Run,
    place: str,
    most: int | None,
) -> tuple[Part, Scores | None, bool]:
    """A finished model as a member, its held-out scores on the validation documents, and whether it computed them itself.

    There are no scores of a member that scores candidates and can be run again. Others keep the ``most`` best labels.
    """
    train, valid = corpora
    model = taken.model
    part = Part(name, model, columns, taken.calibration)
    seen = _learned_from(name, taken, train, valid)
    if not seen and scores_candidates_only(model):
        return part, None, True
    if not seen:
        held = HeldOut(valid.truth, model.score(valid.texts, most))
        part.calibrate(HeldOut(valid.with_labels(model.labels).truth, held.scores))
        return part, part.probabilities(held.scores, train.labels.names), True
    own = train.with_labels(model.labels), valid.with_labels(model.labels)
    state = run.stage(f"part-{place}", partial(out_of_fold, part, *own, run, place), key={"artefact": taken.digest})
    part.calibration = None if state["calibration"] is None else Platt.from_state(state["calibration"])
    if state["held"] is None:  # too few documents
        return part, None, False
    return part, part.probabilities(Scores.from_state(state["held"], model.labels.names), train.labels.names), False


def _learned_from(name: str, taken: FinishedRun, train: Corpus, valid: Corpus) -> bool:
    """Whether the finished model was trained on these validation documents.

    Linear models are finally trained on validation documents too, and so are the separators of models with ``refit``. Networks
    use them for early stopping only. The recipe of a run has the fingerprint of its documents; if it is unknown, a network is
    assumed not to be trained on them.
    """
    one, other = train.fingerprint(), valid.fingerprint()
    if taken.documents.startswith(other):
        raise ConfigError(f"the part {name!r} was trained on the validation documents; give other ones")
    if taken.documents == one:
        return False
    if learned_from_valid(taken.model):
        return True
    if taken.documents != one + other:
        log.warning("%s may have been trained on other documents; check that the validation documents are not among them", name)
    if any(model.part_models() or learned_from_valid(model) for model in taken.model.part_models()):
        raise ConfigError(f"the part {name!r} is an ensemble that may have been trained on these documents; name its parts")
    return False


def learned_from_valid(model: Model) -> bool:
    """Whether a model is also trained on its validation documents."""
    return model.core.learns_from_valid or bool(model.core.options().get("refit", False))
