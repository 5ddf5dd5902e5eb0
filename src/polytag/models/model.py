"""The base class of all models; their names are registered in ``polytag.config.registry``."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.groups.common_settings import optimise_param, seed_param
from polytag.config.registry import MODELS, class_of, registered_name
from polytag.config.retired import carried_over, present_names
from polytag.config.settings import assign, built, check_settings, flat, group, param, refuse_idle
from polytag.errors import ConfigError, NotFittedError
from polytag.formats.inputs import checked_count
from polytag.labels import LabelSet, indicator
from polytag.models.base.attribution import Attention, Attribution, leave_words_out, margins_in
from polytag.relabelling.origins import Origins
from polytag.scores import Scores
from polytag.storage.schema import Anything, Schema, check
from polytag.storage.state_json import State
from polytag.text.word_shares import word_spans

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

__all__ = [
    "MODELS",
    "Encoded",
    "Examples",
    "Extension",
    "HeldOut",
    "Model",
    "State",
    "group",
    "model_class",
    "model_name",
    "param",
]


class HeldOut(NamedTuple):
    """Scores of documents by a model that was not trained on them, and their true labels.

    ``rows`` are the indices of these documents in the concatenation of ``train`` and ``valid``, the arguments of ``fit``.
    """

    truth: csr_array
    scores: Scores
    rows: NDArray[np.int64] | None = None


class Extension(NamedTuple):
    """How scores of added labels are decided: their threshold, or one for each; None for what is usual.

    ``log_odds`` says that their margins are log-odds already, so that they need no calibration.
    """

    threshold: float | NDArray[np.float64] | None = None
    log_odds: bool = False


class Examples(NamedTuple):
    """A few texts of labels that are added, and their labels among these (texts, added labels)."""

    texts: Sequence[str]
    truth: csr_array


class Encoded:
    """Texts that a model has encoded: it scores its best labels, then requested labels.

    This base class is for models that cannot score requested labels: it returns the scores of the best labels.
    """

    def __init__(self, model: Model, texts: Sequence[str]) -> None:
        """Store the model and the texts."""
        self.model, self.texts = model, texts
        self.scored: Scores | None = None

    def best(self, k: int | None = None) -> Scores:
        """Scores of every label, or of the k best ones."""
        self.scored = self.model.score(self.texts, k)
        return self.scored

    def given(self, labels: csr_array) -> Scores:
        """Scores of exactly these labels (documents × labels), without those that the model did not score."""
        scored = self.scored or self.best()
        return scored if scored.is_full else scored.only(labels)


@dataclass
class Model(ABC):
    """Scores labels of texts. Its dataclass fields are settings and groups of settings.

    ``Bert.build({"epochs": 3})`` takes settings by name, whatever their group. The class variables declare the capabilities of a
    model.
    """

    rule: ClassVar[str] = "auto"
    """The default decision rule; ``decoded`` for a model that predicts label sets itself."""
    exportable: ClassVar[bool] = False
    """Whether its network can be exported to ONNX."""
    continuable: ClassVar[bool] = False
    """Whether training can start from a trained model of the same class."""
    steady: ClassVar[bool] = False
    """Whether scores after learning on are comparable with those before, so that thresholds may be means of both."""
    extendable: ClassVar[bool] = False
    """Whether labels can be added after training, with suitable settings."""
    composite: ClassVar[bool] = False
    """Whether it consists of models that have settings of their own."""
    judged: ClassVar[tuple[str, ...]] = ()
    """What training respects of a corpus: the weights of documents, the pairs that nobody judged."""
    divided: ClassVar[str] = ""
    """How a cluster trains it: ``pieces`` that do not depend on each other, ``processes`` of one network; empty = not at all."""
    learns_from_valid: ClassVar[bool] = False
    """Whether ``fit`` also trains on the validation documents."""

    seed: int = seed_param()
    optimise: str = optimise_param()
    labels: LabelSet = field(init=False, repr=False, default=LabelSet(()))
    held_labels: int = field(init=False, repr=False, default=0)
    """Minimum number of labels per document that the decision wants in held-out scores, if there are as many."""

    # -- settings --------------------------------------------------------------------------------------------------

    @classmethod
    def build(cls, settings: Mapping[str, Any]) -> Self:
        """The untrained model with these settings, given by name."""
        return built(cls, settings)

    @classmethod
    def check_options(cls, options: Mapping[str, Any], *, idle: bool = True) -> dict[str, Any]:
        """The options cast to their declared types; unknown names, invalid values and options without effect are errors.

        With ``idle`` False, options without effect are accepted; artefacts contain them.
        """
        checked = check_settings(cls, present_names(registered_name(cls), options))
        if idle:
            refuse_idle(cls, checked)
        return checked

    @classmethod
    def saved_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """The checked options of an artefact, which may be from an earlier version."""
        return cls.check_options(carried_over(registered_name(cls), options), idle=False)

    def options(self) -> dict[str, Any]:
        """The settings by name."""
        return flat(self)

    def change(self, settings: Mapping[str, Any]) -> None:
        """Change settings by name; after training, only settings of scoring, such as ``beam``, have an effect."""
        assign(self, self.check_options(settings, idle=False))

    # -- learning --------------------------------------------------------------------------------------------------

    @abstractmethod
    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Train on documents with one label set; return the scores of held-out documents, if there are any."""

    def start_from(self, other: Self) -> None:
        """Initialise ``fit`` from a trained model of the same class; the labels of ``fit`` must start with its labels."""
        raise ConfigError(
            f"the model {model_name(self)!r} cannot continue an earlier run; train it again on all documents, old and new"
        )

    def starting_point(self) -> Model:
        """The model for ``start_from``: this one, or one with the edited labels."""
        return self

    def transferred(self, labels: LabelSet, origins: Origins) -> Self:
        """A copy to start from, whose labels come from the labels of this model; it is not meant to score."""
        raise ConfigError(
            f"the model {model_name(self)!r} cannot continue after merges, drops or splits; continue the run before them, or "
            "train it again"
        )

    def learn(self, corpus: Corpus) -> None:
        """Learn from a few more documents, in place; their label set starts with the known labels."""
        raise ConfigError(f"the model {model_name(self)!r} cannot learn from a few documents; use train --from")

    def extend(self, labels: LabelSet, examples: Examples | None = None) -> Extension:
        """Add labels without training, from their texts and a few examples; return how to decide about their scores."""
        raise ConfigError(
            f"the model {model_name(self)!r} cannot score labels that it was not trained on; train it again with them, or train "
            "'embed' with --keep-features, 'xbert', or 'laco' with shared=true"
        )

    @property
    def core(self) -> Model:
        """The model that training made; of a model whose labels were edited, the one inside."""
        return self

    def renamed(self, labels: LabelSet) -> Self:
        """The same model with other names for its labels, in their order; its scores are the same to the last bit."""
        found = copy.copy(self)
        found.labels = labels
        return found

    # -- scoring ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Score every label, or the k best ones, of every text."""

    def clipped(self, k: int | None) -> int | None:
        """The number of labels to score, at most all of them; None means all."""
        return None if k is None else checked_count(k, len(self.labels))

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode texts once, to score the best labels first and then the candidates of other models."""
        return Encoded(self, texts)

    def scored_labels(self) -> int:
        """The number of labels per document that are scored; a model for extreme label sets scores candidates only."""
        return len(self.labels)

    def kept_per_text(self) -> int:
        """The number of values that an encoded text keeps in memory."""
        return self.scored_labels()

    def label_vectors(self) -> NDArray[Any] | csr_array | None:
        """What the model learned about each label, one row per label; near rows are similar labels. None if it has none."""
        return None

    def part_models(self) -> list[Model]:
        """Its member models; empty unless it is composite."""
        return []

    def described_parts(self) -> list[dict[str, Any]]:
        """Descriptions of its member models, with their weights; empty unless it is composite."""
        return []

    # -- explaining ------------------------------------------------------------------------------------------------

    def attribute(self, text: str, labels: NDArray[np.int64], *, exact: bool = False) -> Attribution:
        """What each word of a text contributes to the scores of these labels, given by their indices.

        By default the change of the log-odds if the word is left out: with ``exact`` every word, otherwise phrases first.
        Models whose score is a sum override it.
        """
        spans = word_spans(text)
        return Attribution(spans, leave_words_out(text, spans, lambda texts: self.margins_of(texts, labels), exact=exact))

    def margins_of(self, texts: Sequence[str], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Margins or log-odds (texts, labels) of these labels, candidates or not."""
        asked = indicator([np.sort(labels)] * len(texts), len(self.labels))
        return margins_in(self.encode(texts).given(asked), labels)

    def attention(self, text: str) -> Attention | None:
        """The attention of the words of a text, per label; None if the model has none."""
        return None

    # -- files -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def state(self) -> State:
        """All learned parameters."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Restore what ``state`` returned; arrays may be read-only and memory-mapped."""

    def schema(self) -> Schema:
        """What ``state`` returns, for a model with these settings; checked before ``restore`` uses any of it.

        The size ``labels`` is the number of labels. The base accepts any state.
        """
        return Anything()

    @classmethod
    def from_state(cls, options: Mapping[str, Any], labels: LabelSet, state: State) -> Self:
        """Build the trained model again; ValueError if the state does not fit the schema."""
        model = cls.build(options)
        model.labels = labels
        check(model.schema(), state, {"labels": len(labels)})
        model.restore(state)
        return model

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Write the network as ONNX into the artefact that this model was loaded from; return the folder."""
        raise ConfigError(
            f"the model {model_name(self)!r} has no network to export; only trained networks, as of bert or cnn, can be"
        )

    def use_export(self, artefact: Path) -> bool:
        """Score with the ONNX export of this artefact, if there is one and the model can use it; return whether it does."""
        return False

    def require_fitted(self) -> None:
        """Raise unless the model was trained or restored."""
        if not len(self.labels):
            raise NotFittedError(f"this {type(self).__name__} was not trained yet; call fit, or load a trained one")


def model_class(name: str) -> type[Model]:
    """The class of a model by its name, imported on demand."""
    found = class_of(name)
    assert issubclass(found, Model)
    return found


def model_name(model: Model) -> str:
    """The registered name of a model's class."""
    name = registered_name(type(model))
    if name is None:
        raise ConfigError(
            f"{type(model).__name__} is not in the table of models (polytag/config/registry.py) and cannot be saved"
        )
    return name
