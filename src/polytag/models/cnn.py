"""TextCNN: Kim's filters over word embeddings (sgm, 3.4), and the two-layer variant of the BERT paper (4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from polytag.models.model import param
from polytag.models.neural_model import NeuralModel
from polytag.nn.convolution import Filters, KimFilters, masked
from polytag.nn.encoders import Encoder


class KimNetwork(nn.Module):
    """Filters of several widths, the largest value of each over the text, dropout and a linear layer (Kim 2014)."""

    def __init__(self, encoder: Encoder, n_labels: int, widths: Sequence[int], filters: int, dropout: float) -> None:
        """Put the filters and the output layer on an encoder."""
        super().__init__()
        self.encoder = encoder
        self.filters = KimFilters(encoder.hidden, filters, widths)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(self.filters.size, n_labels)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, labels)."""
        features = self.filters(self.encoder(ids, mask), mask)  # (batch, widths * filters)
        logits: Tensor = self.output(self.dropout(features))
        return logits


class TwoLayerNetwork(nn.Module):
    """Two convolutions, each followed by max-pooling, and two linear layers with dropout and batch normalisation between them.

    The paper leaves the order at the end open; normalised logits would lose the labels' frequencies, so the output comes last.
    """

    def __init__(self, encoder: Encoder, n_labels: int, width: int, filters: int, dropout: float) -> None:
        """Put the layers on an encoder."""
        super().__init__()
        self.encoder = encoder
        self.first = Filters(encoder.hidden, filters, width)
        self.second = Filters(filters, filters, width)
        self.between = nn.Linear(filters, filters)
        self.dropout = nn.Dropout(dropout)
        self.normalise = nn.BatchNorm1d(filters)
        self.output = nn.Linear(filters, n_labels)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, labels)."""
        states = masked(self.encoder(ids, mask), mask)  # (batch, hidden, length)
        features = self.first(states) * mask[:, None]  # (batch, filters, length)
        features = functional.max_pool1d(features, 2, ceil_mode=True)  # (batch, filters, length / 2)
        inside = mask[:, ::2]
        document = (self.second(features) * inside[:, None]).amax(dim=2)  # (batch, filters)
        document = self.dropout(functional.relu(self.between(document)))
        if len(document) > 1 or not self.training:  # one document has no variance to normalise by
            document = self.normalise(document)
        logits: Tensor = self.output(document)
        return logits


@dataclass
class Cnn(NeuralModel):
    """Convolution filters over word embeddings, the largest value of each over the text, and one sigmoid output per label."""

    encoder: str = "words"
    max_length: int = 500
    encoder_rate: float = 1e-3
    epochs: int = 12
    dropout: float = 0.5
    widths: tuple[int, ...] = param((3, 4, 5), "widths of the filters, in words", minimum=1)
    filters: int = param(256, "filters of each width", minimum=1)
    convolutions: int = param(1, "1 for Kim's network, 2 for the two-layer one (which uses the first width)", choices=(1, 2))

    def _network(self, n_labels: int) -> nn.Module:
        if self.convolutions == 2:
            return TwoLayerNetwork(self._encoder(), n_labels, self.widths[0], self.filters, self.dropout)
        return KimNetwork(self._encoder(), n_labels, self.widths, self.filters, self.dropout)
