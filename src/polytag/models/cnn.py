"""TextCNN: Kim's filters over word embeddings (SGM, 3.4), and the two-layer variant of the BERT paper (4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from polytag.config.groups.encoder_settings import EncoderSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.config.groups.window_settings import FilterSettings
from polytag.models.base.neural_model import NeuralModel
from polytag.models.model import group, param
from polytag.nn.encoding.convolution import Filters, KimFilters, masked
from polytag.nn.encoding.encoders import Encoder


class KimNetwork(nn.Module):
    """Filters of several widths, max-pooling over the text, dropout and a linear layer (Kim 2014)."""

    def __init__(self, encoder: Encoder, n_labels: int, widths: Sequence[int], filters: int, dropout: float) -> None:
        """Add the filters and the output layer to an encoder."""
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
    """Two convolutions with max-pooling, then two linear layers with dropout and batch normalisation between them.

    The paper does not state the order of the last layers. The output layer is last, because normalised logits would lose the
    label frequencies.
    """

    def __init__(self, encoder: Encoder, n_labels: int, width: int, filters: int, dropout: float) -> None:
        """Add the layers to an encoder."""
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
        if len(document) > 1 or not self.training:  # the variance of one document is undefined
            document = self.normalise(document)
        logits: Tensor = self.output(document)
        return logits


@dataclass
class Cnn(NeuralModel):
    """Convolution filters over word embeddings, max-pooling over the text, and one sigmoid output per label."""

    encoding: EncoderSettings = group(EncoderSettings, without=("pooling",), encoder="words", max_length=500)
    training: TrainingSettings = group(TrainingSettings, encoder_rate=1e-3, epochs=12, dropout=0.5)
    convolution: FilterSettings = group(FilterSettings)
    convolutions: int = param(1, "1 for Kim's network, 2 for the two-layer one (which uses the first width)", choices=(1, 2))

    def _network(self, n_labels: int) -> nn.Module:
        if self.convolutions == 2:
            return TwoLayerNetwork(
                self._encoder(), n_labels, self.convolution.widths[0], self.convolution.filters, self.training.dropout
            )
        return KimNetwork(self._encoder(), n_labels, self.convolution.widths, self.convolution.filters, self.training.dropout)
