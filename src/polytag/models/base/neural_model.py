"""The base class of neural models: tokenisation, training, scoring in batches, and files."""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.config.groups.encoder_settings import EncoderSettings, WordSettings
from polytag.config.groups.loss_settings import LABEL_LOSSES, LossSettings
from polytag.config.groups.text_settings import TextSettings
from polytag.config.groups.training_settings import ComputeSettings, TrainingSettings
from polytag.decision.decision import reached
from polytag.errors import ConfigError, NotFittedError
from polytag.labels import LabelSet
from polytag.linear.class_weights import capped_imbalance_weights
from polytag.models.model import HeldOut, Model, State, group
from polytag.nn.decoding.label_sequences import as_sets
from polytag.nn.encoding.document_vectors import encoding_batches
from polytag.nn.encoding.encoders import Encoder, build_encoder
from polytag.nn.encoding.inference import for_inference
from polytag.nn.encoding.pretrained import describe_encoder, load_pretrained
from polytag.nn.encoding.restored_network import ENCODER, WEIGHTS, restored_network
from polytag.nn.encoding.token_places import Located, located
from polytag.nn.export.onnx_export import export_network
from polytag.nn.export.onnx_network import BATCH, OnnxNetwork, fresh_export, open_export
from polytag.nn.labels.label_start import start_with_log_odds, start_with_words
from polytag.nn.training import losses
from polytag.nn.training.batch import Batch, Documents, Examples, Layout, TokenArrays, tokenise, windows_apart
from polytag.nn.training.checkpoint import to_arrays
from polytag.nn.training.devices import autocast, pick_device, pick_precision
from polytag.nn.training.loop import Goal, seeded, steps_in
from polytag.nn.training.loop import train as train_steps
from polytag.nn.training.optimiser import Setup
from polytag.nn.training.processes import Processes
from polytag.nn.training.warm_start import rearranged, take_over
from polytag.relabelling.origins import Origins
from polytag.scores import Scores
from polytag.storage.schema import Table
from polytag.text.preprocess import prepare
from polytag.text.tokens import TOKENS, SubwordTokens, WordTokens, tokens_from_state

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

CANDIDATES = 100  # labels per document in held-out scores if there are very many
_FULL = 50_000_000  # held-out documents x labels up to which all scores are kept
_OUTPUTS = 100  # with more outputs, AdamW's epsilon is scaled down
_CELLS = 16_000_000  # documents x labels that are scored at once


class Output(NamedTuple):
    """The inference output for a batch: probabilities (batch, labels) and, if the model decodes label sets, the sets.

    ``sets`` are label indices (batch, most), padded with -1, and ``log_probability`` (batch,) is their log-probability.
    """

    probabilities: Tensor
    sets: Tensor | None = None
    log_probability: Tensor | None = None


@dataclass
class NeuralModel(Model):
    """A network over an encoder; the weights with the best metric on validation documents are kept."""

    exportable: ClassVar[bool] = True
    continuable: ClassVar[bool] = True
    divided: ClassVar[str] = "processes"
    judged: ClassVar[tuple[str, ...]] = ("weights", "unknown", "soft")
    label_multiple: ClassVar[int] = 0
    """The maximum number of labels in a batch is rounded up to a multiple of this; 0 = the loss does not use it."""

    texts: TextSettings = group(TextSettings)
    encoding: EncoderSettings = group(EncoderSettings, without=("pooling",))
    words: WordSettings = group(WordSettings)
    training: TrainingSettings = group(TrainingSettings)
    objective: LossSettings = group(LossSettings, choices={"loss": LABEL_LOSSES})
    compute: ComputeSettings = group(ComputeSettings)
    tokens: WordTokens | SubwordTokens | None = field(init=False, repr=False, default=None)
    description: dict[str, Any] = field(init=False, repr=False, default_factory=dict)
    network: nn.Module | None = field(init=False, repr=False, default=None)
    weights: Tensor | None = field(init=False, repr=False, default=None)
    exported: Path | OnnxNetwork | None = field(init=False, repr=False, default=None)
    start: NeuralModel | None = field(init=False, repr=False, default=None)

    # -- what subclasses define ------------------------------------------------------------------------------------

    @abstractmethod
    def _network(self, n_labels: int) -> nn.Module:
        """Build the network; ``encoder`` is its encoder, if any, and ``forward(ids, mask)`` returns logits (batch, labels)."""

    def _first_weights(self, network: nn.Module) -> None:
        """Initialise weights that depend on the labels or on the pretrained encoder."""

    def _start_labels(self, table: nn.Parameter) -> None:
        """Initialise label embeddings as the mean of the embeddings of their words, if the sizes agree."""
        encoder = getattr(self.network, "encoder", None)
        assert self.tokens is not None and isinstance(encoder, Encoder)
        start_with_words(table, self.labels, self.tokens, encoder)

    def _taught(self, train: Corpus) -> Corpus:
        """The training documents with the targets of the network; a subclass may change the targets."""
        return train

    def _start_bias(self, network: nn.Module, counts: NDArray[Any], documents: int) -> None:
        """Initialise the output bias with the log-odds of the label frequencies."""
        start_with_log_odds(network, counts, documents)

    def _loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The training loss: a mean over the documents of the batch."""
        assert batch.targets is not None
        return self._label_loss(self._logits(network, batch), batch.targets, batch.judged)

    def _label_loss(self, logits: Tensor, targets: Tensor, judged: Tensor | None = None) -> Tensor:
        """The configured loss of logits and targets, both (batch, labels); ``judged`` has the weights of the pairs."""
        logits, targets = logits.float(), losses.smooth(targets, self.objective.smoothing)
        if self.objective.loss == "focal":
            return losses.focal(logits, targets, self.objective.focus, self.weights, judged)
        if self.objective.loss == "asymmetric":
            return losses.asymmetric(logits, targets, gamma_negative=self.objective.focus, judged=judged)
        return losses.binary_cross_entropy(logits, targets, self.weights, judged)

    def _infer(self, network: nn.Module, batch: Batch) -> Output:
        """Inference for a batch."""
        return Output(torch.sigmoid(self._logits(network, batch).float()))

    def _decoded_width(self) -> int:
        """The maximum size of a decoded set; 0 if the model does not decode sets."""
        return 0

    def _logits(self, network: Callable[[Tensor, Tensor], Any], batch: Batch) -> Tensor:
        """The logits (batch, labels); those of several windows are pooled."""
        if batch.ids.ndim == 2:
            return _as_tensor(network(batch.ids, batch.mask))
        used = batch.mask.any(dim=2)  # (batch, windows)
        logits = _as_tensor(network(*windows_apart(batch.ids, batch.mask))).view(*used.shape, -1)
        if self.encoding.window_pooling == "max":
            return logits.masked_fill(~used[..., None], float("-inf")).amax(dim=1)
        return (logits * used[..., None]).sum(dim=1) / used.sum(dim=1, keepdim=True)

    def _encoder(self) -> Encoder:
        """A new encoder by the description of this model, for ``_network``."""
        return build_encoder(self.description)

    # -- training --------------------------------------------------------------------------------------------------

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Train; without validation documents, a tenth of the training documents is held out."""
        self.labels = train.labels
        parts = train.hold_out(valid, self.seed)
        held = self._fit_network(parts.train, parts.valid, run)
        return None if held is None else held._replace(rows=parts.rows)

    def _fit_network(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Train the network; return its scores on the validation documents."""
        texts = prepare(train.texts, self.texts.preprocess, self.texts.max_words)
        taught = self._taught(train)
        self._begin(texts, taught)
        assert self.tokens is not None and self.network is not None
        examples = Examples(
            tokenise(self.tokens, texts, run), taught.truth, self._layout(), self.label_multiple, taught.weights, taught.unknown,
            taught.soft,
        )  # fmt: skip
        held = (
            None
            if valid is None
            else tokenise(self.tokens, prepare(valid.texts, self.texts.preprocess, self.texts.max_words), run)
        )
        goal = None
        if valid is not None and held is not None:
            least = min(train.fewest_labels, valid.fewest_labels)
            goal = Goal(self._watched(), lambda: self._value(self._held_out(held, valid), least), len(valid))
        setup = self.setup()
        stage = type(self).__name__.lower()
        steps = train_steps(self.network, examples, self._loss, setup, run, goal, name=stage)
        for _ in run.track(steps, "training", steps_in(setup.training, len(train)), lambda step: step.number):
            pass
        return None if valid is None or held is None else self._held_out(held, valid)

    def _begin(self, texts: Sequence[str], train: Corpus) -> None:
        """Load or learn the vocabulary, and build and initialise the network."""
        self.exported = None
        self.tokens, self.description = self._described(texts)
        counts = np.bincount(train.truth.indices, minlength=len(self.labels))
        with seeded(self.seed):
            self.network = self._network(len(self.labels))
        if self.start is not None:
            self._inherit(self.start)  # before the initialisation, which may depend on the encoder's weights
        elif isinstance(encoder := getattr(self.network, "encoder", None), Encoder):
            load_pretrained(encoder, self.encoding.encoder, self.tokens, self.words.vectors)
        self._first_weights(self.network)
        if self.objective.prior_bias:
            self._start_bias(self.network, counts, len(train))
        if self.start is not None:
            self._inherit(self.start)  # and after it, so that only the rows of new labels are initialised
        self.weights = None
        if self.objective.positive_weight:
            weights = capped_imbalance_weights(counts, len(train), self.objective.positive_weight)
            self.weights = torch.from_numpy(weights).to(Processes(self.compute.device).device)

    def start_from(self, other: Self) -> None:
        """Initialise ``fit`` with the tokeniser, the encoder and the weights of a trained model."""
        other.require_fitted()
        here, there = self.options(), other.options()
        for name in ("encoder", "embedding", "hidden", "layers"):
            if here[name] != there[name]:
                raise ConfigError(f"{name!r} is {here[name]!r}, but {there[name]!r} in the earlier run; leave it as it was")
        self.start = other

    def transferred(self, labels: LabelSet, origins: Origins) -> Self:
        """A copy whose labels have the rows of the labels that they come from, or the mean of several."""
        self.require_fitted()
        assert self.network is not None
        found = copy.copy(self)
        with seeded(self.seed):
            found.network = rearranged(found, self.network.state_dict(), labels, origins)
        found.exported = None
        return found

    def _described(self, texts: Sequence[str]) -> tuple[WordTokens | SubwordTokens, dict[str, Any]]:
        """The tokeniser and the encoder's description; those of the earlier model, if training continues one."""
        if self.start is None:
            return describe_encoder(self.encoding.encoder, texts, self.words, self.training.encoder_dropout)
        assert self.start.tokens is not None
        description = dict(self.start.description)
        if "dropout" in description and self.training.encoder_dropout is not None:
            description["dropout"] = self.training.encoder_dropout
        return self.start.tokens, description

    def _inherit(self, earlier: NeuralModel) -> None:
        """Copy the weights of an earlier network, except for the rows of new labels."""
        assert self.network is not None and earlier.network is not None
        take_over(self.network, earlier.network.state_dict(), self.labels, earlier.labels)

    def setup(self) -> Setup:
        """The settings of the training loop.

        Losses are means over the outputs, so gradients shrink with the number of outputs. AdamW's epsilon is scaled accordingly:
        with thousands of outputs, its default would dominate the gradients and shorten all steps.
        """
        epsilon = self.training.epsilon * min(1.0, _OUTPUTS / max(1, len(self.labels)))
        return Setup(dataclasses.replace(self.training, epsilon=epsilon), self.compute, self.seed)

    def _held_out(self, arrays: TokenArrays, valid: Corpus) -> HeldOut:
        many = len(valid) * len(self.labels) > _FULL
        return HeldOut(valid.truth, self._score(arrays, CANDIDATES if many else None))

    def _watched(self) -> str:
        """The name of the metric that ``_value`` computes."""
        return self.optimise

    def _value(self, held: HeldOut, least: int) -> float:
        """The metric on validation documents, with one global threshold or the decoded sets."""
        return reached(held.scores, held.truth, self.labels, self.optimise, least)

    # -- scoring ---------------------------------------------------------------------------------------------------

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Probabilities of every label, or of the k best ones."""
        self.require_fitted()
        if self.network is None or self.tokens is None:
            raise NotFittedError(f"this {type(self).__name__} was not trained yet; call fit, or load a trained one")
        self.network.to(pick_device(self.compute.device))
        arrays = tokenise(self.tokens, prepare(texts, self.texts.preprocess, self.texts.max_words))
        return self._score(arrays, self.clipped(k))

    def _score(self, arrays: TokenArrays, k: int | None) -> Scores:
        """Score documents in batches of similar length; their order is restored."""
        assert self.network is not None
        device = next(self.network.parameters()).device
        data = Documents(arrays, self._layout(), device, multiple=self.compute.pad_multiple)
        n_labels = len(self.labels)
        width = n_labels if k is None else min(k, n_labels)
        values = np.zeros((len(data), width), dtype=np.float32)
        labels = None if k is None else np.zeros((len(data), width), dtype=np.int32)
        sets = np.full((len(data), self._decoded_width()), -1, dtype=np.int32)
        logs = np.zeros(len(data), dtype=np.float32)
        network = self._inference_module(device)
        with torch.inference_mode(), autocast(device, pick_precision(self.compute.precision, device, self.network)):
            places = BATCH if isinstance(network, OnnxNetwork) else 0
            for rows, batch in encoding_batches(data, self._rows_at_once(), places):
                found, decided, log_probability = self._infer(network, batch)
                if labels is not None:
                    found, best = found.topk(width, dim=1)
                    labels[rows] = best.cpu().numpy()
                values[rows] = found.cpu().numpy()
                if decided is not None and log_probability is not None:
                    sets[rows], logs[rows] = decided.cpu().numpy(), log_probability.cpu().numpy()
        names = self.labels.names
        if labels is None:
            scores = Scores.full(values, names, "probability")
        else:
            scores = Scores.candidates(labels, values, names, "probability")
        if not sets.shape[1]:
            return scores
        return dataclasses.replace(scores, decoded=as_sets(sets, n_labels), log_probability=logs)

    def _located(self, text: str) -> tuple[nn.Module, Located]:
        """The network for inference, and the input of one text with the word at each position."""
        self.require_fitted()
        assert self.tokens is not None and self.network is not None
        device = pick_device(self.compute.device)
        return self.network.to(device).eval(), located(self.tokens, self._layout(), device, text, self.texts)

    def _rows_at_once(self) -> int:
        """The maximum number of documents in a batch at inference."""
        return max(1, _CELLS // max(1, len(self.labels)))

    def _inference_module(self, device: torch.device) -> nn.Module:
        """The module that computes the logits: the network, or its ONNX export for float32 on a CPU."""
        assert self.network is not None
        if self.exported is None or device.type != "cpu" or self.compute.precision not in ("auto", "fp32"):
            return for_inference(self.network.eval())
        if isinstance(self.exported, Path):
            self.exported = open_export(self.exported, self._outputs())
        return self.exported

    def _outputs(self) -> int:
        """The number of columns that an export has."""
        return len(self.labels)

    def _layout(self) -> Layout:
        """The input layout of documents for this network."""
        assert self.tokens is not None
        limit = getattr(getattr(self.network, "encoder", None), "positions", 0)
        length = min(self.encoding.max_length, limit) if limit else self.encoding.max_length
        around = (self.tokens.prefix, self.tokens.suffix, self.tokens.pad)
        return Layout(length, self.encoding.long, self.encoding.overlap, self.encoding.max_windows, *around)

    def label_vectors(self) -> NDArray[Any] | None:
        """The rows of the output layer, where it has one row per label (BERT+SGM, appendix B)."""
        self.require_fitted()
        assert self.network is not None
        layers = [weight for name, weight in self.network.named_parameters() if name.endswith("output.weight")]
        rows = [weight for weight in layers if len(weight) == len(self.labels)]
        return rows[-1].detach().float().cpu().numpy() if rows else None

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The tokeniser, the encoder's description and the weights."""
        self.require_fitted()
        assert self.tokens is not None and self.network is not None
        weights: dict[str, NDArray[Any]] = to_arrays(self.network.state_dict())
        return {"tokens": self.tokens.state(), "encoder": self.description, "weights": weights}

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Write the network as ONNX next to the artefact that this model was loaded from; return the folder."""
        self.require_fitted()
        return export_network(self._to_export(), artefact, int8=int8)

    def _to_export(self) -> nn.Module:
        """The network to export."""
        assert self.network is not None
        return self.network

    def use_export(self, artefact: Path) -> bool:
        """Score on the CPU with the ONNX export of this artefact, if there is one; return whether there is."""
        self.exported = fresh_export(artefact)
        return self.exported is not None

    def schema(self) -> Table:
        """The tokeniser, the description of the encoder and the weights."""
        return Table({"tokens": TOKENS, "encoder": ENCODER, "weights": WEIGHTS})

    def restore(self, state: State) -> None:
        """Build the network again and load its weights."""
        self.exported = None
        self.tokens = tokens_from_state(state["tokens"])
        self.description = dict(state["encoder"])
        if self.description.get("vocabulary", self.tokens.size) != self.tokens.size:
            raise ValueError("its encoder and its tokeniser have different numbers of words")
        with seeded(self.seed):
            self.network = restored_network(lambda: self._network(len(self.labels)), state["weights"], self.description)
        self.network.eval()


def _as_tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value
