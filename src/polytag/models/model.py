"""The base of every model, and the table of their names."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

from scipy.sparse import csr_array

from polytag.errors import ConfigError, NotFittedError
from polytag.labels import LabelSet
from polytag.scores import Scores

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

MODELS = {
    "bert": "polytag.models.bert:Bert",
    "bert-sgm": "polytag.models.bert_sgm:BertSgm",
    "br": "polytag.models.binary_relevance:BinaryRelevance",
    "cc": "polytag.models.classifier_chain:ClassifierChain",
    "cnn": "polytag.models.cnn:Cnn",
    "cnn-rnn": "polytag.models.cnn_rnn:CnnRnn",
    "embed": "polytag.models.embed:Embed",
    "laco": "polytag.models.laco:Laco",
    "leam": "polytag.models.leam:Leam",
    "lp": "polytag.models.label_powerset:LabelPowerset",
    "lsan": "polytag.models.lsan:Lsan",
    "mixed": "polytag.models.mixed:Mixed",
    "seq2seq": "polytag.models.seq2seq:Seq2Seq",
    "seqtag": "polytag.models.seqtag:Seqtag",
    "sgm": "polytag.models.sgm:Sgm",
    "xbert": "polytag.models.xbert:XBert",
    "xlinear": "polytag.models.xlinear:XLinear",
    "xttention": "polytag.models.xttention:Xttention",
}

METRIC_NAMES = ("micro_f1", "macro_f1", "subset_accuracy")

State: TypeAlias = dict[str, Any]
"""What a model learned: numpy arrays, JSON values, and further states, by name."""


class HeldOut(NamedTuple):
    """Scores for documents that the model was not trained on when it scored them, and the truth about them."""

    truth: csr_array
    scores: Scores


def param(
    default: Any, help: str, *, choices: Sequence[Any] = (), minimum: float | None = None, maximum: float | None = None
) -> Any:
    """Declare a hyper-parameter: its default, what it is for, and what it may be."""
    metadata = {"help": help, "choices": tuple(choices), "minimum": minimum, "maximum": maximum}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


class Read:
    """Some texts as a model has read them: its best labels, then scores of labels that are asked for.

    This one is for a model that cannot be asked: it gives what it said when it named its best labels.
    """

    def __init__(self, model: Model, texts: Sequence[str]) -> None:
        """Take the model and the texts."""
        self.model, self.texts = model, texts
        self.said: Scores | None = None

    def best(self, k: int | None = None) -> Scores:
        """Scores of every label, or of the k best ones."""
        self.said = self.model.score(self.texts, k)
        return self.said

    def given(self, labels: csr_array) -> Scores:
        """Scores of just these labels (documents × labels), without those about which the model says nothing."""
        said = self.said or self.best()
        return said if said.is_full else said.only(labels)


@dataclass
class Model(ABC):
    """A way to score labels. Its dataclass fields are its hyper-parameters, and they are all that a constructor sets."""

    rule: ClassVar[str] = "auto"
    """How its scores become label sets unless somebody says otherwise; ``decoded`` for a model that decides by itself."""

    seed: int = param(0, "same seed, same machine: same scores", minimum=0)
    optimise: str = param("micro_f1", "what the choices on held-out documents are made for", choices=METRIC_NAMES)
    labels: LabelSet = field(init=False, repr=False, default=LabelSet(()))

    @abstractmethod
    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Learn from documents that share one label set; return scores on documents that were held out, if there are any."""

    @abstractmethod
    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Score every label, or the k best ones, of every text."""

    def read(self, texts: Sequence[str]) -> Read:
        """Read texts once, to ask for scores of the best labels, and then of others that somebody else found."""
        return Read(self, texts)

    @abstractmethod
    def state(self) -> State:
        """Everything that was learned."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Take back what ``state`` returned; arrays may be read-only and lazy."""

    @classmethod
    def from_state(cls, options: Mapping[str, Any], labels: LabelSet, state: State) -> Self:
        """Build the trained model again."""
        model = cls(**options)
        model.labels = labels
        model.restore(state)
        return model

    def start_from(self, other: Self) -> None:
        """Let ``fit`` begin with what a trained model of the same class knows; the labels it is given begin with that one's."""
        raise ConfigError(
            f"the model {model_name(self)!r} cannot go on from an earlier run: linear models are simply trained again, on all "
            "documents, old and new together"
        )

    def extend(self, labels: LabelSet) -> float | None:
        """Score further labels from now on, without training; the threshold that suits their scores, if one is known."""
        raise ConfigError(
            f"the model {model_name(self)!r} cannot score labels that it was not trained on; train it again with them, or train "
            "'laco' with shared=true"
        )

    def scored_labels(self) -> int:
        """How many labels of a document get a score; a model for very many labels scores candidates only."""
        return len(self.labels)

    def kept_per_text(self) -> int:
        """How many numbers are kept of a text that was read, until all questions about it are answered."""
        return self.scored_labels()

    def use_export(self, artefact: Path) -> bool:
        """Score with what was exported from this artefact, if there is such an export and the model can; whether it does."""
        return False

    def options(self) -> dict[str, Any]:
        """The hyper-parameters by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}

    def require_fitted(self) -> None:
        """Raise unless the model was trained or restored."""
        if not len(self.labels):
            raise NotFittedError(f"this {type(self).__name__} was not trained yet; call fit, or load a trained one")


def suggestion(word: str, known: Sequence[str]) -> str:
    """A hint for a misspelt word: the closest known one, or all of them."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def model_class(name: str) -> type[Model]:
    """The class behind a model's name, imported on demand."""
    if name not in MODELS:
        raise ConfigError(f"there is no model {name!r}; {suggestion(name, list(MODELS))}")
    found = imported(MODELS[name], f"the model {name!r}")
    assert isinstance(found, type) and issubclass(found, Model)
    return found


def imported(path: str, who: str) -> Any:
    """What ``module:name`` names, imported on demand; where a package of the extra nn is missing, who needs it."""
    module, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "polytag":
            raise
        raise ConfigError(f"{who} needs the package {error.name!r}; install polytag[nn]") from None


def model_name(model: Model) -> str:
    """The name under which a model's class is registered."""
    path = f"{type(model).__module__}:{type(model).__qualname__}"
    for name, target in MODELS.items():
        if target == path:
            return name
    raise ConfigError(f"{type(model).__name__} is not in the table of models (polytag/models/model.py) and cannot be saved")
