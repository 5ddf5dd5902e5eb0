"""TextCNN: Kim's filters over word embeddings (sgm, 3.4), and the two-layer variant of the BERT paper (4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.models.model import param
from polytag.models.neural_model import NeuralModel
from polytag.nn.encoders import Encoder


class Filters(nn.Module):
    """``c_i = relu(W x_{i:i+h-1} + b)`` for filters of one width h; what lies beyond the text is zero."""

    def __init__(self, size: int, filters: int, width: int) -> None:
        """Take the size of the states, the number of filters and their width."""
        super().__init__()
        self.width = width
        self.convolution = nn.Conv1d(size, filters, width)

    def forward(self, states: Tensor) -> Tensor:
        """Features (batch, filters, length) of states (batch, size, length), one for every place where a filter can begin."""
        return functional.relu(self.convolution(functional.pad(states, (0, self.width - 1))))


class KimNetwork(nn.Module):
    """Filters of several widths, the largest value of each over the text, dropout and a linear layer (Kim 2014)."""

    def __init__(self, encoder: Encoder, n_labels: int, widths: Sequence[int], filters: int, dropout: float) -> None:
        """Put the filters and the output layer on an encoder."""
        super().__init__()
        self.encoder = encoder
        self.filters = nn.ModuleList(Filters(encoder.hidden, filters, width) for width in widths)
        self.widths = tuple(widths)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(filters * len(self.widths), n_labels)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, labels)."""
        states = _masked(self.encoder(ids, mask), mask)  # (batch, hidden, length)
        place = torch.arange(ids.shape[1], device=ids.device)
        length = mask.sum(dim=1, keepdim=True)  # (batch, 1)
        found = []
        for width, part in zip(self.widths, self.filters, strict=True):
            inside = place < (length - width + 1).clamp(min=1)  # a text shorter than the filter has one place
            found.append(part(states).masked_fill(~inside[:, None], 0).amax(dim=2))  # features are never below zero
        logits: Tensor = self.output(self.dropout(torch.cat(found, dim=1)))
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
        states = _masked(self.encoder(ids, mask), mask)  # (batch, hidden, length)
        features = self.first(states) * mask[:, None]  # (batch, filters, length)
        features = functional.max_pool1d(features, 2, ceil_mode=True)  # (batch, filters, length / 2)
        inside = mask[:, ::2]
        document = (self.second(features) * inside[:, None]).amax(dim=2)  # (batch, filters)
        document = self.dropout(functional.relu(self.between(document)))
        if len(document) > 1 or not self.training:  # one document has no variance to normalise by
            document = self.normalise(document)
        logits: Tensor = self.output(document)
        return logits


def _masked(states: Tensor, mask: Tensor) -> Tensor:
    """States as convolutions want them (batch, hidden, length), zero where there is padding."""
    return (states * mask[..., None].to(states.dtype)).transpose(1, 2)


@dataclass
class Cnn(NeuralModel):
    """Convolution filters over word embeddings, the largest value of each over the text, and one sigmoid output per label."""

    encoder: str = param("words", "words, bilstm, minilm (packaged), or a Hugging Face id or folder")
    max_length: int = param(500, "most tokens read at once", minimum=4)
    encoder_rate: float = param(1e-3, "learning rate of the encoder's top layer", minimum=0)
    epochs: int = param(12, "times that every document is seen", minimum=1)
    dropout: float = param(0.5, "dropout before the output", minimum=0, maximum=0.95)
    widths: tuple[int, ...] = param((3, 4, 5), "widths of the filters, in words", minimum=1)
    filters: int = param(256, "filters of each width", minimum=1)
    convolutions: int = param(1, "1 for Kim's network, 2 for the two-layer one (which uses the first width)", choices=(1, 2))

    def _network(self, n_labels: int) -> nn.Module:
        if self.convolutions == 2:
            return TwoLayerNetwork(self._encoder(), n_labels, self.widths[0], self.filters, self.dropout)
        return KimNetwork(self._encoder(), n_labels, self.widths, self.filters, self.dropout)
