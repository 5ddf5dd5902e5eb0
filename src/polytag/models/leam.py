"""LEAM: words and labels in one space, attention from how well they fit (Wang et al. 2018; laco, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.models.model import param
from polytag.models.neural_model import NeuralModel
from polytag.nn.batch import Batch
from polytag.nn.encoders import Encoder


class LeamNetwork(nn.Module):
    """Attention over words from their fit with the labels.

    With word states v_l and label embeddings c_k: the fit ``G_kl = cos(c_k, v_l)``; over a window of words
    ``u_l = relu(G_{l-r:l+r} W_1 + b_1)`` with one weight per place of the window; ``m_l = max_k u_kl``; ``beta = softmax(m)``;
    the document is ``z = sum_l beta_l v_l``, and its logits are ``W_2 z + b_2``. Places without a word do not take part.
    """

    def __init__(self, encoder: Encoder, n_labels: int, window: int, dropout: float) -> None:
        """Put labels, window and output layer on an encoder; ``window`` is r, the words on either side."""
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
        """The weight of every word (batch, length)."""
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
    """Label-word joint embedding: a word counts by how well it, with its neighbours, fits any label.

    A label's own embedding should be classified as that label; ``anchor`` weighs this second loss.
    """

    encoder: str = "words"
    max_length: int = 500
    encoder_rate: float = 1e-3
    epochs: int = 15
    dropout: float = 0.5
    window: int = param(5, "words on either side that are looked at together", minimum=0)
    anchor: float = param(0.1, "weight of the loss on the labels' own embeddings", minimum=0)

    def _network(self, n_labels: int) -> nn.Module:
        return LeamNetwork(self._encoder(), n_labels, self.window, self.dropout)

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
