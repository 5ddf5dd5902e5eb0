"""What the neural models share: reading texts, training by the loop, scoring in batches, and files."""

from __future__ import annotations

import dataclasses
import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.decision import reached
from polytag.errors import ConfigError, NotFittedError
from polytag.labels import LabelSet
from polytag.models.model import HeldOut, Model, State, param
from polytag.nn import losses
from polytag.nn.batch import LONG, Batch, Documents, Layout, TokenArrays, tokenise, windows_apart
from polytag.nn.checkpoint import load_arrays, to_arrays
from polytag.nn.continuing import take_over
from polytag.nn.devices import DEVICES, PRECISIONS, autocast, pick_device, pick_precision
from polytag.nn.embedding import read_documents
from polytag.nn.encoders import Encoder, build_encoder
from polytag.nn.export import OnnxNetwork, export_network, fresh_export, open_export
from polytag.nn.loop import Examples, Goal, seeded, steps_in
from polytag.nn.loop import train as train_steps
from polytag.nn.optimiser import SCHEDULES, Settings
from polytag.nn.pretrained import WordSizes, describe_encoder, load_pretrained
from polytag.nn.processes import Processes
from polytag.nn.reading import for_reading
from polytag.nn.sequences import as_sets
from polytag.scores import Scores
from polytag.text.prepare import PREPARATIONS, prepare
from polytag.text.tokens import SubwordTokens, WordTokens, tokens_from_state

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

CANDIDATES = 100  # labels per document that held-out scores keep where there are very many
_FULL = 50_000_000  # held-out documents x labels up to which all scores are kept
_OUTPUTS = 100  # up to which epsilon is what it is set to
_CELLS = 16_000_000  # documents x labels that are scored at once


class Reading(NamedTuple):
    """What a network makes of some documents: probabilities (batch, labels) and, from a model that decides by itself, sets.

    ``sets`` are label numbers (batch, most), -1 to fill, and ``log_probability`` (batch,) is theirs.
    """

    probabilities: Tensor
    sets: Tensor | None = None
    log_probability: Tensor | None = None


@dataclass
class NeuralModel(Model):
    """A network over an encoder, trained step by step; the weights that are best on validation documents are kept."""

    label_multiple: ClassVar[int] = 0
    """Counts of labels in batches are rounded up to such a multiple; 0: the loss does not ask for them."""
    encoder: str = param("minilm", "minilm (packaged), bilstm, words, or a Hugging Face id or folder")
    max_length: int = param(320, "most tokens read at once", minimum=4)
    long: str = param("head", "what is read of longer texts", choices=LONG)
    overlap: int = param(32, "tokens that neighbouring windows share", minimum=0)
    max_windows: int = param(8, "most windows of one text", minimum=1)
    window_pooling: str = param("max", "how the windows' outputs become the document's", choices=("max", "mean"))
    preprocess: str = param(
        "none", "none, clean (lower case, no punctuation) or numbers (clean, and all numbers alike)", choices=PREPARATIONS
    )
    max_words: int = param(0, "words of a text that are read; 0 for all", minimum=0)
    vocabulary: int = param(30_000, "most frequent words kept, for an encoder over words; 0 for all", minimum=0)
    embedding: int = param(256, "size of a word's embedding", minimum=1)
    hidden: int = param(256, "size of one direction of the BiLSTM", minimum=1)
    layers: int = param(2, "layers of the BiLSTM", minimum=1, maximum=8)
    vectors: str = param("", "file with pretrained word vectors (word2vec or GloVe text); empty for none")
    epochs: int = param(5, "times that every document is seen", minimum=1)
    batch_size: int = param(32, "documents of one batch", minimum=1)
    accumulate: int = param(1, "batches of one step", minimum=1)
    encoder_rate: float = param(1e-4, "learning rate of the encoder's top layer", minimum=0)
    head_rate: float = param(1e-3, "learning rate of everything else", minimum=0)
    layer_decay: float = param(1.0, "factor on the rate from each layer of the encoder to the one below", minimum=0.01, maximum=1)
    frozen_layers: int = param(0, "lowest layers (and embeddings) that are not trained; -1 for the whole encoder", minimum=-1)
    warmup: float = param(0.1, "steps during which the rates rise; below 1, as a share of all", minimum=0)
    schedule: str = param("linear", "how the rates fall after that", choices=SCHEDULES)
    full_epochs: int = param(2, "epochs before the schedule halving halves the rates after every one", minimum=1)
    weight_decay: float = param(0.01, "weight decay of AdamW", minimum=0)
    beta1: float = param(0.9, "decay of AdamW's first moment", minimum=0, maximum=1)
    beta2: float = param(0.999, "decay of AdamW's second moment", minimum=0, maximum=1)
    epsilon: float = param(1e-8, "smallest denominator of AdamW, for 100 outputs; less for more", minimum=0)
    clip: float = param(1.0, "largest norm of the gradients; 0 for any", minimum=0)
    average: float = param(0.0, "decay of a moving average of the weights, kept in their place; 0: none", minimum=0, maximum=1)
    precision: str = param("auto", "of matrix products; auto: bf16 on a GPU that has it", choices=PRECISIONS)
    patience: int = param(0, "stop after so many evaluations without a better one; 0 never", minimum=0)
    evaluate_every: int = param(0, "steps between evaluations; 0: after every epoch", minimum=0)
    max_steps: int = param(0, "most steps of the training; 0: as the epochs say", minimum=0)
    dropout: float = param(0.1, "dropout before the output", minimum=0, maximum=0.95)
    encoder_dropout: float | None = param(None, "dropout inside the encoder; none: its own setting", minimum=0, maximum=0.95)
    loss: str = param("bce", "bce, focal, or asymmetric (Ridnik et al.)", choices=losses.LOSSES)
    focus: float = param(2.0, "exponent of the focal loss, and of the asymmetric one for negatives", minimum=0)
    positive_weight: float = param(
        0.0, "weight of positives: (negatives / positives) to this power; 0 none", minimum=0, maximum=1
    )
    smoothing: float = param(0.0, "how far targets are pulled towards one half", minimum=0, maximum=0.5)
    prior_bias: bool = param(True, "whether the output's bias starts at the labels' log-odds")
    device: str = param("auto", "where to compute", choices=DEVICES)
    graphs: bool = param(True, "whether training steps are captured as CUDA graphs where that is possible")
    pad_multiple: int = param(1, "batches are padded to a multiple of so many tokens", minimum=1)
    log_every: int = param(50, "steps between losses in the log", minimum=1)
    checkpoint_seconds: float = param(60.0, "seconds between checkpoints", minimum=0)
    tensorboard: bool = param(False, "whether to write curves for TensorBoard too")
    tokens: WordTokens | SubwordTokens | None = field(init=False, repr=False, default=None)
    description: dict[str, Any] = field(init=False, repr=False, default_factory=dict)
    network: nn.Module | None = field(init=False, repr=False, default=None)
    weights: Tensor | None = field(init=False, repr=False, default=None)
    exported: Path | OnnxNetwork | None = field(init=False, repr=False, default=None)
    start: NeuralModel | None = field(init=False, repr=False, default=None)

    # -- what a model says about itself ----------------------------------------------------------------------------

    @abstractmethod
    def _network(self, n_labels: int) -> nn.Module:
        """The network; its encoder, if it has one, is ``encoder``, and ``forward(ids, mask)`` gives logits (batch, labels)."""

    def _outputs(self) -> LabelSet:
        """What the network's outputs are about: the labels, unless a model says otherwise."""
        return self.labels

    def _first_weights(self, network: nn.Module) -> None:
        """Set first weights that depend on the labels or on the pretrained encoder."""

    def _start_labels(self, table: nn.Parameter) -> None:
        """Let the labels' embeddings start as the mean of the embeddings of their words, where the sizes agree."""
        encoder = getattr(self.network, "encoder", None)
        assert self.tokens is not None and isinstance(encoder, Encoder)
        words = encoder.token_table().weight.detach()
        if words.shape[1] != table.shape[1]:
            return
        described = self.labels.descriptions
        ids, offsets = self.tokens.encode([f"{name} {described.get(name, '')}" for name in self.labels.names])
        for label, (start, stop) in enumerate(itertools.pairwise(offsets.tolist())):
            if stop > start:
                with torch.no_grad():
                    table[label] = words[torch.from_numpy(ids[start:stop]).long()].mean(dim=0)

    def _taught(self, train: Corpus) -> Corpus:
        """The training documents with the labels that the network is taught; what depends on those can be prepared here."""
        return train

    def _start_bias(self, network: nn.Module, counts: NDArray[Any], documents: int) -> None:
        """Let the output's bias start at what is known about the labels before anything is read."""
        if isinstance(bias := _output_bias(network), Tensor):
            with torch.no_grad():
                bias.copy_(torch.from_numpy(losses.log_odds(counts, documents)))

    def _loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """What training makes small: a mean over the documents of the batch."""
        assert batch.targets is not None
        return self._label_loss(self._logits(network, batch), batch.targets)

    def _label_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The chosen loss of logits for zeros and ones, both (batch, labels)."""
        logits, targets = logits.float(), losses.smooth(targets, self.smoothing)
        if self.loss == "focal":
            return losses.focal(logits, targets, self.focus, self.weights)
        if self.loss == "asymmetric":
            return losses.asymmetric(logits, targets, gamma_negative=self.focus)
        return losses.binary_cross_entropy(logits, targets, self.weights)

    def _read(self, network: nn.Module, batch: Batch) -> Reading:
        """What the network makes of some documents."""
        return Reading(torch.sigmoid(self._logits(network, batch).float()))

    def _decoded_width(self) -> int:
        """The most labels of a set that the model decides by itself; 0 for a model that does not."""
        return 0

    def _logits(self, network: nn.Module, batch: Batch) -> Tensor:
        """The network's output (batch, labels); that of several windows is pooled."""
        if batch.ids.ndim == 2:
            return _as_tensor(network(batch.ids, batch.mask))
        used = batch.mask.any(dim=2)  # (batch, windows)
        logits = _as_tensor(network(*windows_apart(batch.ids, batch.mask))).view(*used.shape, -1)
        if self.window_pooling == "max":
            return logits.masked_fill(~used[..., None], float("-inf")).amax(dim=1)
        return (logits * used[..., None]).sum(dim=1) / used.sum(dim=1, keepdim=True)

    def _encoder(self) -> Encoder:
        """The encoder that was described when training began, for ``_network`` to build on."""
        return build_encoder(self.description)

    # -- training --------------------------------------------------------------------------------------------------

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Train; without validation documents a tenth of the training documents takes their place."""
        self.labels = train.labels
        return self._fit_network(*train.held_apart(valid, self.seed), run)

    def _fit_network(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Train the network on documents with what its outputs are about; its scores on the validation documents."""
        texts = prepare(train.texts, self.preprocess, self.max_words)
        taught = self._taught(train)
        self._begin(texts, taught)
        assert self.tokens is not None and self.network is not None
        examples = Examples(tokenise(self.tokens, texts, run), taught.truth, self._layout(), self.label_multiple)
        held = None if valid is None else tokenise(self.tokens, prepare(valid.texts, self.preprocess, self.max_words), run)
        goal = None
        if valid is not None and held is not None:
            least = int(np.diff(train.truth.indptr).min(initial=0))
            goal = Goal(self._watched(), lambda: self._value(self._held_out(held, valid), least))
        settings = self.settings()
        stage = type(self).__name__.lower()
        steps = train_steps(self.network, examples, self._loss, settings, run, goal, name=stage)
        for _ in run.track(steps, "training", steps_in(settings, len(train)), lambda step: step.number):
            pass
        return None if valid is None or held is None else self._held_out(held, valid)

    def _begin(self, texts: Sequence[str], train: Corpus) -> None:
        """Read or learn the vocabulary, and make the network with its first weights."""
        self.exported = None
        self.tokens, self.description = self._described(texts)
        counts = np.bincount(train.truth.indices, minlength=len(self._outputs()))
        with seeded(self.seed):
            self.network = self._network(len(self._outputs()))
        if self.start is not None:
            self._inherit(self.start)  # before the first weights, which may depend on the encoder's
        elif isinstance(encoder := getattr(self.network, "encoder", None), Encoder):
            load_pretrained(encoder, self.encoder, self.tokens, self.vectors)
        self._first_weights(self.network)
        if self.prior_bias:
            self._start_bias(self.network, counts, len(train))
        if self.start is not None:
            self._inherit(self.start)  # and after them: only new labels start afresh
        self.weights = None
        if self.positive_weight:
            weights = losses.positive_weights(counts, len(train), self.positive_weight)
            self.weights = torch.from_numpy(weights).to(Processes(self.device).device)

    def start_from(self, other: Self) -> None:
        """Let ``fit`` begin with the tokens, the encoder and the weights of a trained model."""
        other.require_fitted()
        for name in ("encoder", "embedding", "hidden", "layers"):
            if (here := getattr(self, name)) != (there := getattr(other, name)):
                raise ConfigError(f"{name!r} is {here!r}, but {there!r} in the earlier run; leave it as it was")
        self.start = other

    def _described(self, texts: Sequence[str]) -> tuple[WordTokens | SubwordTokens, dict[str, Any]]:
        """The tokens and the encoder's description; those of the model that training starts from, if there is one."""
        if self.start is None:
            sizes = WordSizes(self.vocabulary, self.embedding, self.hidden, self.layers)
            return describe_encoder(self.encoder, texts, sizes, self.encoder_dropout)
        assert self.start.tokens is not None
        description = dict(self.start.description)
        if "dropout" in description and self.encoder_dropout is not None:
            description["dropout"] = self.encoder_dropout
        return self.start.tokens, description

    def _inherit(self, earlier: NeuralModel) -> None:
        """Give the network the weights of an earlier one, except for the rows of new labels."""
        assert self.network is not None and earlier.network is not None
        take_over(self.network, earlier.network.state_dict(), self.labels, earlier.labels)

    def settings(self) -> Settings:
        """What the loop is told.

        Losses are means over the outputs, so gradients are the smaller the more outputs there are. AdamW's epsilon goes along:
        beside the gradients of thousands of outputs, the usual one would hold all steps back.
        """
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(Settings)}
        return Settings(**{**told, "epsilon": self.epsilon * min(1.0, _OUTPUTS / max(1, len(self._outputs())))})

    def _held_out(self, arrays: TokenArrays, valid: Corpus) -> HeldOut:
        many = len(valid) * len(self._outputs()) > _FULL
        return HeldOut(valid.truth, self._score(arrays, CANDIDATES if many else None))

    def _watched(self) -> str:
        """The name of what ``_value`` measures."""
        return self.optimise

    def _value(self, held: HeldOut, least: int) -> float:
        """What one threshold (or the model's own sets) makes of the network as it is."""
        return reached(held.scores, held.truth, self.labels, self.optimise, least)

    # -- scoring ---------------------------------------------------------------------------------------------------

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Probabilities of every label, or of the k best ones."""
        self.require_fitted()
        if self.network is None or self.tokens is None:
            raise NotFittedError(f"this {type(self).__name__} was not trained yet; call fit, or load a trained one")
        self.network.to(pick_device(self.device))
        return self._score(tokenise(self.tokens, prepare(texts, self.preprocess, self.max_words)), k)

    def _score(self, arrays: TokenArrays, k: int | None) -> Scores:
        """Score documents in batches of similar length; their order is restored."""
        assert self.network is not None
        device = next(self.network.parameters()).device
        data = Documents(arrays, self._layout(), device, multiple=self.pad_multiple)
        n_labels = len(self._outputs())
        width = n_labels if k is None else min(k, n_labels)
        values = np.zeros((len(data), width), dtype=np.float32)
        labels = None if k is None else np.zeros((len(data), width), dtype=np.int32)
        sets = np.full((len(data), self._decoded_width()), -1, dtype=np.int32)
        logs = np.zeros(len(data), dtype=np.float32)
        network = self._reader(device)
        with torch.inference_mode(), autocast(device, pick_precision(self.precision, device)):
            for rows, batch in read_documents(data, self._rows_at_once()):
                found, decided, log_probability = self._read(network, batch)
                if labels is not None:
                    found, best = found.topk(width, dim=1)
                    labels[rows] = best.cpu().numpy()
                values[rows] = found.cpu().numpy()
                if decided is not None and log_probability is not None:
                    sets[rows], logs[rows] = decided.cpu().numpy(), log_probability.cpu().numpy()
        names = self._outputs().names
        if labels is None:
            scores = Scores.full(values, names, "probability")
        else:
            scores = Scores.candidates(labels, values, names, "probability")
        if not sets.shape[1]:
            return scores
        return dataclasses.replace(scores, decoded=as_sets(sets, n_labels), log_probability=logs)

    def _rows_at_once(self) -> int:
        """The most documents of a batch when it is only read."""
        return max(1, _CELLS // max(1, len(self._outputs())))

    def _reader(self, device: torch.device) -> nn.Module:
        """What computes the logits: the network, or what it was exported to, which is for float32 on a CPU."""
        assert self.network is not None
        if self.exported is None or device.type != "cpu" or pick_precision(self.precision, device) is not None:
            return for_reading(self.network.eval())
        if isinstance(self.exported, Path):
            self.exported = open_export(self.exported)
        return self.exported

    def _layout(self) -> Layout:
        """How documents are laid out for this network."""
        assert self.tokens is not None
        limit = getattr(getattr(self.network, "encoder", None), "positions", 0)
        length = min(self.max_length, limit) if limit else self.max_length
        around = (self.tokens.prefix, self.tokens.suffix, self.tokens.pad)
        return Layout(length, self.long, self.overlap, self.max_windows, *around)

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The tokens, the encoder's description and the weights."""
        self.require_fitted()
        assert self.tokens is not None and self.network is not None
        weights: dict[str, NDArray[Any]] = to_arrays(self.network.state_dict())
        return {"tokens": self.tokens.state(), "encoder": self.description, "weights": weights}

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Write the network as ONNX beside the artefact that this model was loaded from; the folder."""
        self.require_fitted()
        return export_network(self._to_export(), artefact, int8=int8)

    def _to_export(self) -> nn.Module:
        """What an export computes."""
        assert self.network is not None
        return self.network

    def use_export(self, artefact: Path) -> bool:
        """Score on the CPU with what was exported from this artefact, if there is such an export; whether there is."""
        self.exported = fresh_export(artefact)
        return self.exported is not None

    def restore(self, state: State) -> None:
        """Build the network again and give it its weights."""
        self.exported = None
        self.tokens = tokens_from_state(state["tokens"])
        self.description = dict(state["encoder"])
        with seeded(self.seed):
            self.network = self._network(len(self._outputs()))
        load_arrays(self.network, state["weights"])
        self.network.eval()


def _output_bias(network: nn.Module) -> Any:
    """The bias of every label's output, wherever the network keeps it."""
    output = getattr(network, "output", None)
    return output.bias if isinstance(output, nn.Linear) else getattr(network, "bias", None)


def _as_tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value
