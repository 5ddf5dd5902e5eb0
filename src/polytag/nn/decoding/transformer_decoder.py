"""A transformer decoder: labels attend to the labels before them and to the encoder's states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.errors import ConfigError
from polytag.nn.decoding.lstm_decoder import Decoder, Memory, State

_FAR = -1e30  # masks padding in a softmax; finite, so that a document without tokens does not give NaN


@dataclass(frozen=True)
class TransformerSettings:
    """Settings of a transformer decoder; ``positions`` is the number of position embeddings."""

    size: int
    layers: int = 2
    heads: int = 8
    positions: int = 64
    dropout: float = 0.0
    mask: bool = True


class KeysValues(NamedTuple):
    """Keys and values of attention, both (rows, heads, positions, size of a head)."""

    keys: Tensor
    values: Tensor


class _Documents(NamedTuple):
    """Keys and values of the documents for every layer, and the weights of the labels followed by those of <eos> and <bos>."""

    across: list[KeysValues]
    far: Tensor  # (batch, 1, 1, length): the additive attention mask, 0 or _FAR for padding
    table: Tensor  # (labels + 2, size)
    weight: Tensor  # (labels + 1, size)
    bias: Tensor  # (labels + 1,)


class Attention(nn.Module):
    """Multi-head attention: ``softmax(Q K^T / sqrt(d)) V`` for each head, concatenated and projected (Vaswani et al. 2017)."""

    def __init__(self, size: int, inputs: int, heads: int, dropout: float) -> None:
        """Build the projections; ``size`` is that of queries and output, ``inputs`` that of the attended states."""
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(inputs, size)
        self.value = nn.Linear(inputs, size)
        self.join = nn.Linear(size, size)

    def keep(self, states: Tensor) -> KeysValues:
        """The keys and values of states (rows, positions, inputs)."""
        return KeysValues(self._split(self.key(states)), self._split(self.value(states)))

    def forward(self, x: Tensor, kept: KeysValues, far: Tensor | None = None, causal: bool = False) -> Tensor:
        """Attention output for the queries of x (rows, positions, size); ``causal`` masks later positions."""
        dropout = self.dropout if self.training else 0.0
        found = functional.scaled_dot_product_attention(
            self._split(self.query(x)), kept.keys, kept.values, attn_mask=far, dropout_p=dropout, is_causal=causal
        )  # (rows, heads, positions, size of a head)
        joined: Tensor = self.join(found.transpose(1, 2).flatten(2))
        return joined

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class TransformerLayer(nn.Module):
    """Self-attention, cross attention to the document, and a feed-forward layer; each pre-norm with a residual connection."""

    def __init__(self, hidden: int, settings: TransformerSettings) -> None:
        """Build the layer; ``hidden`` is the size of the encoder's states."""
        super().__init__()
        size, dropout = settings.size, settings.dropout
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
        self.own = Attention(size, size, settings.heads, dropout)
        self.across = Attention(size, hidden, settings.heads, dropout)
        self.wide = nn.Linear(size, 4 * size)
        self.narrow = nn.Linear(4 * size, size)
        self.dropout = nn.Dropout(dropout)

    def learn(self, x: Tensor, across: KeysValues, far: Tensor) -> Tensor:
        """All positions (batch, T, size) of the sequences at once, for training."""
        normed = self.norms[0](x)
        x = x + self.dropout(self.own(normed, self.own.keep(normed), causal=True))
        return self._above(x, across, far)

    def advance(self, x: Tensor, past: KeysValues, across: KeysValues, far: Tensor) -> tuple[Tensor, KeysValues]:
        """One position of every hypothesis (batch, beam, size), and the cache (batch, beam, heads, positions, ...) with it."""
        normed = self.norms[0](x).flatten(0, 1)[:, None]  # (batch * beam, 1, size)
        now = self.own.keep(normed)
        kept = KeysValues(*(torch.cat([old.flatten(0, 1), new], dim=2) for old, new in zip(past, now, strict=True)))
        x = x + self.dropout(self.own(normed, kept).view_as(x))
        return self._above(x, across, far), KeysValues(*(part.view(*x.shape[:2], *part.shape[1:]) for part in kept))

    def _above(self, x: Tensor, across: KeysValues, far: Tensor) -> Tensor:
        """Cross attention and feed-forward layer; the second dimension is positions or hypotheses."""
        x = x + self.dropout(self.across(self.norms[1](x), across, far))
        wide = self.dropout(functional.gelu(self.wide(self.norms[2](x))))  # (batch, any, 4 * size)
        found: Tensor = x + self.dropout(self.narrow(wide))
        return found


class TransformerDecoder(Decoder):
    """``x_t = E y_{t-1} + P_t``, layers over x_1 .. x_t and the document, ``o_t = W_o norm(x_t)``, masked softmax.

    The layers are pre-norm, so that a randomly initialised decoder on a pretrained encoder trains without a long warm-up.
    Positions after the last one with an embedding share that embedding.
    In training, self-attention processes all steps in one pass. In decoding, its keys and values are cached.
    """

    def __init__(self, hidden: int, n_labels: int, settings: TransformerSettings) -> None:
        """Build the decoder; ``hidden`` is the size of the encoder's states."""
        super().__init__(n_labels, mask=settings.mask)
        s = self.settings = settings
        if s.size % s.heads:
            raise ConfigError(f"heads={s.heads} does not divide the decoder's size {s.size}; set heads or decoder_size")
        self.labels = nn.Parameter(torch.randn(n_labels, s.size) * 0.1)
        self.special = nn.Parameter(torch.randn(2, s.size) * 0.1)  # <eos>, <bos>
        self.places = nn.Parameter(torch.randn(s.positions, s.size) * 0.1)
        self.layers = nn.ModuleList(TransformerLayer(hidden, s) for _ in range(s.layers))
        self.norm = nn.LayerNorm(s.size)
        self.dropout = nn.Dropout(s.dropout)
        self.output = nn.Linear(s.size, n_labels)  # W_o, without the row of <eos>
        self.stop = nn.Linear(s.size, 1)

    def _start(self, states: Tensor, mask: Tensor, last: Tensor | None = None) -> tuple[_Documents, State]:
        memory = self._remember(states, mask)
        s = self.settings
        nothing = states.new_zeros(len(states), 1, s.heads, 0, s.size // s.heads)
        return memory, (nothing,) * (2 * s.layers)

    def _remember(self, states: Tensor, mask: Tensor) -> _Documents:
        return _Documents(
            [layer.across.keep(states) for layer in self._layers()],
            torch.zeros_like(mask, dtype=states.dtype).masked_fill(~mask, _FAR)[:, None, None],
            torch.cat([self.labels, self.special]),
            torch.cat([self.output.weight, self.stop.weight]),
            torch.cat([self.output.bias, self.stop.bias]),
        )

    def _step(self, previous: Tensor, seen: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        place = min(state[0].shape[3], self.settings.positions - 1)
        x = self.dropout(functional.embedding(previous, memory.table) + self.places[place])  # (batch, beam, size)
        kept: list[Tensor] = []
        for number, (layer, across) in enumerate(zip(self._layers(), memory.across, strict=True)):
            past = KeysValues(*state[2 * number : 2 * number + 2])
            x, new = layer.advance(x, past, across, memory.far)
            kept += new
        return self._logits(x, memory), tuple(kept)

    def teacher(self, states: Tensor, mask: Tensor, inputs: Tensor, last: Tensor | None = None) -> Tensor:
        """See the base class; all steps in one pass."""
        memory = self._remember(states, mask)
        place = torch.arange(inputs.shape[1], device=inputs.device).clamp(max=self.settings.positions - 1)
        x = self.dropout(functional.embedding(inputs, memory.table) + self.places[place])  # (batch, T, size)
        for layer, across in zip(self._layers(), memory.across, strict=True):
            x = layer.learn(x, across, memory.far)
        return self._ruled_out(self._logits(x, memory), self.seen_before(inputs))

    def _layers(self) -> list[TransformerLayer]:
        return [layer for layer in self.layers if isinstance(layer, TransformerLayer)]

    def _logits(self, x: Tensor, memory: _Documents) -> Tensor:
        """o_t (batch, any, labels + 1)."""
        return functional.linear(self.dropout(self.norm(x)), memory.weight, memory.bias)
