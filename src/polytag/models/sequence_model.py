"""What models that generate labels as a sequence share: target sequences, the likelihood, beam search, and scores from it."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.errors import ConfigError
from polytag.models.model import State, model_name, param
from polytag.models.neural_model import NeuralModel, Reading
from polytag.nn.batch import Batch, windows_apart
from polytag.nn.beam import Found, beam_search
from polytag.nn.decoders import Decoder
from polytag.nn.encoders import BiLSTM, Encoder
from polytag.nn.processes import Processes
from polytag.nn.sequences import ORDERS, grown_ranks, inputs_for, label_ranks, log_shares, sequence_loss, target_sequences

if TYPE_CHECKING:
    from polytag.corpus import Corpus


class Encoded(NamedTuple):
    """What a decoder is told about documents: states (batch, length, hidden) in float32, where they are no padding, the ends."""

    states: Tensor
    mask: Tensor
    last: Tensor | None  # (batch, the encoder's last size), if the decoder asks for it


class SequenceNetwork(nn.Module):
    """An encoder that reads documents, and a decoder that generates their labels.

    The decoder's states are float32 whatever the precision of the encoder is: it is small, and they are carried from step to
    step. Documents in several windows are one long row of states to it.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        """Put both together."""
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, ids: Tensor, mask: Tensor) -> Encoded:
        """What the decoder is told, of ids (batch, length), or (batch, windows, length) that are one long row of states to it."""
        states, last = self._encode(*((ids, mask) if ids.ndim == 2 else windows_apart(ids, mask)))
        if ids.ndim == 2:
            return Encoded(states, mask, last)
        last = None if last is None else _outer_ends(last, mask, self.encoder.hidden // 2)
        return Encoded(states.view(len(ids), ids.shape[1] * ids.shape[2], -1), mask.flatten(1), last)

    def _encode(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        if not self.decoder.from_last:
            return self.encoder(ids, mask).float(), None
        assert isinstance(self.encoder, BiLSTM)
        states, last = self.encoder.with_last(ids, mask)
        return states.float(), last.float()

    def learn(self, batch: Batch, sequence: Tensor) -> Tensor:
        """Logits (batch, steps, labels + 1) for every step of the true sequences (batch, steps)."""
        states, mask, last = self(batch.ids, batch.mask)
        with torch.autocast(states.device.type, enabled=False):
            return self.decoder.teacher(states, mask, inputs_for(sequence, self.decoder.n_labels), last)

    def search(self, batch: Batch, beam: int, longest: int, length_penalty: float, only_best: bool) -> Found:
        """The best sequences of some documents."""
        states, mask, last = self(batch.ids, batch.mask)
        with torch.autocast(states.device.type, enabled=False):
            return beam_search(
                self.decoder, states, mask, last, beam=beam, longest=longest, length_penalty=length_penalty, only_best=only_best
            )


def _outer_ends(last: Tensor, mask: Tensor, hidden: int) -> Tensor:
    """The ends of documents read in windows, from those of every window (batch * windows, last size).

    Reading to the right ends in the last window that is used (``mask`` is (batch, windows, length)), to the left in the first.
    """
    parts = last.view(*mask.shape[:2], -1, 2, hidden)  # (batch, windows, layers * 2, directions, hidden)
    used = (mask.any(dim=2).sum(dim=1) - 1).clamp(min=0)  # (batch,)
    right = parts[torch.arange(len(parts), device=parts.device), used, :, 0]
    return torch.stack([right, parts[:, 0, :, 1]], dim=2).flatten(1)


@dataclass
class SequenceModel(NeuralModel):
    """A model that generates the labels of a document one after the other. A subclass says which decoder it has.

    Its scores are one number per label (``score_from``) with the sets that it decoded beside them. Validation documents are
    decoded with the same beam as any others: reading them costs more than that.
    """

    label_multiple: ClassVar[int] = 2  # steps of the decoder, without as many captured shapes as there are numbers of labels
    order: str = param("frequency", "order of the labels: frequent ones first, parents first, random, given", choices=ORDERS)
    mask_repeats: bool = param(True, "whether a label that was generated is ruled out afterwards")
    complete: bool = param(False, "whether labels are completed by their ancestors before training, where there is a tree")
    max_labels: int = param(0, "most labels of a sequence; 0: as many as any training document has", minimum=0)
    beam: int = param(5, "hypotheses that are followed at once; 1 is greedy", minimum=1)
    length_penalty: float = param(0.0, "sequences compare by log p / length to this power", minimum=0)
    score_from: str = param(
        "pooled", "scores: largest probability over the steps, or marginal over the beam", choices=("pooled", "marginal")
    )
    loss: str = param("likelihood", "that of the sequences", choices=("likelihood",))
    positive_weight: float = param(0.0, "always 0: sequences have no negatives", minimum=0, maximum=0)
    smoothing: float = param(0.0, "share of a step's target that is spread over all labels", minimum=0, maximum=0.5)
    prior_bias: bool = param(True, "whether the output's bias starts at the labels' log-frequencies")
    longest: int = field(init=False, repr=False, default=0)
    ranks: Tensor | None = field(init=False, repr=False, default=None)

    @abstractmethod
    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        """The decoder on top of this encoder; it rules out repeated labels if ``self.mask_repeats``."""

    def _network(self, n_labels: int) -> nn.Module:
        encoder = self._encoder()
        return SequenceNetwork(encoder, self._decoder(encoder, n_labels))

    # -- training --------------------------------------------------------------------------------------------------

    def _taught(self, train: Corpus) -> Corpus:
        if self.complete:
            train = dataclasses.replace(train, truth=train.labels.close(train.truth))
        most = max(1, int(np.diff(train.truth.indptr).max(initial=0)))
        ranks = label_ranks(self.order, train.labels, train.truth)
        if isinstance(earlier := self.start, SequenceModel):  # what was learned about ends and about what follows what stays true
            most = max(most, earlier.longest)
            if ranks is not None and earlier.ranks is not None and self.order == earlier.order == "frequency":
                ranks = grown_ranks(earlier.ranks.cpu().numpy(), ranks)
        self.longest = min(most, self.max_labels) if self.max_labels else most
        self.ranks = None if ranks is None else torch.from_numpy(ranks).to(Processes(self.device).device)
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
        most = min(self.longest, batch.most_labels or self.longest)  # steps after the last <eos> of a batch teach nothing
        sequence = target_sequences(batch.targets, self.ranks, most + 1)
        return sequence_loss(network.learn(batch, sequence), sequence, self.smoothing)

    # -- scoring ---------------------------------------------------------------------------------------------------

    def _read(self, network: nn.Module, batch: Batch) -> Reading:
        assert isinstance(network, SequenceNetwork)
        pooled = self.score_from == "pooled"
        found = network.search(batch, self.beam, self.longest, self.length_penalty, pooled)
        return Reading(found.pooled if pooled else found.marginal, found.labels[:, 0], found.log_probability[:, 0])

    def _decoded_width(self) -> int:
        return self.longest

    def _rows_at_once(self) -> int:
        return max(1, super()._rows_at_once() // self.beam)

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """What every network has, the most labels of a sequence, and their places in the order unless it is random."""
        ranks = None if self.ranks is None else self.ranks.cpu().numpy()
        return {**super().state(), "longest": self.longest, "ranks": ranks}

    def restore(self, state: State) -> None:
        """Build the network again."""
        super().restore(state)
        self.longest = int(state["longest"])
        ranks = state.get("ranks")  # runs from before they were kept have none
        self.ranks = None if ranks is None else torch.from_numpy(np.array(ranks))

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Refuse: a graph cannot hold the search."""
        name = model_name(self)
        raise ConfigError(f"the model {name!r} generates labels step by step and cannot be exported; predict with torch instead")

    def use_export(self, artefact: Path) -> bool:
        """There is none."""
        return False
