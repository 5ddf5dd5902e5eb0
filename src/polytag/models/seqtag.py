"""SeqTag: every label is tagged as true or not, one after the other, by a BiLSTM and a CRF over the labels (laco, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from polytag.errors import ConfigError
from polytag.models.joint_model import JointModel
from polytag.models.model import param
from polytag.models.neural_model import Reading
from polytag.nn.batch import Batch
from polytag.nn.crf import Crf
from polytag.nn.encoders import Encoder, WordEncoder
from polytag.nn.joint import LabelPart


class SeqtagNetwork(nn.Module):
    """Emissions for two tags, "not" and "yes", at every label.

    The labels' states from the joint encoder, in the order of the label set, are read in both directions by an LSTM, and a
    linear layer gives the emissions. Each label's "yes" has a bias of its own, since rare labels otherwise start at even odds.
    All of it above the encoder is in float32.
    """

    def __init__(self, encoder: Encoder, labels: LabelPart, n_labels: int, size: int, dropout: float) -> None:
        """Put LSTM, linear layer and CRF on an encoder; ``size`` is that of one direction."""
        super().__init__()
        self.encoder = encoder
        self.labels = labels
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(encoder.hidden, size, batch_first=True, bidirectional=True)
        self.emit = nn.Linear(2 * size, 2)
        self.bias = nn.Parameter(torch.zeros(n_labels))
        self.crf = Crf(2)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Emissions (batch, labels, 2)."""
        _, states = self.labels(self.encoder, ids, mask)  # (batch, labels, hidden)
        with torch.autocast(states.device.type, enabled=False):
            return self.emissions(states.float())

    def emissions(self, states: Tensor) -> Tensor:
        """Emissions (batch, labels, 2) from the labels' states (batch, labels, hidden)."""
        read, _ = self.lstm(self.dropout(states))
        emissions = self.emit(self.dropout(read))
        return torch.stack([emissions[..., 0], emissions[..., 1] + self.bias], dim=2)


@dataclass
class Seqtag(JointModel):
    """Sequential tagging of the labels: their states from the joint encoder, a BiLSTM and a CRF over them.

    A label's score is its marginal probability in the CRF; the most likely sequence of tags is the decoded set.
    """

    decoder_size: int = param(128, "size of one direction of the LSTM over the labels", minimum=1)
    dropout: float = param(0.1, "dropout before and after the LSTM over the labels", minimum=0, maximum=0.95)
    loss: str = param("likelihood", "that of the tags", choices=("likelihood",))
    positive_weight: float = param(0.0, "always 0: a sequence of tags is learned as a whole", minimum=0, maximum=0)
    smoothing: float = param(0.0, "always 0: a sequence of tags is learned as a whole", minimum=0, maximum=0)

    def _network(self, n_labels: int) -> nn.Module:
        encoder = self._encoder()
        if isinstance(encoder, WordEncoder):
            raise ConfigError("with encoder='words' no label knows of the text, and 'seqtag' has nothing to tag by; name another")
        return SeqtagNetwork(encoder, self._label_part(encoder, 0, n_labels), n_labels, self.decoder_size, self.dropout)

    def _loss(self, network: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(network, SeqtagNetwork) and batch.targets is not None
        tags = (batch.targets > 0).long()
        return -network.crf.log_likelihood(network(batch.ids, batch.mask), tags).mean() / tags.shape[1]

    def _read(self, network: nn.Module, batch: Batch) -> Reading:
        assert isinstance(network, SeqtagNetwork)
        emissions = network(batch.ids, batch.mask)
        tags = network.crf.decode(emissions)  # (batch, labels)
        numbers = torch.arange(tags.shape[1], device=tags.device, dtype=torch.int32)
        sets = torch.where(tags > 0, numbers, -1)
        return Reading(network.crf.marginals(emissions)[..., 1], sets, network.crf.log_likelihood(emissions, tags))

    def _decoded_width(self) -> int:
        return len(self.labels)

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Refuse: what comes after the network is not a sigmoid."""
        raise ConfigError("the model 'seqtag' has a CRF above its network and cannot be exported; predict with torch instead")

    def use_export(self, artefact: Path) -> bool:
        """There is none."""
        return False
