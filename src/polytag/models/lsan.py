"""LSAN: one document vector per label, from self-attention and label attention (Xiao et al. 2019; LACO, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.config.groups.decoder_settings import AttentionSettings
from polytag.config.groups.encoder_settings import EncoderSettings, WordSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.models.base.neural_model import NeuralModel
from polytag.models.model import group
from polytag.nn.encoding.encoders import BiLSTM, Encoder


class LsanNetwork(nn.Module):
    """One document vector per label, fused from two attentions.

    H (length, hidden) are the states; for a BiLSTM, both directions are concatenated. Self-attention
    ``A = softmax(W_2 tanh(W_1 H^T))`` over the words gives ``M_s = A H``. Label attention ``C H^T``, separate for each direction,
    gives ``M_l``. They are fused with the weights ``alpha = sigmoid(M_s w_3)`` and ``beta = sigmoid(M_l w_4)``, scaled to sum to
    one. The logit of a label is ``w_6 relu(W_5 m)`` of its fused vector m.
    A bias per label is added to the logit; otherwise rare labels would start at a probability of one half.
    """

    def __init__(self, encoder: Encoder, n_labels: int, attention: int, dense: int, dropout: float) -> None:
        """Add both attentions and the output layers to an encoder."""
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
        """The document vector of every label by self-attention (batch, labels, hidden)."""
        weights = self.second(torch.tanh(self.first(states))).transpose(1, 2)  # (batch, labels, length)
        weights = torch.softmax(weights.float().masked_fill(~mask[:, None], float("-inf")), dim=2).to(states.dtype)
        return weights @ states

    def label_attention(self, states: Tensor) -> Tensor:
        """The document vector of every label by label attention, separate for each direction (batch, labels, hidden)."""
        views = []
        for part in states.chunk(self.directions, dim=2):  # (batch, length, hidden / directions)
            views.append((self.labels.to(part.dtype) @ part.transpose(1, 2)) @ part)
        return torch.cat(views, dim=2)


@dataclass
class Lsan(NeuralModel):
    """Label-specific attention: self-attention and label attention over the words, fused label by label."""

    encoding: EncoderSettings = group(EncoderSettings, without=("pooling",), encoder="bilstm", max_length=500)
    words: WordSettings = group(WordSettings, layers=1)
    training: TrainingSettings = group(TrainingSettings, encoder_rate=1e-3, epochs=12, dropout=0.3)
    attending: AttentionSettings = group(AttentionSettings, without=("heads",), attention_size=200)

    def _network(self, n_labels: int) -> nn.Module:
        return LsanNetwork(self._encoder(), n_labels, self.attending.attention_size, self.attending.dense, self.training.dropout)

    def _first_weights(self, network: nn.Module) -> None:
        assert isinstance(network, LsanNetwork)
        self._start_labels(network.labels)
