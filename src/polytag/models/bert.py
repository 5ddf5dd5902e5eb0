"""Multi-label BERT: an encoder, one linear layer and a sigmoid per label (BERT paper, 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from polytag.config.groups.encoder_settings import EncoderSettings
from polytag.models.base.neural_model import NeuralModel
from polytag.models.model import group
from polytag.nn.encoding.encoders import Encoder, pool


class BertNetwork(nn.Module):
    """``W dropout(pool(states)) + b``."""

    def __init__(self, encoder: Encoder, n_labels: int, pooling: str, dropout: float) -> None:
        """Add the output layer to an encoder."""
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.first_token = pooling == "cls"  # the states of the other tokens are not used
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(encoder.hidden, n_labels)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, labels)."""
        states = self.encoder(ids, mask)  # (batch, length, hidden)
        document = self.dropout(pool(states, mask, self.pooling))  # (batch, hidden)
        logits: Tensor = self.output(document)
        return logits


@dataclass
class Bert(NeuralModel):
    """A fine-tuned encoder with one sigmoid output per label on its pooled states."""

    encoding: EncoderSettings = group(EncoderSettings)

    def _network(self, n_labels: int) -> nn.Module:
        return BertNetwork(self._encoder(), n_labels, self.encoding.pooling, self.training.dropout)
