"""Decoders, which generate the labels of a document one by one from the encoder's states.

Labels have the indices 0 .. L-1 of the label set. L is <eos>, which ends a sequence, and L+1 is <bos>, which begins one.
A decoder processes several hypotheses of every document at once. ``Memory`` is what it keeps per document. ``State`` is what it
keeps per hypothesis; its first two dimensions are (batch, beam).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.config.groups.decoder_settings import BILSTM_FIRST_STATES, AttentionSettings, DecoderSettings, SgmSettings
from polytag.errors import ConfigError
from polytag.nn.decoding.recurrent_products import Repeated, energy, lstm_cell
from polytag.nn.encoding.encoders import pool

_FAR = -1e30  # masks padding in a softmax; finite, so that a document without tokens does not give NaN

State: TypeAlias = tuple[Tensor, ...]
"""The state of the hypotheses: tensors (batch, beam, ...), which beam search gathers along the second dimension."""
Memory: TypeAlias = Any
"""What a decoder keeps per document; beam search passes it back unchanged."""


class Decoder(nn.Module, ABC):
    """Base class: generates labels; a subclass defines the start and one step.

    The masked softmax (SGM, eq. 9 and 10) is computed here. With ``mask``, labels that a hypothesis contains get minus infinity.
    """

    numbers: Tensor
    from_last: bool = False
    """Whether the initial state depends on the final states of the encoder's layers."""

    def __init__(self, n_labels: int, *, mask: bool = True) -> None:
        """Set the number of labels, and whether generated labels are masked in later steps."""
        super().__init__()
        self.n_labels = n_labels
        self.mask = mask
        numbers = torch.arange(n_labels + 1)
        numbers[n_labels] = -1  # <eos> is never masked
        self.register_buffer("numbers", numbers, persistent=False)

    @property
    def eos(self) -> int:
        """The index of <eos>."""
        return self.n_labels

    @property
    def bos(self) -> int:
        """The index of <bos>."""
        return self.n_labels + 1

    # -- what subclasses define --------------------------------------------------------------------------------------

    @abstractmethod
    def _start(self, states: Tensor, mask: Tensor, last: Tensor | None = None) -> tuple[Memory, State]:
        """The memory of the documents, and the state of one hypothesis each (batch, 1, ...), before the first step.

        ``states`` (batch, length, hidden) are float32; ``mask`` (batch, length) is False for padding.
        ``last`` (batch, last size) are the final states of the encoder's layers, for a decoder with ``from_last``.
        """

    @abstractmethod
    def _step(self, previous: Tensor, seen: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """The logits (batch, beam, labels + 1), <eos> last, and the state after the labels ``previous`` (batch, beam).

        ``seen`` (batch, beam, labels + 1) is True for labels that were generated, for decoders whose state depends on the masked
        distribution. The returned logits need not be masked.
        """

    # -- the interface -----------------------------------------------------------------------------------------------

    def start(self, states: Tensor, mask: Tensor, last: Tensor | None = None) -> tuple[Memory, State]:
        """Memory and state before the first step, whose ``previous`` is <bos>."""
        memory, state = self._start(states, mask, last)
        seen = torch.zeros(len(states), 1, self.n_labels + 1, dtype=torch.bool, device=states.device)
        return memory, (seen, *state)

    def step(self, previous: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Masked logits (batch, beam, labels + 1) of the step after ``previous`` (batch, beam), and the new state."""
        seen = state[0]
        if self.mask:
            seen = seen | (previous[..., None] == self.numbers)
        logits, rest = self._step(previous, seen, state[1:], memory)
        return self._ruled_out(logits, seen), (seen, *rest)

    def teacher(self, states: Tensor, mask: Tensor, inputs: Tensor, last: Tensor | None = None) -> Tensor:
        """Teacher forcing: masked logits (batch, T, labels + 1) after each of the true labels ``inputs`` (batch, T), <bos> first.

        The default is a loop of steps. A faster decoder overrides it, with ``seen_before`` for the mask.
        """
        memory, state = self.start(states, mask, last)
        found = []
        for previous in inputs.unbind(dim=1):
            logits, state = self.step(previous[:, None], state, memory)
            found.append(logits)
        return torch.cat(found, dim=1)

    def attention(self, states: Tensor, mask: Tensor, inputs: Tensor, last: Tensor | None = None) -> Tensor | None:
        """Attention weights (batch, T, length) of the steps after each of the labels ``inputs`` (batch, T), <bos> first.

        None if the decoder does not attend to the document, or has several attentions.
        """
        return None

    def seen_before(self, inputs: Tensor) -> Tensor:
        """Which labels (batch, T, labels + 1) occur in the inputs (batch, T) up to each step; none without a mask."""
        found = inputs[..., None] == self.numbers
        return found.cumsum(dim=1) > 0 if self.mask else torch.zeros_like(found)

    def _ruled_out(self, logits: Tensor, seen: Tensor) -> Tensor:
        logits = logits.float()
        return logits.masked_fill(seen, float("-inf")) if self.mask else logits


@dataclass(frozen=True)
class LstmSettings:
    """Settings of an LSTM decoder, whose docstring explains them."""

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
        """Build them from a model's groups of settings; ``hidden`` is the size of the encoder's states."""
        decoder, attention = sizes
        return cls(
            size=decoder.decoder_size or hidden, layers=decoder.decoder_layers, embedding=decoder.label_embedding,
            attention_size=attention.attention_size, dropout=dropout, mask=mask, **asdict(sgm),
        )  # fmt: skip


def check_first_state(first_state: str, encoder: str, kind: str) -> None:
    """Refuse an initial state that is made of a BiLSTM's final states if the encoder is of another kind."""
    if first_state in BILSTM_FIRST_STATES and kind != "bilstm":
        raise ConfigError(
            f"first_state={first_state!r} needs a BiLSTM, but the encoder is {encoder!r}; "
            "set first_state to cls, mean or zero, or encoder to bilstm"
        )


class _Documents(NamedTuple):
    """What the LSTM decoder keeps per document, and the products with weights that are the same at every step."""

    table: Tensor  # (labels + 2, embedding): the label embeddings, followed by those of <eos> and <bos>
    far: Tensor  # (batch, 1, length): the additive attention mask, 0 or _FAR for padding
    keys: Tensor  # (batch, length, attention) for additive attention, empty for ``dot``
    energy: Tensor  # (attention,) for additive attention, empty for ``dot``
    context: Repeated  # attention weights (length) to the context vector (hidden)
    query: Repeated  # state (size) to query (attention); for ``dot`` to the energies (length)
    cells: list[Repeated]  # input and previous state of a layer to its gates
    mean: Repeated | None  # distribution (labels + 1) to its mean embedding, and to the product W_2 e_mean of the gate (13)
    before: Repeated  # [s; c] (size + hidden) to the last hidden layer (size)
    output: Repeated  # last hidden layer (size) to logits (labels + 1)


class LstmDecoder(Decoder):
    """SGM's decoder (eq. 4-14), and with other settings algorithm 1 of the BERT paper.

    ``e_ti = v^T tanh(W_a s_t + U_a h_i)`` (4), or ``h_i^T s_t`` with the attention ``dot``;
    ``c_t = sum_i softmax(e_t)_i h_i`` (5, 6); ``s_t = LSTM(s_{t-1}, [g(y_{t-1}); c_{t-1}])`` (7);
    ``o_t = W_o tanh(W_d s_t + V_d c_t)`` (8); masked softmax (9, 10).

    Where the papers are ambiguous, our choices are:

    - *The initial state.* SGM does not define it. The BERT paper interprets it as ``s_0 = f_init([h_m; h_1])``, the last outputs
      of both directions (``ends``). Algorithm 1 has ``W_init h_cls`` (``cls``). Here f_init is linear too, and the initial cell
      state is zero. SGM's published code passes on the final hidden and cell state of every layer, those of one direction.
      ``layers`` takes those of both directions, and f_init makes the initial hidden and cell states from them.
    - *The initial context.* SGM's figure has a c_0 next to s_0, so it is the context vector of s_0 (``attention``). Algorithm 1
      uses c_0 without a definition; ``zero`` sets it to zero.
    - *The query.* In (4), c_t depends on the new state s_t (query ``new``). In algorithm 1 it depends on s_{t-1}, while the input
      of the LSTM is still c_{t-1}; ``old`` follows this literally.
    - *g(y_{t-1})* is the embedding of the most probable label in the paper. With teacher forcing it is that of the true label. In
      beam search it is that of the hypothesis's label, because the probability of a sequence (1) is conditioned on its labels.
    - *The global embedding* ``(1 - H) e + H e_mean`` (11, 12): y_{t-1} also contains the probability of <eos>, so the embedding
      of <eos> is part of e_mean. Before the first step, both are the embedding of <bos>. With ``fixed``, H is one number (14).
    - *The gate* ``H = W_1 e + W_2 e_mean`` (13) has no sigmoid, though it follows the highway network, whose gate is between 0
      and 1; the default is ``sigmoid``. In the paper its matrices are L x L, which requires embeddings of size L. Here they have
      the size of an embedding. ``linear`` with embeddings of size L is (13) itself.

    Weights per label have exactly one row per label, so that labels can be added; <eos> and <bos> have separate weights.
    """

    def __init__(self, hidden: int, n_labels: int, settings: LstmSettings, last_size: int = 0) -> None:
        """Build the decoder; ``hidden`` is the size of the encoder's states, ``last_size`` that of its final states."""
        super().__init__(n_labels, mask=settings.mask)
        s = self.settings = settings
        self.from_last = s.first_state == "layers"
        if s.attention == "dot" and s.size != hidden:
            raise ConfigError(f"dot-product attention needs a decoder as large as the states; set decoder_size={hidden} or 0")
        self.labels = nn.Parameter(torch.randn(n_labels, s.embedding) * 0.1)
        self.special = nn.Parameter(torch.randn(2, s.embedding) * 0.1)  # <eos>, <bos>
        if self.from_last:
            self.init = nn.Linear(last_size, 2 * s.layers * s.size)
        elif s.first_state != "zero":
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

    def _start(self, states: Tensor, mask: Tensor, last: Tensor | None = None) -> tuple[_Documents, State]:
        s = self.settings
        memory = self._remember(states, mask)
        first = self._first(states, mask, last)
        context = states.new_zeros(len(states), 1, states.shape[2])
        if s.first_context == "attention":
            context = self._attend(first[s.layers - 1], memory)
        state = (*first, context)
        if s.global_embedding != "none":
            mean = self.special[1]  # before the first step, the embedding of <bos>
            if s.global_embedding == "adaptive":
                mean = torch.cat([mean, functional.linear(mean, self.gate.weight[:, s.embedding :])])
            state = (*state, mean.expand(len(states), 1, -1))
        return memory, state

    def _first(self, states: Tensor, mask: Tensor, last: Tensor | None) -> list[Tensor]:
        """The initial hidden state of every layer, then the initial cell states, all (batch, 1, size)."""
        s = self.settings
        zeros = [states.new_zeros(len(states), 1, s.size)] * s.layers
        if s.first_state == "zero":
            return zeros + zeros
        if self.from_last:
            assert last is not None
            return list(self.init(last)[:, None].split(s.size, dim=2))
        return list(self.init(_summary(states, mask, s.first_state))[:, None].split(s.size, dim=2)) + zeros

    def _remember(self, states: Tensor, mask: Tensor) -> _Documents:
        """Everything that depends on the documents and the weights only, and not on the step."""
        s = self.settings
        additive = s.attention == "additive"
        table = torch.cat([self.labels, self.special])
        cells = [layer for layer in self.cells if isinstance(layer, nn.LSTMCell)]
        weights = [torch.cat([layer.weight_ih, layer.weight_hh], dim=1) for layer in cells]
        return _Documents(
            table,
            torch.zeros_like(mask, dtype=states.dtype).masked_fill(~mask, _FAR)[:, None],
            self.key(states) if additive else states.new_zeros(0),
            self.energy.weight[0] if additive else states.new_zeros(0),
            Repeated(states),
            Repeated(self.query.weight, self.query.bias) if additive else Repeated(states.transpose(1, 2)),
            [Repeated(weight, cell.bias_ih + cell.bias_hh) for weight, cell in zip(weights, cells, strict=True)],
            self._means(table[:-1]),
            Repeated(self.before.weight, self.before.bias),
            Repeated(torch.cat([self.output.weight, self.stop.weight]), torch.cat([self.output.bias, self.stop.bias])),
        )

    def _means(self, table: Tensor) -> Repeated | None:
        """Distributions over labels and <eos> to mean embeddings (11), and in the same product to ``W_2 e_mean`` (13)."""
        if self.settings.global_embedding == "adaptive":
            table = torch.cat([table, functional.linear(table, self.gate.weight[:, self.settings.embedding :])], dim=1)
        return None if self.settings.global_embedding == "none" else Repeated(table.T)

    def _step(self, previous: Tensor, seen: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        features, state = self._advance(*self._fed(previous, memory), state, memory)
        logits = self._logits(features, memory)
        return logits, (*state, *self._mean(self._ruled_out(logits, seen), memory))

    def teacher(self, states: Tensor, mask: Tensor, inputs: Tensor, last: Tensor | None = None) -> Tensor:
        """See the base class; what does not depend on the previous step is computed once for all steps.

        These are the embeddings and masks of the true labels and, without the global embedding, the output layer.
        """
        memory, state = self._start(states, mask, last)
        barred = self._ruled_out(states.new_zeros(*inputs.shape, self.n_labels + 1), self.seen_before(inputs))  # (10)
        fed = [torch.split(part, 1, dim=1) for part in (*self._fed(inputs, memory), barred)]
        found = []
        for embedded, gate, ruled_out in zip(*fed, strict=True):
            features, state = self._advance(embedded, gate, state, memory)
            if memory.mean is not None:
                features = self._logits(features, memory) + ruled_out
                state = (*state, *self._mean(features, memory))
            found.append(features)
        features = torch.cat(found, dim=1)
        return features if memory.mean is not None else self._logits(features, memory) + barred

    def attention(self, states: Tensor, mask: Tensor, inputs: Tensor, last: Tensor | None = None) -> Tensor:
        """The weights of (5), computed again from the states, so that decoding does not have to keep them."""
        memory, state = self.start(states, mask, last)
        found = []
        for previous in inputs.unbind(dim=1):
            before = state
            _, state = self.step(previous[:, None], state, memory)
            asking = state if self.settings.query == "new" else before
            found.append(self._weights(asking[self.settings.layers], memory))  # the first of the state is what was seen
        return torch.cat(found, dim=1)

    def _fed(self, labels: Tensor, memory: _Documents) -> tuple[Tensor, Tensor]:
        """The embeddings e (batch, any, embedding) of labels, and ``W_1 e`` of the gate (13); without a gate, e again."""
        embedded = functional.embedding(labels, memory.table)
        if self.settings.global_embedding != "adaptive":
            return embedded, embedded
        return embedded, functional.linear(embedded, self.gate.weight[:, : self.settings.embedding], self.gate.bias)

    def _advance(self, embedded: Tensor, gate: Tensor, state: State, memory: _Documents) -> tuple[Tensor, State]:
        """[s_t; c_t] (batch, beam, size + hidden), and the new state without the mean embedding."""
        s = self.settings
        hidden, cell, context = state[: s.layers], state[s.layers : 2 * s.layers], state[2 * s.layers]
        if s.global_embedding != "none":
            embedded = self._global(embedded, gate, state[-1])
        x = torch.cat([embedded, context], dim=2)
        rows = x.shape[:2]
        new_hidden, new_cell = [], []
        for number, layer in enumerate(memory.cells):
            gates = layer(torch.cat([self.dropout(x), hidden[number]], dim=2)).flatten(0, 1)
            x, c = lstm_cell(gates, cell[number].flatten(0, 1))  # (7)
            x = x.view(*rows, -1)
            new_hidden.append(x)
            new_cell.append(c.view(*rows, -1))
        context = self._attend(x if s.query == "new" else hidden[-1], memory)
        return torch.cat([x, context], dim=2), (*new_hidden, *new_cell, context)

    def _global(self, e: Tensor, gate: Tensor, mean: Tensor) -> Tensor:
        """The weighted sum of the label embedding and the mean embedding of the previous distribution (12)."""
        if self.settings.global_embedding == "fixed":
            return torch.lerp(e, mean, self.settings.proportion)  # (14)
        mean, share = mean.chunk(2, dim=2)
        share = share + gate  # (13)
        return torch.lerp(e, mean, torch.sigmoid(share) if self.settings.gate == "sigmoid" else share)

    def _mean(self, logits: Tensor, memory: _Documents) -> tuple[Tensor, ...]:
        """The mean embedding (9, 11) for masked logits (batch, beam, labels + 1); nothing without the global embedding."""
        return () if memory.mean is None else (memory.mean(torch.softmax(logits, dim=2)),)

    def _attend(self, query: Tensor, memory: _Documents) -> Tensor:
        """The context vectors (batch, beam, hidden) of states (batch, beam, size)."""
        return memory.context(self._weights(query, memory))

    def _weights(self, query: Tensor, memory: _Documents) -> Tensor:
        """The attention weights (batch, beam, length) of states (batch, beam, size)."""
        found = memory.query(query)  # (batch, beam, attention), or (batch, beam, length)
        if self.settings.attention == "additive":
            found = energy(found, memory.keys, memory.energy)  # (batch, beam, length)
        return torch.softmax(found + memory.far, dim=2)

    def _logits(self, features: Tensor, memory: _Documents) -> Tensor:
        """o_t (batch, any, labels + 1) of [s_t; c_t] (8)."""
        return memory.output(self.dropout(torch.tanh(memory.before(features))))


def _summary(states: Tensor, mask: Tensor, how: str) -> Tensor:
    """One vector per document; ``ends``: the first half of the last token's state and the second half of the first token's."""
    if how != "ends":
        return pool(states, mask, how)
    last = (mask.sum(dim=1) - 1).clamp(min=0)  # (batch,)
    end = states[torch.arange(len(states), device=states.device), last]  # (batch, hidden)
    half = states.shape[2] // 2
    return torch.cat([end[:, :half], states[:, 0, half:]], dim=1)
