"""The LSTM decoder against its equations (SGM 4-14, algorithm 1 of the BERT paper), written down for one document in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from polytag.config.groups.decoder_settings import AttentionSettings, DecoderSettings, SequenceSettings, SgmSettings
from polytag.errors import ConfigError
from polytag.nn.decoding import lstm_decoder
from polytag.nn.decoding.lstm_decoder import Decoder, LstmDecoder, LstmSettings
from toys import array

HIDDEN, LABELS = 6, 4
EOS, BOS = LABELS, LABELS + 1
INPUTS = torch.tensor([[BOS, 2, 0, 3], [BOS, 1, EOS, EOS], [BOS, EOS, EOS, EOS]])
LENGTHS = (5, 2, 1)
LAST = torch.randn(3, 8, generator=torch.Generator().manual_seed(3))  # what the encoder's layers end with

SETTINGS: dict[str, dict[str, Any]] = {
    "additive": {},
    "dot": {"attention": "dot", "size": HIDDEN},
    "algorithm 1": {"attention": "dot", "size": HIDDEN, "query": "old", "first_state": "cls"},
    "algorithm 1, literal": {"attention": "dot", "size": HIDDEN, "query": "old", "first_state": "cls", "first_context": "zero"},
    "from the mean": {"first_state": "mean"},
    "from nothing": {"first_state": "zero", "first_context": "zero"},
    "from every layer": {"first_state": "layers"},
    "from every layer to two": {"first_state": "layers", "layers": 2, "global_embedding": "adaptive"},
    "two layers": {"layers": 2},
    "no mask": {"mask": False},
    "adaptive": {"global_embedding": "adaptive"},
    "adaptive, literal": {"global_embedding": "adaptive", "gate": "linear", "embedding": LABELS},
    "adaptive, no mask": {"global_embedding": "adaptive", "mask": False},
    "fixed": {"global_embedding": "fixed", "proportion": 0.3},
    "all of it": {"global_embedding": "adaptive", "layers": 2, "query": "old", "first_context": "zero"},
}


def some_decoder(**options: Any) -> LstmDecoder:
    """A decoder in which nothing is zero, small or alike."""
    torch.manual_seed(0)
    settings = LstmSettings(**{"size": 7, "embedding": 3, "attention_size": 5, **options})
    decoder = LstmDecoder(HIDDEN, LABELS, settings, LAST.shape[1]).eval()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.7)
    return decoder


def documents(extra: int = 0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    states = torch.randn(3, 5, HIDDEN)
    mask = torch.arange(5 + extra) < torch.tensor(LENGTHS)[:, None]
    states = torch.cat([states, torch.full((3, extra, HIDDEN), 9.0)], dim=1)
    return torch.where(mask[..., None], states, 9.0), mask


def sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(1 / (1 + np.exp(-x)))


def softmax(x: NDArray[Any]) -> NDArray[Any]:
    e = np.exp(x - x.max())
    return np.asarray(e / e.sum())


def lstm(cell: Any, x: NDArray[Any], s: NDArray[Any], c: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    gates = array(cell.weight_ih) @ x + array(cell.bias_ih) + array(cell.weight_hh) @ s + array(cell.bias_hh)
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def attended(d: LstmDecoder, s: NDArray[Any], h: NDArray[Any]) -> NDArray[Any]:
    """(4), (5), (6), or the dot product of algorithm 1."""
    if d.settings.attention == "dot":
        e = np.array([h_i @ s for h_i in h])
    else:
        w_a, b_a, u_a, v_a = map(array, (d.query.weight, d.query.bias, d.key.weight, d.energy.weight))
        e = np.array([v_a[0] @ np.tanh(w_a @ s + b_a + u_a @ h_i) for h_i in h])
    return np.asarray(softmax(e) @ h)


def first_states(d: LstmDecoder, h: NDArray[Any], last: NDArray[Any]) -> list[NDArray[Any]]:
    """The state of every layer, then the cells."""
    how, size = d.settings.first_state, d.settings.size
    zeros = [np.zeros(size)] * d.settings.layers
    if how == "zero":
        return zeros + zeros
    if how == "layers":
        return np.split(array(d.init.weight) @ last + array(d.init.bias), 2 * d.settings.layers)
    summary = {"cls": h[0], "mean": h.mean(axis=0), "ends": np.append(h[-1, : HIDDEN // 2], h[0, HIDDEN // 2 :])}[how]
    return np.split(array(d.init.weight) @ summary + array(d.init.bias), d.settings.layers) + zeros


def mixed(d: LstmDecoder, e: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
    """(12) with the gate of (13), or with the lambda of (14)."""
    if d.settings.global_embedding == "none":
        return e
    if d.settings.global_embedding == "fixed":
        return np.asarray((1 - d.settings.proportion) * e + d.settings.proportion * mean)
    w_1, w_2 = np.split(array(d.gate.weight), 2, axis=1)
    gate = w_1 @ e + w_2 @ mean + array(d.gate.bias)
    gate = sigmoid(gate) if d.settings.gate == "sigmoid" else gate
    return np.asarray((1 - gate) * e + gate * mean)


def expected(d: LstmDecoder, h: NDArray[Any], last: NDArray[Any], inputs: list[int]) -> NDArray[Any]:
    """The masked logits after every input, for one document with the states h."""
    table = np.concatenate([array(d.labels), array(d.special)])
    w_o, b_o = np.vstack([array(d.output.weight), array(d.stop.weight)]), np.append(array(d.output.bias), array(d.stop.bias))
    first = first_states(d, h, last)
    s, cells = first[: d.settings.layers], first[d.settings.layers :]
    context = attended(d, s[-1], h) if d.settings.first_context == "attention" else np.zeros(HIDDEN)
    mean, seen, found = table[BOS], set(), []
    for label in inputs:
        x = np.append(mixed(d, table[label], mean), context)  # [g(y_{t-1}); c_{t-1}]
        before = s[-1]
        for layer in range(d.settings.layers):
            new, cell = lstm(d.cells[layer], x, s[layer], cells[layer])  # (7)
            s = [*s[:layer], new, *s[layer + 1 :]]
            cells = [*cells[:layer], cell, *cells[layer + 1 :]]
            x = new
        context = attended(d, s[-1] if d.settings.query == "new" else before, h)
        o = w_o @ np.tanh(array(d.before.weight) @ np.append(s[-1], context) + array(d.before.bias)) + b_o  # (8)
        seen |= {label} & set(range(LABELS))
        if d.settings.mask:
            o[list(seen)] = -np.inf  # (10)
        mean = softmax(o) @ table[: LABELS + 1]  # (9), (11)
        found.append(o)
    return np.array(found)


@pytest.mark.parametrize("extra", [0, 4])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_decoder_is_its_equations(name: str, extra: int) -> None:
    """However much is padded: the expected values know of no padding at all."""
    decoder = some_decoder(**SETTINGS[name])
    states, mask = documents(extra)
    found = array(decoder.teacher(states, mask, INPUTS, LAST))
    assert found.shape == (3, 4, LABELS + 1)
    for row, length in enumerate(LENGTHS):
        one = expected(decoder, array(states[row, :length]), array(LAST[row]), INPUTS[row].tolist())
        assert found[row] == pytest.approx(one, abs=1e-4)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_for_many_hypotheses_is_each_of_them(name: str) -> None:
    """Three hypotheses of every document at once, gathered from one another on the way as beam search does."""
    decoder = some_decoder(**SETTINGS[name])
    states, mask = documents()
    prefixes = torch.tensor([[BOS, 2, 0], [BOS, 2, 1], [BOS, 3, EOS]])  # (hypotheses, steps)
    memory, state = decoder.start(states, mask, LAST)
    logits, state = decoder.step(prefixes[:1, 0].expand(3, 1), state, memory)
    rows = torch.arange(3)[:, None]
    state = tuple(part[rows, torch.zeros(3, 3, dtype=torch.long)] for part in state)
    logits, state = decoder.step(prefixes[:, 1].expand(3, 3), state, memory)
    logits, state = decoder.step(prefixes[:, 2].expand(3, 3), state, memory)
    for hypothesis, prefix in enumerate(prefixes):
        alone = decoder.teacher(states, mask, prefix.expand(3, 3), LAST)[:, -1]
        assert torch.allclose(logits[:, hypothesis], alone, atol=1e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_teaching_is_a_loop_of_steps(name: str) -> None:
    decoder = some_decoder(**SETTINGS[name])
    told = (*documents(), INPUTS, LAST)
    assert torch.allclose(decoder.teacher(*told), Decoder.teacher(decoder, *told), atol=1e-5)


class Plain:
    """A product that autograd follows step by step."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        found = x @ (self.weight.T if self.weight.ndim == 2 else self.weight)
        return found if self.bias is None else found + self.bias


def gradients(decoder: LstmDecoder) -> dict[str, Tensor]:
    """Those of all weights, of the states, and of what the layers end with."""
    states, mask = documents(2)
    asked = {**dict(decoder.named_parameters()), "states": states.requires_grad_(), "last": LAST.clone().requires_grad_()}
    logits = decoder.teacher(states, mask, INPUTS, asked["last"])
    torch.manual_seed(6)
    loss = torch.where(logits.isneginf(), 0, logits * torch.randn_like(logits)).sum()
    found = torch.autograd.grad(loss, list(asked.values()), allow_unused=True)
    return {name: part for name, part in zip(asked, found, strict=True) if part is not None}


@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_are_those_that_autograd_finds_step_by_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = gradients(some_decoder(**SETTINGS[name]))
    monkeypatch.setattr(lstm_decoder, "Repeated", Plain)
    monkeypatch.setattr(lstm_decoder, "energy", lambda q, k, v: torch.tanh(q[:, :, None] + k[:, None]) @ v)
    there = gradients(some_decoder(**SETTINGS[name]))
    assert here.keys() == there.keys() and "states" in here
    for part in here:
        assert torch.allclose(here[part], there[part], atol=2e-5, rtol=1e-4), part


def test_the_mask_rules_out_labels_of_the_inputs_and_never_the_target_or_the_end() -> None:
    decoder = some_decoder()
    ruled_out = decoder.teacher(*documents(), INPUTS).isneginf()
    assert ruled_out[0].tolist() == [
        [False] * 5, [False, False, True, False, False], [True, False, True, False, False], [True, False, True, True, False],
    ]  # fmt: skip
    assert not ruled_out[..., EOS].any()
    assert not some_decoder(mask=False).teacher(*documents(), INPUTS).isneginf().any()


def test_all_weights_are_trained() -> None:
    for name, options in SETTINGS.items():
        decoder = some_decoder(**options)
        logits = decoder.teacher(*documents(), INPUTS, LAST)
        torch.where(logits.isneginf(), 0, logits).square().sum().backward()  # type: ignore[no-untyped-call]
        still = [at for at, p in decoder.named_parameters() if p.grad is None or not p.grad.any() or not p.grad.isfinite().all()]
        assert not still, name


def test_a_document_without_a_token_gets_numbers() -> None:
    states, mask = documents()
    assert some_decoder().teacher(states, mask & False, INPUTS)[:, 0].isfinite().all()


def test_dot_products_need_equal_sizes() -> None:
    with pytest.raises(ConfigError, match="decoder_size=6 or 0"):
        some_decoder(attention="dot")


def test_the_settings_of_a_decoder_are_those_of_its_groups() -> None:
    groups = (DecoderSettings(), AttentionSettings())
    found = LstmSettings.of(7, groups, SgmSettings(), dropout=0.0, mask=SequenceSettings().mask_repeats)
    assert found == LstmSettings(size=512, global_embedding="adaptive")
    assert LstmSettings.of(7, (DecoderSettings(decoder_size=0), groups[1]), SgmSettings(), dropout=0.0, mask=True).size == 7
