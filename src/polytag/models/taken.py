"""Parts of a mixture that are taken from finished runs, and what may be learned from their scores."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from polytag.artefact import artefact_folder, manifest_digest
from polytag.calibration import Platt
from polytag.errors import ConfigError
from polytag.models.linear_model import LinearModel
from polytag.models.model import HeldOut, Model
from polytag.models.part import Part, names_some, out_of_fold
from polytag.recipe import Recipe
from polytag.scores import Scores

if TYPE_CHECKING:
    from polytag.classifier import Classifier
    from polytag.corpus import Corpus
    from polytag.run import Run

log = logging.getLogger(__name__)


class Taken(NamedTuple):
    """A finished classifier that becomes a part, the checksums of what it was trained on, and one of itself."""

    classifier: Classifier
    documents: str
    digest: str

    @classmethod
    def of(cls, classifier: Classifier) -> Self:
        """A classifier that is there."""
        classifier.model.require_fitted()
        return cls(classifier, str(classifier.recipe.data.get("fingerprint", "")), "")

    @classmethod
    def load(cls, run: str) -> Self:
        """The classifier in the folder of a run."""
        from polytag.classifier import Classifier

        folder = artefact_folder(run)
        digest = manifest_digest(folder)
        classifier = Classifier.load(folder)
        classifier.model.use_export(Path(os.devnull))  # an export stays behind: the mixture is saved without it
        return cls(classifier, _documents_of(folder), digest)


def _documents_of(folder: Path) -> str:
    """The checksums of the training and validation documents of a run, from the recipe beside its artefact; empty if unknown."""
    try:
        return str(Recipe.read(folder.parent / "recipe.toml").data.get("fingerprint", ""))
    except ConfigError:
        return ""


def taken_part(
    name: str,
    taken: Taken,
    columns: NDArray[np.int32] | None,
    corpora: tuple[Corpus, Corpus],
    run: Run,
    place: str,
    most: int | None,
) -> tuple[Part, Scores | None, bool]:
    """A finished model as a part, its scores on validation documents that it was not trained on, and whether it gave them.

    There are no scores of a part that names candidates and can be asked for them. Of others, the ``most`` best labels are kept.
    """
    train, valid = corpora
    model = taken.classifier.model
    part = Part(name, model, columns, taken.classifier.calibration)
    seen = _learned_from(name, taken, train, valid)
    if not seen and names_some(model):
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


def _learned_from(name: str, taken: Taken, train: Corpus, valid: Corpus) -> bool:
    """Whether the finished model's own scores on these validation documents would be of documents that it learned from.

    Linear models learn from validation documents too, once their settings are chosen, and so do the separators of models with
    ``refit``; networks only keep their best weights by them. What the run was trained on is told by its recipe; where that is
    not known, networks are trusted.
    """
    one, other = train.fingerprint(), valid.fingerprint()
    if taken.documents.startswith(other):
        raise ConfigError(f"the part {name!r} was trained on the validation documents; give others, which it never saw")
    if taken.documents == one:
        return False
    if refits(taken.classifier.model):
        return True
    if taken.documents != one + other:
        log.warning("%s was trained on other documents, as far as is known; it must not have seen the validation documents", name)
    if any(_parts_of(model) or refits(model) for model in _parts_of(taken.classifier.model)):
        raise ConfigError(f"the part {name!r} is a mixture that may have learned from these documents; name its parts instead")
    return False


def _parts_of(model: Model) -> list[Model]:
    """The models that a mixture is made of; none of any other model."""
    from polytag.models.mixed import Mixed

    return [part.model for part in model.trained] if isinstance(model, Mixed) else []


def refits(model: Model) -> bool:
    """Whether a model learns from its validation documents in the end."""
    return isinstance(model, LinearModel) or bool(getattr(model, "refit", False))
