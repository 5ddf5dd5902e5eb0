"""The base class of models that generate label sequences: target sequences, likelihood, beam search, and scores."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.config.groups.decoder_settings import (
    AttentionSettings,
    DecoderSettings,
    OrderSettings,
    SequenceSettings,
    SgmSettings,
)
from polytag.config.groups.encoder_settings import EncoderSettings
from polytag.config.groups.loss_settings import LossSettings
from polytag.config.groups.search_settings import SEQUENCE_BEAM, SearchSettings
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.models.base.attribution import Attention
from polytag.models.base.neural_model import NeuralModel, Output
from polytag.models.model import State, group, model_name
from polytag.nn.decoding.beam_search import Found, beam_search
from polytag.nn.decoding.label_sequences import (
    grown_ranks,
    inputs_for,
    label_ranks,
    log_shares,
    sequence_loss,
    target_sequences,
)
from polytag.nn.decoding.lstm_decoder import Decoder, LstmDecoder, LstmSettings
from polytag.nn.decoding.optimal_completion import completion_loss, rolled_out
from polytag.nn.encoding.encoders import BiLSTM, Encoder
from polytag.nn.training.batch import Batch, windows_apart
from polytag.nn.training.processes import Processes
from polytag.relabelling.origins import Origins
from polytag.storage.schema import Array, Number, Optional, Schema, Table
from polytag.text.tokens import SubwordTokens, WordTokens

if TYPE_CHECKING:
    from polytag.corpus import Corpus


class EncoderStates(NamedTuple):
    """The decoder's view of documents: float32 states (batch, length, hidden), and a mask (batch, length), False for padding.

    ``last`` (batch, last size) are the final states of the encoder's layers, if the decoder needs them.
    """

    states: Tensor
    mask: Tensor
    last: Tensor | None


class SequenceNetwork(nn.Module):
    """An encoder of documents, and a decoder that generates their labels.

    The decoder's states are float32 whatever the precision of the encoder is, because they are carried from step to step.
    The decoder attends to the concatenated states of all windows of a document.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        """Combine an encoder and a decoder."""
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, ids: Tensor, mask: Tensor) -> EncoderStates:
        """Encode ids (batch, length) or (batch, windows, length); the states of all windows are concatenated."""
        states, last = self._encode(*((ids, mask) if ids.ndim == 2 else windows_apart(ids, mask)))
        if ids.ndim == 2:
            return EncoderStates(states, mask, last)
        last = None if last is None else _outer_ends(last, mask, self.encoder.hidden // 2)
        return EncoderStates(states.view(len(ids), ids.shape[1] * ids.shape[2], -1), mask.flatten(1), last)

    def _encode(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        if not self.decoder.from_last:
            return self.encoder(ids, mask).float(), None
        assert isinstance(self.encoder, BiLSTM)
        states, last = self.encoder.with_last(ids, mask)
        return states.float(), last.float()

    def learn(self, batch: Batch, sequence: Tensor) -> Tensor:
        """Logits (batch, steps, labels + 1) for every step of the target sequences (batch, steps)."""
        states, mask, last = self(batch.ids, batch.mask)
        with torch.autocast(states.device.type, enabled=False):
            return self.decoder.teacher(states, mask, inputs_for(sequence, self.decoder.n_labels), last)

    def complete(self, batch: Batch, steps: int, smoothing: float) -> Tensor:
        """The loss of optimal completions of sequences that the decoder generates itself."""
        assert batch.targets is not None
        states, mask, last = self(batch.ids, batch.mask)
        with torch.autocast(states.device.type, enabled=False):
            sequence = rolled_out(self.decoder, states, mask, last, steps)
            logits = self.decoder.teacher(states, mask, inputs_for(sequence, self.decoder.n_labels), last)
        return completion_loss(logits, sequence, batch.targets, smoothing)

    def search(self, batch: Batch, beam: int, longest: int, length_penalty: float, only_best: bool) -> Found:
        """The best sequences of the documents of a batch."""
        states, mask, last = self(batch.ids, batch.mask)
        with torch.autocast(states.device.type, enabled=False):
            return beam_search(
                self.decoder, states, mask, last, beam=beam, longest=longest, length_penalty=length_penalty, only_best=only_best
            )


def _outer_ends(last: Tensor, mask: Tensor, hidden: int) -> Tensor:
    """The final states of documents in windows, from those of every window (batch * windows, last size).

    From left to right they are those of the last window in use, from right to left those of the first window.
    ``mask`` is (batch, windows, length).
    """
    parts = last.view(*mask.shape[:2], -1, 2, hidden)  # (batch, windows, layers * 2, directions, hidden)
    used = (mask.any(dim=2).sum(dim=1) - 1).clamp(min=0)  # (batch,)
    right = parts[torch.arange(len(parts), device=parts.device), used, :, 0]
    return torch.stack([right, parts[:, 0, :, 1]], dim=2).flatten(1)


@dataclass
class SequenceModel(NeuralModel):
    """A model that generates the labels of a document one by one; a subclass defines the decoder.

    Its scores are one number per label (``score_from``), together with the decoded sets. Validation documents are decoded with
    the same beam width as all others, because encoding them takes longer than decoding.
    """

    exportable: ClassVar[bool] = False
    judged: ClassVar[tuple[str, ...]] = ()
    label_multiple: ClassVar[int] = 2  # decoder steps per batch; a multiple, so that there are fewer shapes to capture

    encoding: EncoderSettings = group(EncoderSettings, without=("pooling", "window_pooling"))
    objective: LossSettings = group(LossSettings, without=("loss", "focus", "positive_weight"))
    ordering: OrderSettings = group(OrderSettings)
    sequence: SequenceSettings = group(SequenceSettings)
    search: SearchSettings = group(SearchSettings, without=("candidates",), limits={"beam": (1, 10_000)}, beam=SEQUENCE_BEAM)
    longest: int = field(init=False, repr=False, default=0)
    ranks: Tensor | None = field(init=False, repr=False, default=None)

    @abstractmethod
    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        """Build the decoder for this encoder; it masks repeated labels if ``self.sequence.mask_repeats``."""

    def _check_encoder(self, kind: str) -> None:
        """Raise if the settings do not fit an encoder of this kind."""

    def _described(self, texts: Sequence[str]) -> tuple[WordTokens | SubwordTokens, dict[str, Any]]:
        tokens, description = super()._described(texts)
        self._check_encoder(description["kind"])
        return tokens, description

    def _network(self, n_labels: int) -> nn.Module:
        encoder = self._encoder()
        return SequenceNetwork(encoder, self._decoder(encoder, n_labels))

    # -- training --------------------------------------------------------------------------------------------------

    def _taught(self, train: Corpus) -> Corpus:
        if self.sequence.complete:
            train = dataclasses.replace(train, truth=train.labels.close(train.truth))
        most = max(1, int(np.diff(train.truth.indptr).max(initial=0)))
        ranks = label_ranks(self.ordering.order, train.labels, train.truth)
        if isinstance(earlier := self.start, SequenceModel):  # the learned label order and maximum length stay valid
            most = max(most, earlier.longest)
            by_frequency = self.ordering.order == earlier.ordering.order == "frequency"
            if ranks is not None and earlier.ranks is not None and by_frequency:
                ranks = grown_ranks(earlier.ranks.cpu().numpy(), ranks)
        self.longest = min(most, self.sequence.max_labels) if self.sequence.max_labels else most
        self.ranks = None if ranks is None else torch.from_numpy(ranks).to(Processes(self.compute.device).device)
        return train

    def transferred(self, labels: LabelSet, origins: Origins) -> Self:
        """A copy whose labels also have the places in the order of the labels that they come from."""
        found = super().transferred(labels, origins)
        if self.ranks is not None:
            places = np.argsort(self.ranks.cpu().numpy()[origins.first], kind="stable")
            found.ranks = torch.from_numpy(np.argsort(places).astype(np.float32))
        return found

    def _start_bias(self, network: nn.Module, counts: NDArray[Any], documents: int) -> None:
        assert isinstance(network, SequenceNetwork)
        output, stop = getattr(network.decoder, "output", None), getattr(network.decoder, "stop", None)
        if isinstance(output, nn.Linear) and isinstance(stop, nn.Linear):
            bias = torch.from_numpy(log_shares(counts, documents))
            with torch.no_grad():
                output.bias.copy_(bias[:-1])
                stop.bias.copy_(bias[-1:])

    def _loss(self, network: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(network, SequenceNetwork) and batch.targets is not None
        if self.sequence.targets == "completion":
            return network.complete(batch, self.longest + 1, self.objective.smoothing)
        most = min(self.longest, batch.most_labels or self.longest)  # steps after the last <eos> of a batch have no loss
        sequence = target_sequences(batch.targets, self.ranks, most + 1)
        return sequence_loss(network.learn(batch, sequence), sequence, self.objective.smoothing)

    # -- scoring ---------------------------------------------------------------------------------------------------

    def _infer(self, network: nn.Module, batch: Batch) -> Output:
        assert isinstance(network, SequenceNetwork)
        pooled = self.sequence.score_from == "pooled"
        found = network.search(batch, self.search.beam, self.longest, self.search.length_penalty, pooled)
        return Output(found.pooled if pooled else found.marginal, found.labels[:, 0], found.log_probability[:, 0])

    def attention(self, text: str) -> Attention | None:
        """The decoder's attention to the words when it generates each label of the best sequence (SGM, eq. 5 and table 4)."""
        network, found = self._located(text)
        assert isinstance(network, SequenceNetwork)
        with torch.inference_mode():
            best = network.search(found.batch, self.search.beam, self.longest, self.search.length_penalty, True).labels[:, 0]
            best = best[:, : int((best[0] >= 0).sum())]  # (1, labels)
            states, mask, last = network(found.batch.ids, found.batch.mask)
            start = best.new_full((1, 1), network.decoder.bos)
            weights = network.decoder.attention(states, mask, torch.cat([start, best[:, :-1]], dim=1), last)
        if weights is None or not best.shape[1]:
            return None
        return Attention(found.spans, best[0].cpu().numpy(), found.by_word(weights[0].T.cpu().numpy()))

    def _decoded_width(self) -> int:
        return self.longest

    def _rows_at_once(self) -> int:
        return max(1, super()._rows_at_once() // self.search.beam)

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The state of every neural model, the maximum length of a sequence, and the ranks of the labels unless random."""
        ranks = None if self.ranks is None else self.ranks.cpu().numpy()
        return {**super().state(), "longest": self.longest, "ranks": ranks}

    def schema(self) -> Table:
        """What every network has, the maximum length of a sequence and, since version 1.0.0, the ranks of the labels."""
        ranks = Optional(Array(("float32", "int64", "int32"), ("labels",)))
        own: dict[str, Schema] = {"longest": Number(0, "labels"), "ranks": ranks}
        return Table({**super().schema().fields, **own}, optional=frozenset({"ranks"}))

    def restore(self, state: State) -> None:
        """Rebuild the network and restore its weights."""
        super().restore(state)
        self.longest = int(state["longest"])
        ranks = state.get("ranks")  # artefacts of version 0.1.0 have none
        self.ranks = None if ranks is None else torch.from_numpy(np.array(ranks))

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Refuse: an ONNX graph cannot contain the beam search."""
        name = model_name(self)
        raise ConfigError(f"the model {name!r} generates labels step by step and cannot be exported; predict with torch instead")

    def use_export(self, artefact: Path) -> bool:
        """Return False: there is no export."""
        return False


def lstm_decoder(
    encoder: Encoder, n_labels: int, sizes: tuple[DecoderSettings, AttentionSettings], sgm: SgmSettings, model: SequenceModel
) -> LstmDecoder:
    """SGM's decoder with the settings of a model."""
    dropout, mask = model.training.dropout, model.sequence.mask_repeats
    settings = LstmSettings.of(encoder.hidden, sizes, sgm, dropout=dropout, mask=mask)
    return LstmDecoder(encoder.hidden, n_labels, settings, encoder.last_size)
