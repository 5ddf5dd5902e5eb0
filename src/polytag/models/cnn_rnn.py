"""CNN-RNN: convolutions make one vector of the text, and an LSTM generates the labels from it (Chen et al. 2017; sgm, 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.models.model import param
from polytag.models.sequence_model import SequenceModel
from polytag.nn.convolution import KimFilters
from polytag.nn.decoders import Decoder, Memory, State
from polytag.nn.encoders import Encoder

FED = ("both", "first", "steps")


@dataclass(frozen=True)
class CnnRnnSettings:
    """How the decoder is built: its CNN, its LSTM, and where the document's vector is fed."""

    widths: tuple[int, ...]
    filters: int
    size: int
    layers: int = 1
    embedding: int = 256
    fed: str = "both"
    dropout: float = 0.0
    mask: bool = True


class _Documents(NamedTuple):
    """What is kept of the documents, and the weights per label with those of <eos> and <bos> behind them."""

    vector: Tensor  # (batch, 1, widths * filters)
    table: Tensor  # (labels + 2, embedding)
    weight: Tensor  # (labels + 1, size)
    bias: Tensor  # (labels + 1,)


class CnnRnnDecoder(Decoder):
    """``v = max_i relu(W x_{i:i+h-1} + b)``, ``s_0 = W_s v``, ``s_t = LSTM(s_{t-1}, [e(y_{t-1}); v])``, ``o_t = W_o s_t``.

    Nothing attends to the text: all that the LSTM knows of it is v, which gives its first state (``first``), is fed at every step
    (``steps``), or both. The first cell is zero.
    """

    def __init__(self, hidden: int, n_labels: int, settings: CnnRnnSettings) -> None:
        """Take the size of the encoder's states, the number of labels and the settings."""
        super().__init__(n_labels, mask=settings.mask)
        s = self.settings = settings
        self.filters = KimFilters(hidden, s.filters, s.widths)
        self.labels = nn.Parameter(torch.randn(n_labels, s.embedding) * 0.1)
        self.special = nn.Parameter(torch.randn(2, s.embedding) * 0.1)  # <eos>, <bos>
        if s.fed != "steps":
            self.init = nn.Linear(self.filters.size, s.layers * s.size)
        read = s.embedding + (self.filters.size if s.fed != "first" else 0)
        self.lstm = nn.ModuleList(nn.LSTM(s.size if number else read, s.size, batch_first=True) for number in range(s.layers))
        self.dropout = nn.Dropout(s.dropout)
        self.output = nn.Linear(s.size, n_labels)  # W_o, without the row of <eos>
        self.stop = nn.Linear(s.size, 1)

    def _start(self, states: Tensor, mask: Tensor, last: Tensor | None = None) -> tuple[_Documents, State]:
        s = self.settings
        vector = self.dropout(self.filters(states, mask))[:, None]  # (batch, 1, widths * filters)
        memory = _Documents(
            vector,
            torch.cat([self.labels, self.special]),
            torch.cat([self.output.weight, self.stop.weight]),
            torch.cat([self.output.bias, self.stop.bias]),
        )
        zero = states.new_zeros(len(states), 1, s.size)
        first = self.init(vector).split(s.size, dim=2) if s.fed != "steps" else [zero] * s.layers
        return memory, (*first, *[zero] * s.layers)

    def _step(self, previous: Tensor, seen: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        x = self._inputs(previous, memory).flatten(0, 1)[:, None]  # (batch * beam, 1, read)
        x, after = self._run(x, [part.flatten(0, 1) for part in state])
        return self._logits(x.view(*previous.shape, -1), memory), tuple(part.view(*previous.shape, -1) for part in after)

    def teacher(self, states: Tensor, mask: Tensor, inputs: Tensor, last: Tensor | None = None) -> Tensor:
        """As the base says; the LSTM reads all labels in one call, and the output layer comes once."""
        memory, state = self._start(states, mask)
        x, _ = self._run(self._inputs(inputs, memory), [part[:, 0] for part in state])
        return self._ruled_out(self._logits(x, memory), self.seen_before(inputs))

    def _inputs(self, labels: Tensor, memory: _Documents) -> Tensor:
        """[e(y); v] (batch, any, read) of labels (batch, any)."""
        embedded: Tensor = self.dropout(functional.embedding(labels, memory.table))
        if self.settings.fed == "first":
            return embedded
        return torch.cat([embedded, memory.vector.expand(-1, labels.shape[1], -1)], dim=2)

    def _run(self, x: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The top layer's states (rows, T, size) for inputs (rows, T, read), and what every layer ends with (rows, size)."""
        layers, hidden, cells = self.settings.layers, [], []
        for number, layer in enumerate(self.lstm):
            before = state[number][None].contiguous(), state[layers + number][None].contiguous()
            x, (h, c) = layer(self.dropout(x) if number else x, before)
            hidden.append(h[0])
            cells.append(c[0])
        return x, hidden + cells

    def _logits(self, x: Tensor, memory: _Documents) -> Tensor:
        """o_t (batch, any, labels + 1)."""
        return functional.linear(self.dropout(x), memory.weight, memory.bias)


@dataclass
class CnnRnn(SequenceModel):
    """Convolution filters make one vector of the text; an LSTM generates the labels from it, frequent ones first."""

    encoder: str = "words"
    max_length: int = 500
    encoder_rate: float = 1e-3
    epochs: int = 12
    dropout: float = param(0.3, "dropout on the text's vector, the labels and before the output", minimum=0, maximum=0.95)
    widths: tuple[int, ...] = param((3, 4, 5), "widths of the filters, in words", minimum=1)
    filters: int = param(256, "filters of each width", minimum=1)
    decoder_size: int = param(512, "size of the decoder's LSTM", minimum=1)
    decoder_layers: int = param(1, "layers of the decoder's LSTM", minimum=1, maximum=8)
    label_embedding: int = param(256, "size of a label's embedding", minimum=1)
    fed: str = param("both", "the text's vector gives the first state, is fed at every step, or both", choices=FED)

    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        settings = CnnRnnSettings(
            widths=tuple(self.widths),
            filters=self.filters,
            size=self.decoder_size,
            layers=self.decoder_layers,
            embedding=self.label_embedding,
            fed=self.fed,
            dropout=self.dropout,
            mask=self.mask_repeats,
        )
        return CnnRnnDecoder(encoder.hidden, n_labels, settings)
