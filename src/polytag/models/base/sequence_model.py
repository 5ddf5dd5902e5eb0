"""What models that generate labels as a sequence share: target sequences, the likelihood, beam search, and scores from it."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.config.groups.decoder_settings import OrderSettings, SequenceSettings
from polytag.config.groups.encoder_settings import EncoderSettings
from polytag.config.groups.loss_settings import LossSettings
from polytag.config.groups.search_settings import SEQUENCE_BEAM, SearchSettings
from polytag.errors import ConfigError
from polytag.models.base.neural_model import NeuralModel, Output
from polytag.models.model import State, group, model_name
from polytag.nn.decoding.beam_search import Found, beam_search
from polytag.nn.decoding.label_sequences import inputs_for, label_ranks, log_shares, sequence_loss, target_sequences
from polytag.nn.decoding.lstm_decoder import Decoder
from polytag.nn.encoding.encoders import Encoder
from polytag.nn.training.batch import Batch, windows_apart
from polytag.nn.training.processes import Processes
from polytag.storage.schema import Number, Table

if TYPE_CHECKING:
    from polytag.corpus import Corpus


class SequenceNetwork(nn.Module):
    """An encoder that reads documents, and a decoder that generates their labels.

    The decoder computes in float32 whatever the precision of the encoder is: it is small, and its states are carried from step
    to step. Documents in several windows are one long row of states to it.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        """Put both together."""
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """States (batch, length, hidden) in float32 and their mask (batch, length), of ids that may come in windows."""
        if ids.ndim == 2:
            return self.encoder(ids, mask).float(), mask
        states = self.encoder(*windows_apart(ids, mask)).float()
        return states.view(len(ids), ids.shape[1] * ids.shape[2], -1), mask.flatten(1)

    def learn(self, batch: Batch, sequence: Tensor) -> Tensor:
        """Logits (batch, steps, labels + 1) for every step of the true sequences (batch, steps)."""
        states, mask = self(batch.ids, batch.mask)
        with torch.autocast(states.device.type, enabled=False):
            return self.decoder.teacher(states, mask, inputs_for(sequence, self.decoder.n_labels))

    def search(self, batch: Batch, beam: int, longest: int, length_penalty: float, only_best: bool) -> Found:
        """The best sequences of some documents."""
        states, mask = self(batch.ids, batch.mask)
        with torch.autocast(states.device.type, enabled=False):
            return beam_search(
                self.decoder, states, mask, beam=beam, longest=longest, length_penalty=length_penalty, only_best=only_best
            )


@dataclass
class SequenceModel(NeuralModel):
    """A model that generates the labels of a document one after the other. A subclass says which decoder it has.

    Its scores are one number per label (``score_from``) with the sets that it decoded beside them. Validation documents are
    decoded with the same beam as any others: reading them costs more than that.
    """

    exportable: ClassVar[bool] = False

    encoding: EncoderSettings = group(EncoderSettings, without=("pooling", "window_pooling"))
    objective: LossSettings = group(LossSettings, without=("loss", "focus", "positive_weight"))
    ordering: OrderSettings = group(OrderSettings)
    sequence: SequenceSettings = group(SequenceSettings)
    search: SearchSettings = group(SearchSettings, without=("candidates",), limits={"beam": (1, 10_000)}, beam=SEQUENCE_BEAM)
    longest: int = field(init=False, repr=False, default=0)
    ranks: Tensor | None = field(init=False, repr=False, default=None)

    @abstractmethod
    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        """The decoder on top of this encoder; it rules out repeated labels if ``self.sequence.mask_repeats``."""

    def _network(self, n_labels: int) -> nn.Module:
        encoder = self._encoder()
        return SequenceNetwork(encoder, self._decoder(encoder, n_labels))

    # -- training --------------------------------------------------------------------------------------------------

    def _taught(self, train: Corpus) -> Corpus:
        if self.sequence.complete:
            train = dataclasses.replace(train, truth=train.labels.close(train.truth))
        most = max(1, int(np.diff(train.truth.indptr).max(initial=0)))
        self.longest = min(most, self.sequence.max_labels) if self.sequence.max_labels else most
        ranks = label_ranks(self.ordering.order, train.labels, train.truth)
        self.ranks = None if ranks is None else torch.from_numpy(ranks).to(Processes(self.compute.device).device)
        return train

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
        sequence = target_sequences(batch.targets, self.ranks, self.longest + 1)
        return sequence_loss(network.learn(batch, sequence), sequence, self.objective.smoothing)

    # -- scoring ---------------------------------------------------------------------------------------------------

    def _infer(self, network: nn.Module, batch: Batch) -> Output:
        assert isinstance(network, SequenceNetwork)
        pooled = self.sequence.score_from == "pooled"
        found = network.search(batch, self.search.beam, self.longest, self.search.length_penalty, pooled)
        return Output(found.pooled if pooled else found.marginal, found.labels[:, 0], found.log_probability[:, 0])

    def _decoded_width(self) -> int:
        return self.longest

    def _rows_at_once(self) -> int:
        return max(1, super()._rows_at_once() // self.search.beam)

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """What every network has, and the most labels of a sequence."""
        return {**super().state(), "longest": self.longest}

    def schema(self) -> Table:
        """What every network has, and the maximum length of a sequence."""
        return Table({**super().schema().fields, "longest": Number(0, "labels")})

    def restore(self, state: State) -> None:
        """Build the network again."""
        super().restore(state)
        self.longest = int(state["longest"])

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Refuse: a graph cannot hold the search."""
        name = model_name(self)
        raise ConfigError(f"the model {name!r} generates labels step by step and cannot be exported; predict with torch instead")

    def use_export(self, artefact: Path) -> bool:
        """There is none."""
        return False
