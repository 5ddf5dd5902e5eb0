"""A transformer decoder: labels attend to the labels before them and to the encoder's states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.errors import ConfigError
from polytag.nn.decoders import Decoder, Memory, State

_FAR = -1e30  # a weight of nothing in a softmax, which stays finite where a document has no token at all


@dataclass(frozen=True)
class TransformerSettings:
    """How a transformer decoder is built; ``positions`` is how many places in a sequence have an embedding of their own."""

    size: int
    layers: int = 2
    heads: int = 8
    positions: int = 64
    dropout: float = 0.0
    mask: bool = True


class KeysValues(NamedTuple):
    """What can be attended to, both (rows, heads, places, size of a head)."""

    keys: Tensor
    values: Tensor


class _Documents(NamedTuple):
    """What is kept of the documents: for every layer what its labels look at, and the weights per label with <eos> and <bos>."""

    across: list[KeysValues]
    far: Tensor  # (batch, 1, 1, length): 0, or far below it where there is padding
    table: Tensor  # (labels + 2, size)
    weight: Tensor  # (labels + 1, size)
    bias: Tensor  # (labels + 1,)


class Attention(nn.Module):
    """Attention with several heads: ``softmax(Q K^T / sqrt(d)) V`` for each, joined and projected (Vaswani et al. 2017)."""

    def __init__(self, size: int, read: int, heads: int, dropout: float) -> None:
        """Take the size of what asks, that of what is read, the number of heads and the dropout on their weights."""
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(read, size)
        self.value = nn.Linear(read, size)
        self.join = nn.Linear(size, size)

    def keep(self, states: Tensor) -> KeysValues:
        """The keys and values of states (rows, places, read)."""
        return KeysValues(self._split(self.key(states)), self._split(self.value(states)))

    def forward(self, x: Tensor, kept: KeysValues, far: Tensor | None = None, causal: bool = False) -> Tensor:
        """What x (rows, places, size) finds; with ``causal``, a place looks at those up to itself."""
        dropout = self.dropout if self.training else 0.0
        found = functional.scaled_dot_product_attention(
            self._split(self.query(x)), kept.keys, kept.values, attn_mask=far, dropout_p=dropout, is_causal=causal
        )  # (rows, heads, places, size of a head)
        joined: Tensor = self.join(found.transpose(1, 2).flatten(2))
        return joined

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class TransformerLayer(nn.Module):
    """Self-attention, attention to the document, and two linear layers; each sees normalised input and is added to it."""

    def __init__(self, hidden: int, settings: TransformerSettings) -> None:
        """Take the size of the encoder's states and the settings."""
        super().__init__()
        size, dropout = settings.size, settings.dropout
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
        self.own = Attention(size, size, settings.heads, dropout)
        self.across = Attention(size, hidden, settings.heads, dropout)
        self.wide = nn.Linear(size, 4 * size)
        self.narrow = nn.Linear(4 * size, size)
        self.dropout = nn.Dropout(dropout)

    def learn(self, x: Tensor, across: KeysValues, far: Tensor) -> Tensor:
        """All places (batch, T, size) of the sequences at once."""
        normed = self.norms[0](x)
        x = x + self.dropout(self.own(normed, self.own.keep(normed), causal=True))
        return self._above(x, across, far)

    def advance(self, x: Tensor, past: KeysValues, across: KeysValues, far: Tensor) -> tuple[Tensor, KeysValues]:
        """One place of every hypothesis (batch, beam, size), and the past (batch, beam, heads, places, ...) with it."""
        normed = self.norms[0](x).flatten(0, 1)[:, None]  # (batch * beam, 1, size)
        now = self.own.keep(normed)
        kept = KeysValues(*(torch.cat([old.flatten(0, 1), new], dim=2) for old, new in zip(past, now, strict=True)))
        x = x + self.dropout(self.own(normed, kept).view_as(x))
        return self._above(x, across, far), KeysValues(*(part.view(*x.shape[:2], *part.shape[1:]) for part in kept))

    def _above(self, x: Tensor, across: KeysValues, far: Tensor) -> Tensor:
        """What follows the self-attention; it does not matter whether the second dimension is places or hypotheses."""
        x = x + self.dropout(self.across(self.norms[1](x), across, far))
        wide = self.dropout(functional.gelu(self.wide(self.norms[2](x))))  # (batch, any, 4 * size)
        found: Tensor = x + self.dropout(self.narrow(wide))
        return found


class TransformerDecoder(Decoder):
    """``x_t = E y_{t-1} + P_t``, layers over x_1 .. x_t and the document, ``o_t = W_o norm(x_t)``, masked softmax.

    The layers normalise what they read and not what they give (pre-norm): such a decoder can start from nothing above a trained
    encoder without a long warm-up. Places beyond the last that has an embedding share that one.
    The self-attention of all steps is one pass in training; step by step its keys and values are kept.
    """

    def __init__(self, hidden: int, n_labels: int, settings: TransformerSettings) -> None:
        """Take the size of the encoder's states, the number of labels and the settings."""
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
        """As the base says, all steps in one pass."""
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
