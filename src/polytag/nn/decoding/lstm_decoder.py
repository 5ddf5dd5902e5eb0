"""Decoders: what generates a document's labels one after the other, given the encoder's states.

Labels are numbered 0 .. L-1 as in the label set; L is <eos>, which ends a sequence, and L+1 is <bos>, which only begins one.
A decoder works on several hypotheses of every document at once, (batch, beam): what it keeps of a document (``Memory``) is there
once per document, what it keeps of a hypothesis (``State``) has the first two dimensions (batch, beam).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.config.groups.decoder_settings import AttentionSettings, DecoderSettings, SgmSettings
from polytag.errors import ConfigError
from polytag.nn.encoding.encoders import pool

_FAR = -1e30  # a weight of nothing in a softmax, which stays finite where a document has no token at all

State: TypeAlias = tuple[Tensor, ...]
"""What belongs to a hypothesis: tensors (batch, beam, ...), which beam search gathers along the second dimension."""
Memory: TypeAlias = Any
"""What belongs to a document, whatever a decoder likes; beam search only hands it back."""


class Decoder(nn.Module, ABC):
    """Generates labels; a subclass says how it starts and what one step does.

    The masked softmax (SGM, eq. 9 and 10) is done here: with ``mask``, labels that a hypothesis has already get minus infinity.
    """

    numbers: Tensor

    def __init__(self, n_labels: int, *, mask: bool = True) -> None:
        """Take the number of labels, and whether labels that were generated are ruled out afterwards."""
        super().__init__()
        self.n_labels = n_labels
        self.mask = mask
        numbers = torch.arange(n_labels + 1)
        numbers[n_labels] = -1  # <eos> can always come
        self.register_buffer("numbers", numbers, persistent=False)

    @property
    def eos(self) -> int:
        """The number of the end."""
        return self.n_labels

    @property
    def bos(self) -> int:
        """The number of the beginning."""
        return self.n_labels + 1

    # -- what a subclass says ---------------------------------------------------------------------------------------

    @abstractmethod
    def _start(self, states: Tensor, mask: Tensor) -> tuple[Memory, State]:
        """What is kept of the documents, and of one hypothesis each (batch, 1, ...), before the first step.

        ``states`` are (batch, length, hidden), ``mask`` (batch, length) is true where they mean something; both float32 / bool.
        """

    @abstractmethod
    def _step(self, previous: Tensor, seen: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """The logits (batch, beam, labels + 1), <eos> last, and the state after the labels ``previous`` (batch, beam).

        ``seen`` (batch, beam, labels + 1) is true where a label was generated already; it is for decoders whose state depends on
        the masked distribution, and the logits that are returned need not be masked.
        """

    # -- what others call -------------------------------------------------------------------------------------------

    def start(self, states: Tensor, mask: Tensor) -> tuple[Memory, State]:
        """Memory and state before the first step, which gets ``previous`` = <bos>."""
        memory, state = self._start(states, mask)
        seen = torch.zeros(len(states), 1, self.n_labels + 1, dtype=torch.bool, device=states.device)
        return memory, (seen, *state)

    def step(self, previous: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Masked logits (batch, beam, labels + 1) of what comes after ``previous`` (batch, beam), and the new state."""
        seen = state[0]
        if self.mask:
            seen = seen | (previous[..., None] == self.numbers)
        logits, rest = self._step(previous, seen, state[1:], memory)
        return self._ruled_out(logits, seen), (seen, *rest)

    def teacher(self, states: Tensor, mask: Tensor, inputs: Tensor) -> Tensor:
        """Masked logits (batch, T, labels + 1) after every one of the true labels ``inputs`` (batch, T), of which <bos> is first.

        The default is a loop of steps; a decoder that can do better overrides it, with ``seen_before`` for the mask.
        """
        memory, state = self.start(states, mask)
        found = []
        for previous in inputs.unbind(dim=1):
            logits, state = self.step(previous[:, None], state, memory)
            found.append(logits)
        return torch.cat(found, dim=1)

    def seen_before(self, inputs: Tensor) -> Tensor:
        """Which labels (batch, T, labels + 1) stand in the inputs (batch, T) up to each step; none if there is no mask."""
        found = inputs[..., None] == self.numbers
        return found.cumsum(dim=1) > 0 if self.mask else torch.zeros_like(found)

    def _ruled_out(self, logits: Tensor, seen: Tensor) -> Tensor:
        logits = logits.float()
        return logits.masked_fill(seen, float("-inf")) if self.mask else logits


@dataclass(frozen=True)
class LstmSettings:
    """How an LSTM decoder is built; its docstring says what the words mean."""

    size: int
    layers: int = 1
    embedding: int = 256
    attention: str = "additive"
    attention_size: int = 256
    query: str = "new"
    first_state: str = "ends"
    first_context: str = "attention"
    global_embedding: str = "none"
    proportion: float = 0.5
    gate: str = "sigmoid"
    dropout: float = 0.0
    mask: bool = True

    @classmethod
    def of(
        cls, hidden: int, sizes: tuple[DecoderSettings, AttentionSettings], sgm: SgmSettings, *, dropout: float, mask: bool
    ) -> LstmSettings:
        """From a model's groups of settings; ``hidden`` is the size of the encoder's states."""
        decoder, attention = sizes
        return cls(
            size=decoder.decoder_size or hidden, layers=decoder.decoder_layers, embedding=decoder.label_embedding,
            attention_size=attention.attention_size, dropout=dropout, mask=mask, **asdict(sgm),
        )  # fmt: skip


class _Documents(NamedTuple):
    """What the LSTM decoder keeps of the documents, and the weights per label with those of <eos> and <bos> behind them."""

    states: Tensor  # (batch, length, hidden)
    keys: Tensor  # (batch, length, attention)
    far: Tensor  # (batch, 1, length): 0, or far below it where there is padding
    table: Tensor  # (labels + 2, embedding)
    weight: Tensor  # (labels + 1, size)
    bias: Tensor  # (labels + 1,)


class LstmDecoder(Decoder):
    """SGM's decoder (eq. 4-14), and with other settings algorithm 1 of the BERT paper.

    ``e_ti = v^T tanh(W_a s_t + U_a h_i)`` (4), or ``h_i^T s_t`` for the attention ``dot``;
    ``c_t = sum_i softmax(e_t)_i h_i`` (5, 6); ``s_t = LSTM(s_{t-1}, [g(y_{t-1}); c_{t-1}])`` (7);
    ``o_t = W_o tanh(W_d s_t + V_d c_t)`` (8); masked softmax (9, 10).

    What the papers leave open, and what is done here:

    - *The first state.* SGM does not say; the BERT paper reads it as ``s_0 = f_init([h_m; h_1])``, the last outputs of both
      directions (``ends``). Algorithm 1 has ``W_init h_cls`` (``cls``). Here f_init is linear too; the first cell is zero.
    - *The first context.* SGM's figure has a c_0 beside s_0, so it is what s_0 attends to (``attention``). Algorithm 1 uses c_0
      without saying what it is; ``zero`` takes it as nothing.
    - *Who attends.* In (4) c_t belongs to the new state s_t (query ``new``); in algorithm 1 it is made from s_{t-1}, while the
      LSTM still reads c_{t-1}. ``old`` is that, letter by letter.
    - *g(y_{t-1})* is the embedding of the most probable label in the paper; under teacher forcing it is that of the true label,
      and in beam search that of the hypothesis's own label, since a sequence's probability (1) is conditioned on its own labels.
    - *The global embedding* ``(1 - H) e + H e_mean`` (11, 12): y_{t-1} also holds the probability of <eos>, so its embedding
      counts in e_mean; before the first step both are the embedding of <bos>. ``fixed``: H is one number (14).
    - *The gate* ``H = W_1 e + W_2 e_mean`` (13) has no sigmoid, though it follows the highway network, whose gate lies between 0
      and 1: the default is ``sigmoid``. Its matrices are L x L in the paper, which fits only if an embedding has as many numbers
      as there are labels; here they are as large as an embedding. ``linear`` with an embedding of that size is (13) itself.

    Weights per label have one row per label and no more, so that a network can grow by labels; <eos> and <bos> are kept apart.
    """

    def __init__(self, hidden: int, n_labels: int, settings: LstmSettings) -> None:
        """Take the size of the encoder's states, the number of labels and the settings."""
        super().__init__(n_labels, mask=settings.mask)
        s = self.settings = settings
        if s.attention == "dot" and s.size != hidden:
            raise ConfigError(f"dot-product attention needs a decoder as large as the states; set decoder_size={hidden} or 0")
        self.labels = nn.Parameter(torch.randn(n_labels, s.embedding) * 0.1)
        self.special = nn.Parameter(torch.randn(2, s.embedding) * 0.1)  # <eos>, <bos>
        if s.first_state != "zero":
            self.init = nn.Linear(hidden, s.layers * s.size)
        if s.attention == "additive":
            self.query = nn.Linear(s.size, s.attention_size)  # W_a
            self.key = nn.Linear(hidden, s.attention_size, bias=False)  # U_a
            self.energy = nn.Linear(s.attention_size, 1, bias=False)  # v_a
        sizes = [s.embedding + hidden] + [s.size] * (s.layers - 1)
        self.cells = nn.ModuleList(nn.LSTMCell(size, s.size) for size in sizes)
        if s.global_embedding == "adaptive":
            self.gate = nn.Linear(2 * s.embedding, s.embedding)  # [W_1 W_2]
        self.dropout = nn.Dropout(s.dropout)
        self.before = nn.Linear(s.size + hidden, s.size)  # [W_d V_d]
        self.output = nn.Linear(s.size, n_labels)  # W_o, without the row of <eos>
        self.stop = nn.Linear(s.size, 1)

    def _start(self, states: Tensor, mask: Tensor) -> tuple[_Documents, State]:
        s = self.settings
        far = torch.zeros_like(mask, dtype=states.dtype).masked_fill(~mask, _FAR)[:, None]
        memory = _Documents(
            states,
            self.key(states) if s.attention == "additive" else states,
            far,
            torch.cat([self.labels, self.special]),
            torch.cat([self.output.weight, self.stop.weight]),
            torch.cat([self.output.bias, self.stop.bias]),
        )
        zero = states.new_zeros(len(states), 1, s.size)
        first = [zero] * s.layers
        if s.first_state != "zero":
            first = list(self.init(_summary(states, mask, s.first_state))[:, None].split(s.size, dim=2))
        context = states.new_zeros(len(states), 1, states.shape[2])
        if s.first_context == "attention":
            context = self._attend(first[-1], memory)
        state = (*first, *[zero] * s.layers, context)
        if s.global_embedding != "none":
            state = (*state, self.special[1].expand(len(states), 1, -1))
        return memory, state

    def _step(self, previous: Tensor, seen: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        features, state = self._advance(previous, state, memory)
        logits = self._logits(features, memory)
        if self.settings.global_embedding != "none":
            y = torch.softmax(self._ruled_out(logits, seen), dim=2)  # (batch, beam, labels + 1)
            state = (*state, y @ memory.table[:-1])  # (11)
        return logits, state

    def teacher(self, states: Tensor, mask: Tensor, inputs: Tensor) -> Tensor:
        """As the base says; the output layer comes once for all steps where no step needs the distribution of the one before."""
        if self.settings.global_embedding != "none":
            return super().teacher(states, mask, inputs)
        memory, state = self._start(states, mask)
        found = []
        for previous in inputs.unbind(dim=1):
            features, state = self._advance(previous[:, None], state, memory)
            found.append(features)
        return self._ruled_out(self._logits(torch.cat(found, dim=1), memory), self.seen_before(inputs))

    def _advance(self, previous: Tensor, state: State, memory: _Documents) -> tuple[Tensor, State]:
        """[s_t; c_t] (batch, beam, size + hidden), and the state without the mean embedding."""
        s = self.settings
        hidden, cell, context = state[: s.layers], state[s.layers : 2 * s.layers], state[2 * s.layers]
        embedded = functional.embedding(previous, memory.table)  # (batch, beam, embedding)
        if s.global_embedding != "none":
            embedded = self._global(embedded, state[-1])
        x = self.dropout(torch.cat([embedded, context], dim=2)).flatten(0, 1)
        new_hidden, new_cell = [], []
        for number, layer in enumerate(self.cells):
            x = self.dropout(x) if number else x
            x, c = layer(x, (hidden[number].flatten(0, 1), cell[number].flatten(0, 1)))  # (7)
            new_hidden.append(x.unflatten(0, previous.shape))
            new_cell.append(c.unflatten(0, previous.shape))
        context = self._attend(new_hidden[-1] if s.query == "new" else hidden[-1], memory)
        return torch.cat([new_hidden[-1], context], dim=2), (*new_hidden, *new_cell, context)

    def _global(self, e: Tensor, mean: Tensor) -> Tensor:
        """The label's own embedding and the mean over the last distribution, mixed (12)."""
        if self.settings.global_embedding == "fixed":
            return (1 - self.settings.proportion) * e + self.settings.proportion * mean  # (14)
        share: Tensor = self.gate(torch.cat([e, mean], dim=2))  # (13)
        share = torch.sigmoid(share) if self.settings.gate == "sigmoid" else share
        return (1 - share) * e + share * mean

    def _attend(self, query: Tensor, memory: _Documents) -> Tensor:
        """The contexts (batch, beam, hidden) that states (batch, beam, size) attend to."""
        if self.settings.attention == "dot":
            energy = query @ memory.keys.transpose(1, 2)  # (batch, beam, length)
        else:
            both = self.query(query)[:, :, None] + memory.keys[:, None]  # (batch, beam, length, attention)
            energy = self.energy(torch.tanh(both)).squeeze(3)
        return torch.softmax(energy + memory.far, dim=2) @ memory.states

    def _logits(self, features: Tensor, memory: _Documents) -> Tensor:
        """o_t (batch, any, labels + 1) of [s_t; c_t] (8)."""
        return functional.linear(self.dropout(torch.tanh(self.before(features))), memory.weight, memory.bias)


def _summary(states: Tensor, mask: Tensor, how: str) -> Tensor:
    """One vector per document; ``ends``: the first half of the last token's state and the second half of the first token's."""
    if how != "ends":
        return pool(states, mask, how)
    last = (mask.sum(dim=1) - 1).clamp(min=0)  # (batch,)
    end = states[torch.arange(len(states), device=states.device), last]  # (batch, hidden)
    half = states.shape[2] // 2
    return torch.cat([end[:, :half], states[:, 0, half:]], dim=1)
