"""LSAN: a document seen from every label, by self-attention and by label attention (Xiao et al. 2019; laco, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.models.model import param
from polytag.models.neural_model import NeuralModel
from polytag.nn.encoders import BiLSTM, Encoder


class LsanNetwork(nn.Module):
    """One view of the document per label, fused from two attentions.

    With states H (length, hidden), for a BiLSTM the two directions joined: self-attention ``A = softmax(W_2 tanh(W_1 H^T))``
    over the words gives ``M_s = A H``; label attention ``C H^T``, each direction by itself, gives ``M_l``;
    ``alpha = sigmoid(M_s w_3)`` and ``beta = sigmoid(M_l w_4)``, scaled to sum to one, fuse them; the logit of a label is
    ``w_6 relu(W_5 m)`` of its fused view m.
    A bias per label is added to it, since rare labels otherwise start at even odds.
    """

    def __init__(self, encoder: Encoder, n_labels: int, attention: int, dense: int, dropout: float) -> None:
        """Put the attentions on an encoder."""
        super().__init__()
        self.encoder = encoder
        self.directions = 2 if isinstance(encoder, BiLSTM) else 1
        self.labels = nn.Parameter(torch.randn(n_labels, encoder.hidden // self.directions) * 0.1)
        self.first = nn.Linear(encoder.hidden, attention, bias=False)
        self.second = nn.Linear(attention, n_labels, bias=False)
        self.trust_words = nn.Linear(encoder.hidden, 1)
        self.trust_labels = nn.Linear(encoder.hidden, 1)
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(encoder.hidden, dense)
        self.score = nn.Linear(dense, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(n_labels))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, labels)."""
        states = self.encoder(ids, mask)  # (batch, length, hidden)
        states = states * mask[..., None].to(states.dtype)
        by_words, by_labels = self.self_attention(states, mask), self.label_attention(states)  # (batch, labels, hidden)
        alpha, beta = torch.sigmoid(self.trust_words(by_words)), torch.sigmoid(self.trust_labels(by_labels))
        share = alpha / (alpha + beta)  # (batch, labels, 1)
        fused = self.dropout(share * by_words + (1 - share) * by_labels)
        logits: Tensor = self.score(functional.relu(self.dense(fused))).squeeze(2) + self.bias
        return logits

    def self_attention(self, states: Tensor, mask: Tensor) -> Tensor:
        """Every label's view by what the words say themselves (batch, labels, hidden)."""
        weights = self.second(torch.tanh(self.first(states))).transpose(1, 2)  # (batch, labels, length)
        weights = torch.softmax(weights.float().masked_fill(~mask[:, None], float("-inf")), dim=2).to(states.dtype)
        return weights @ states

    def label_attention(self, states: Tensor) -> Tensor:
        """Every label's view by how the words fit its embedding, each direction by itself (batch, labels, hidden)."""
        views = []
        for part in states.chunk(self.directions, dim=2):  # (batch, length, hidden / directions)
            views.append((self.labels.to(part.dtype) @ part.transpose(1, 2)) @ part)
        return torch.cat(views, dim=2)


@dataclass
class Lsan(NeuralModel):
    """Label-specific attention: self-attention and label attention over the words, fused label by label."""

    encoder: str = "bilstm"
    max_length: int = 500
    layers: int = 1
    encoder_rate: float = 1e-3
    epochs: int = 12
    dropout: float = 0.3
    attention: int = param(200, "size of the self-attention's hidden layer", minimum=1)
    dense: int = param(256, "size of the layer before the output", minimum=1)

    def _network(self, n_labels: int) -> nn.Module:
        return LsanNetwork(self._encoder(), n_labels, self.attention, self.dense, self.dropout)

    def _first_weights(self, network: nn.Module) -> None:
        assert isinstance(network, LsanNetwork)
        self._start_labels(network.labels)
