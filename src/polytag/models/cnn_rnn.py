"""CNN-RNN: a CNN encodes the text as one vector, and an LSTM generates the labels from it (Chen et al. 2017; SGM, 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.config.groups.decoder_settings import DecoderSettings
from polytag.config.groups.encoder_settings import EncoderSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.config.groups.window_settings import FilterSettings
from polytag.models.base.sequence_model import SequenceModel
from polytag.models.model import group, param
from polytag.nn.decoding.lstm_decoder import Decoder, Memory, State
from polytag.nn.encoding.convolution import KimFilters
from polytag.nn.encoding.encoders import Encoder

FED = ("both", "first", "steps")


@dataclass(frozen=True)
class CnnRnnSettings:
    """Settings of the decoder: its CNN, its LSTM, and where the document vector is fed."""

    widths: tuple[int, ...]
    filters: int
    size: int
    layers: int = 1
    embedding: int = 256
    fed: str = "both"
    dropout: float = 0.0
    mask: bool = True


class _Documents(NamedTuple):
    """The document vectors, and the weights of the labels followed by those of <eos> and <bos>."""

    vector: Tensor  # (batch, 1, widths * filters)
    table: Tensor  # (labels + 2, embedding)
    weight: Tensor  # (labels + 1, size)
    bias: Tensor  # (labels + 1,)


class CnnRnnDecoder(Decoder):
    """``v = max_i relu(W x_{i:i+h-1} + b)``, ``s_0 = W_s v``, ``s_t = LSTM(s_{t-1}, [e(y_{t-1}); v])``, ``o_t = W_o s_t``.

    There is no attention: v is the only input from the text. It gives the initial state (``first``), is fed at every step
    (``steps``), or both. The initial cell state is zero.
    """

    def __init__(self, hidden: int, n_labels: int, settings: CnnRnnSettings) -> None:
        """Build the decoder; ``hidden`` is the size of the encoder's states."""
        super().__init__(n_labels, mask=settings.mask)
        s = self.settings = settings
        self.filters = KimFilters(hidden, s.filters, s.widths)
        self.labels = nn.Parameter(torch.randn(n_labels, s.embedding) * 0.1)
        self.special = nn.Parameter(torch.randn(2, s.embedding) * 0.1)  # <eos>, <bos>
        if s.fed != "steps":
            self.init = nn.Linear(self.filters.size, s.layers * s.size)
        inputs = s.embedding + (self.filters.size if s.fed != "first" else 0)
        self.lstm = nn.ModuleList(nn.LSTM(s.size if number else inputs, s.size, batch_first=True) for number in range(s.layers))
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
        x = self._inputs(previous, memory).flatten(0, 1)[:, None]  # (batch * beam, 1, input)
        x, after = self._run(x, [part.flatten(0, 1) for part in state])
        return self._logits(x.view(*previous.shape, -1), memory), tuple(part.view(*previous.shape, -1) for part in after)

    def teacher(self, states: Tensor, mask: Tensor, inputs: Tensor, last: Tensor | None = None) -> Tensor:
        """See the base class; all steps are one call of the LSTM and of the output layer."""
        memory, state = self._start(states, mask)
        x, _ = self._run(self._inputs(inputs, memory), [part[:, 0] for part in state])
        return self._ruled_out(self._logits(x, memory), self.seen_before(inputs))

    def _inputs(self, labels: Tensor, memory: _Documents) -> Tensor:
        """[e(y); v] (batch, any, input) of labels (batch, any)."""
        embedded: Tensor = self.dropout(functional.embedding(labels, memory.table))
        if self.settings.fed == "first":
            return embedded
        return torch.cat([embedded, memory.vector.expand(-1, labels.shape[1], -1)], dim=2)

    def _run(self, x: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The top layer's states (rows, T, size) for inputs (rows, T, input), and the final states of all layers (rows, size)."""
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
    """A CNN encodes the text as one vector; an LSTM generates the labels from it, frequent ones first."""

    encoding: EncoderSettings = group(EncoderSettings, without=("pooling", "window_pooling"), encoder="words", max_length=500)
    training: TrainingSettings = group(TrainingSettings, encoder_rate=1e-3, epochs=12, dropout=0.3)
    convolution: FilterSettings = group(FilterSettings)
    decoder: DecoderSettings = group(DecoderSettings, limits={"decoder_size": (1, None), "decoder_layers": (1, 8)})
    fed: str = param("both", "use of the document vector: as the first state, as input of every step, or both", choices=FED)

    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        settings = CnnRnnSettings(
            widths=tuple(self.convolution.widths),
            filters=self.convolution.filters,
            size=self.decoder.decoder_size,
            layers=self.decoder.decoder_layers,
            embedding=self.decoder.label_embedding,
            fed=self.fed,
            dropout=self.training.dropout,
            mask=self.sequence.mask_repeats,
        )
        return CnnRnnDecoder(encoder.hidden, n_labels, settings)
