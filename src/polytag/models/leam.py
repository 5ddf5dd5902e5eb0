"""LEAM: words and labels in one space, with attention from their compatibility (Wang et al. 2018; LACO, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.config.groups.encoder_settings import EncoderSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.config.groups.window_settings import WindowSettings
from polytag.models.base.neural_model import NeuralModel
from polytag.models.model import group, param
from polytag.nn.encoding.encoders import Encoder
from polytag.nn.training.batch import Batch


class LeamNetwork(nn.Module):
    """Attention over words from their compatibility with the labels.

    With word states v_l and label embeddings c_k, the compatibility is ``G_kl = cos(c_k, v_l)``. Over a window of words,
    ``u_l = relu(G_{l-r:l+r} W_1 + b_1)`` with one weight per position of the window; ``m_l = max_k u_kl``; ``beta = softmax(m)``.
    The document vector is ``z = sum_l beta_l v_l``, and the logits are ``W_2 z + b_2``. Padding is masked.
    """

    def __init__(self, encoder: Encoder, n_labels: int, window: int, dropout: float) -> None:
        """Add label embeddings, window and output layer to an encoder; ``window`` is r, the words on either side."""
        super().__init__()
        self.encoder = encoder
        self.labels = nn.Parameter(torch.randn(n_labels, encoder.hidden) * 0.1)
        self.window = nn.Conv1d(1, 1, 2 * window + 1, padding=window, bias=False)
        self.offset = nn.Parameter(torch.zeros(n_labels))
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(encoder.hidden, n_labels)
        nn.init.constant_(self.window.weight, 1 / (2 * window + 1))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, labels)."""
        states = self.encoder(ids, mask)  # (batch, length, hidden)
        return self.classify(torch.einsum("bl,blh->bh", self.attention(states, mask), states))

    def attention(self, states: Tensor, mask: Tensor) -> Tensor:
        """The attention weights of the words (batch, length)."""
        words = functional.normalize(states, dim=2, eps=1e-6)
        fit = functional.normalize(self.labels, dim=1, eps=1e-6) @ words.transpose(1, 2)  # (batch, labels, length)
        fit = fit * mask[:, None].to(fit.dtype)
        batch, labels, length = fit.shape
        seen = self.window(fit.reshape(batch * labels, 1, length)).view(batch, labels, length)
        strength = functional.relu(seen + self.offset[:, None]).amax(dim=1)  # (batch, length)
        return torch.softmax(strength.float().masked_fill(~mask, float("-inf")), dim=1).to(states.dtype)

    def classify(self, vectors: Tensor) -> Tensor:
        """Logits of vectors in the common space (any, labels)."""
        logits: Tensor = self.output(self.dropout(vectors))
        return logits


@dataclass
class Leam(NeuralModel):
    """Label-word joint embedding: words are weighted by the compatibility of their window with the best label.

    A second loss, with weight ``anchor``, trains the classifier to predict each label from its own embedding.
    """

    encoding: EncoderSettings = group(EncoderSettings, without=("pooling",), encoder="words", max_length=500)
    training: TrainingSettings = group(TrainingSettings, encoder_rate=1e-3, epochs=15, dropout=0.5)
    windows: WindowSettings = group(WindowSettings)
    anchor: float = param(0.1, "weight of the loss on the labels' own embeddings", minimum=0)

    def _network(self, n_labels: int) -> nn.Module:
        return LeamNetwork(self._encoder(), n_labels, self.windows.window, self.training.dropout)

    def _first_weights(self, network: nn.Module) -> None:
        assert isinstance(network, LeamNetwork)
        self._start_labels(network.labels)

    def _loss(self, network: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(network, LeamNetwork)
        loss = super()._loss(network, batch)
        if self.anchor:
            own = network.classify(network.labels)  # (labels, labels)
            targets = torch.eye(len(own), device=own.device)
            loss = loss + self.anchor * functional.binary_cross_entropy_with_logits(own.float(), targets)
        return loss
