"""A trained model, restored from an artefact, with the calibration of its scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from polytag.config.recipe import Recipe
from polytag.decision.abstention import ABSTENTION, Abstention
from polytag.decision.calibration import PLATT, Platt
from polytag.decision.decision import DECISION, Decision
from polytag.errors import ArtefactError, ConfigError, DataError
from polytag.labels import LabelSet
from polytag.models.model import Model, model_class, model_name
from polytag.relabelling.edit import EDITS, Edit
from polytag.storage.artefact import artefact_folder, read_artefact
from polytag.storage.schema import Anything, Array, Number, Optional, Schema, Switch, Table, Text, check
from polytag.storage.state_json import State

SAVED = Table(
    {
        "model": Text(),
        "options": Anything(),
        "recipe": Table(
            {
                "calibrate": Switch(),
                "min_labels": Optional(Number(0, 2**31 - 1)),
                "closed": Switch(),
                "promise": Optional(Text()),
                "favour_rare": Number(0, 2, whole=False),
            },
            optional=frozenset({"promise", "favour_rare"}),
        ),
        "reading": Anything(),
        "labels": Anything(object),
        "state": Anything(),
        "calibration": Optional(Anything()),
        "decision": Anything(),
        "abstention": Optional(Anything()),
        "training": Anything(),
        "edits": EDITS,
    },
    optional=frozenset({"abstention", "edits"}),
)
"""What a classifier looks like when it is saved; the state of its model has the schema of the model."""
_SIZED: dict[str, Schema] = {
    "calibration": Optional(PLATT),
    "decision": DECISION,
    "abstention": Optional(ABSTENTION),
    "training": Table(
        {
            "documents": Number(0, 2**53),
            "valid_documents": Number(0, 2**53),
            "label_counts": Array(("int64",), ("labels",), low=0),
        },
        optional=frozenset({"valid_documents"}),
    ),
}


class SavedModel(NamedTuple):
    """A trained model and the calibration of its scores."""

    model: Model
    calibration: Platt | None

    @classmethod
    def from_state(cls, state: State) -> SavedModel:
        """From the state of a classifier's artefact."""
        check(SAVED, state, {})
        kind, labels = model_class(state["model"]), LabelSet.from_state(state["labels"])
        check(Table(_SIZED), {name: state.get(name) for name in _SIZED}, {"labels": len(labels)})
        model = kind.from_state(kind.saved_options(state["options"]), labels, state["state"])
        return cls(model, None if state["calibration"] is None else Platt.from_state(state["calibration"]))

    @classmethod
    def load(cls, folder: str | Path) -> SavedModel:
        """From a run or from its model folder."""
        place = artefact_folder(folder)
        state = read_artefact(place)
        with restoring(place):
            return cls.from_state(state)


class TrainedParts(Protocol):
    """The attributes of a trained classifier: what is saved, and what an edit changes."""

    model: Model
    labels: LabelSet
    calibration: Platt | None
    decision: Decision
    abstention: Abstention | None
    training: dict[str, Any]
    edits: list[Edit]
    recipe: Recipe


def saved_state(classifier: TrainedParts) -> State:
    """What ``SAVED`` describes."""
    calibration, abstention, recipe = classifier.calibration, classifier.abstention, classifier.recipe
    told = {name: getattr(recipe, name) for name in ("calibrate", "min_labels", "closed", "promise")}
    return {
        "model": model_name(classifier.model),
        "options": classifier.model.options(),
        "recipe": told | ({"favour_rare": recipe.favour_rare} if recipe.favour_rare else {}),
        "reading": recipe.data.get("reading", {}),
        "labels": classifier.labels.state(),
        "state": classifier.model.state(),
        "calibration": None if calibration is None else calibration.state(),
        "decision": classifier.decision.state(),
        "abstention": None if abstention is None else abstention.state(),
        "training": classifier.training,
        **({"edits": [edit.record() for edit in classifier.edits]} if classifier.edits else {}),
    }


@contextmanager
def restoring(place: Path) -> Iterator[None]:
    """Convert errors from an invalid state to an error about the artefact."""
    try:
        yield
    except (ConfigError, DataError) as error:
        raise ArtefactError(f"{place}: {error}") from None
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise ArtefactError(f"{place}: not a classifier ({error}); train it again") from None
