"""SeqTag: sequence tagging of the labels as true or false, by a BiLSTM and a CRF over the labels (LACO, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from polytag.config.groups.decoder_settings import DecoderSettings
from polytag.config.groups.loss_settings import LossSettings
from polytag.errors import ConfigError
from polytag.models.base.joint_model import JointModel
from polytag.models.base.neural_model import Output
from polytag.models.model import group
from polytag.nn.decoding.crf import Crf
from polytag.nn.encoding.encoders import Encoder, WordEncoder
from polytag.nn.labels.label_input import LabelPart
from polytag.nn.training.batch import Batch


class SeqtagNetwork(nn.Module):
    """Emissions of two tags, false and true, for every label.

    A BiLSTM processes the labels' states from the joint encoder, in the order of the label set. A linear layer gives the
    emissions. The true tag of each label has its own bias; otherwise rare labels would start at a probability of one half.
    Everything after the encoder is computed in float32.
    """

    def __init__(self, encoder: Encoder, labels: LabelPart, n_labels: int, size: int, dropout: float) -> None:
        """Add LSTM, linear layer and CRF to an encoder; ``size`` is the size of one direction."""
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
        outputs, _ = self.lstm(self.dropout(states))
        emissions = self.emit(self.dropout(outputs))
        return torch.stack([emissions[..., 0], emissions[..., 1] + self.bias], dim=2)


@dataclass
class Seqtag(JointModel):
    """Sequence tagging of the labels: a BiLSTM and a CRF over their states from the joint encoder.

    A label's score is its marginal probability in the CRF; the most likely sequence of tags is the decoded set.
    """

    exportable: ClassVar[bool] = False
    judged: ClassVar[tuple[str, ...]] = ()

    objective: LossSettings = group(LossSettings, without=("loss", "focus", "positive_weight", "smoothing"))
    decoder: DecoderSettings = group(
        DecoderSettings, without=("decoder_layers", "label_embedding"), limits={"decoder_size": (1, None)}, decoder_size=128
    )

    def _network(self, n_labels: int) -> nn.Module:
        encoder = self._encoder()
        if isinstance(encoder, WordEncoder):
            raise ConfigError("with encoder='words' the label states do not depend on the text; set another encoder for 'seqtag'")
        return SeqtagNetwork(
            encoder, self._label_part(encoder, 0, n_labels), n_labels, self.decoder.decoder_size, self.training.dropout
        )

    def _loss(self, network: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(network, SeqtagNetwork) and batch.targets is not None
        tags = (batch.targets > 0).long()
        return -network.crf.log_likelihood(network(batch.ids, batch.mask), tags).mean() / tags.shape[1]

    def _infer(self, network: nn.Module, batch: Batch) -> Output:
        assert isinstance(network, SeqtagNetwork)
        emissions = network(batch.ids, batch.mask)
        tags = network.crf.decode(emissions)  # (batch, labels)
        numbers = torch.arange(tags.shape[1], device=tags.device, dtype=torch.int32)
        sets = torch.where(tags > 0, numbers, -1)
        return Output(network.crf.marginals(emissions)[..., 1], sets, network.crf.log_likelihood(emissions, tags))

    def _decoded_width(self) -> int:
        return len(self.labels)

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Raise: the CRF is not part of the exported network."""
        raise ConfigError("the model 'seqtag' has a CRF above its network and cannot be exported; predict with torch instead")

    def use_export(self, artefact: Path) -> bool:
        """Always False: there is no export."""
        return False
