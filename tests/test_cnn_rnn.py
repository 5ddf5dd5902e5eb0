"""The model ``cnn-rnn``: its equations in numpy, step by step as all at once, and learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from polytag.classifier import Classifier
from polytag.metrics.of_sets import micro_f1
from polytag.models.cnn_rnn import FED, CnnRnnDecoder, CnnRnnSettings
from polytag.nn.decoding.label_sequences import inputs_for
from polytag.nn.encoding.convolution import Filters, KimFilters
from toys import array, shaken, states_of, toy_corpus

LENGTHS = [6, 1, 3]
SEQUENCES = torch.tensor([[2, 0, 4, 5], [1, 5, -1, -1], [5, -1, -1, -1]])  # 5 is <eos>, -1 comes after it


def decoder(**other: Any) -> CnnRnnDecoder:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"widths": (2, 3), "filters": 4, "size": 6, "layers": 1, "embedding": 5, **other}
    made = CnnRnnDecoder(7, 5, CnnRnnSettings(**settings)).eval()
    return shaken(made)


def documents(extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return states_of(LENGTHS, 7, extra)


def sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(1 / (1 + np.exp(-x)))


def vector_of(filters: KimFilters, x: NDArray[Any]) -> NDArray[Any]:
    """v: for every filter the largest value over the places where it lies inside the text, or that of a text too short for it."""
    found: list[float] = []
    for part in filters:
        assert isinstance(part, Filters)
        w, b = array(part.convolution.weight), array(part.convolution.bias)  # type: ignore[arg-type]
        text = np.concatenate([x, np.zeros((max(0, part.width - len(x)), x.shape[1]))])
        for one, bias in zip(w, b, strict=True):
            found.append(max(max(0, (one.T * text[i : i + part.width]).sum() + bias) for i in range(len(text) - part.width + 1)))
    return np.array(found)


def lstm(cell: Any, x: NDArray[Any], h: NDArray[Any], c: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """One step of Hochreiter and Schmidhuber's cell with a forget gate."""
    gates = array(cell.weight_ih_l0) @ x + array(cell.bias_ih_l0) + array(cell.weight_hh_l0) @ h + array(cell.bias_hh_l0)
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def logits_of(net: CnnRnnDecoder, x: NDArray[Any], labels: list[int]) -> list[NDArray[Any]]:
    """The equations, for one document with the states x and the labels so far, <bos> first."""
    s, v = net.settings, vector_of(net.filters, x)
    table = np.concatenate([array(net.labels), array(net.special)])
    hidden = [np.zeros(s.size)] * s.layers
    if s.fed != "steps":
        hidden = np.split(array(net.init.weight) @ v + array(net.init.bias), s.layers)
    cell = [np.zeros(s.size)] * s.layers
    found, seen = [], []
    for y in labels:
        seen += [y] if y < 5 else []
        read = table[y] if s.fed == "first" else np.concatenate([table[y], v])
        for number, layer in enumerate(net.lstm):
            hidden[number], cell[number] = lstm(layer, read, hidden[number], cell[number])
            read = hidden[number]
        o = np.append(
            array(net.output.weight) @ read + array(net.output.bias), array(net.stop.weight) @ read + array(net.stop.bias)
        )
        o[seen] = -np.inf
        found.append(o)
    return found


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("fed", FED)
def test_the_decoder_is_its_equations(fed: str, layers: int) -> None:
    """However much is padded: the expected values know of no padding at all."""
    net, inputs = decoder(fed=fed, layers=layers), inputs_for(SEQUENCES, 5)
    for extra in (0, 4):
        states, mask = documents(extra)
        found = array(net.teacher(states, mask, inputs))
        for row, length in enumerate(LENGTHS):
            expected = logits_of(net, array(states[row, :length]), inputs[row].tolist())
            assert found[row] == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.parametrize("fed", FED)
@pytest.mark.parametrize("mask_repeats", [True, False])
def test_step_by_step_is_the_same_as_all_at_once(fed: str, mask_repeats: bool) -> None:
    """Also for several hypotheses that change places between the steps."""
    net, (states, mask) = decoder(fed=fed, layers=2, mask=mask_repeats), documents()
    several = torch.stack([SEQUENCES.clamp(min=0) % 5, (SEQUENCES.clamp(min=0) + 2) % 5], dim=1)  # (batch, beam, steps)
    inputs = torch.cat([torch.full((3, 2, 1), 6), several], dim=2)
    expected = torch.stack([net.teacher(states, mask, inputs[:, b]) for b in range(2)], dim=1)
    memory, state = net.start(states, mask)
    state = tuple(part.expand(-1, 2, *part.shape[2:]) for part in state)
    for t in range(inputs.shape[2]):
        order = [1, 0] if t % 2 else [0, 1]
        logits, state = net.step(inputs[:, order, t], state, memory)
        assert torch.allclose(logits, expected[:, order, t], atol=1e-5)
        state = tuple(part[:, [1, 0]] for part in state)


def test_windows_are_read_as_one_text() -> None:
    """Padding between the windows of a document counts for nothing, in whatever place the largest values are."""
    filters = decoder().filters
    states = torch.randn(1, 8, 7)
    gap = torch.cat([states[:, :5], torch.full((1, 3, 7), 9.0), states[:, 5:]], dim=1)
    mask = torch.tensor([[True] * 5 + [False] * 3 + [True] * 3])
    apart = [filters(part, torch.ones(part.shape[:2], dtype=torch.bool)) for part in (states[:, :5], states[:, 5:])]
    assert torch.allclose(filters(gap, mask), torch.maximum(*apart), atol=1e-6)


def test_training_never_asks_the_host() -> None:
    """On the device ``meta`` there are no values: whatever asked for one would raise. So a step can be captured."""
    net = decoder(dropout=0.1).train().to("meta")
    states, mask = (part.to("meta") for part in documents())
    net.teacher(states, mask, torch.zeros(3, 4, dtype=torch.long, device="meta")).sum().backward()  # type: ignore[no-untyped-call]
    assert all(weight.grad is not None for weight in net.parameters())


def test_it_learns() -> None:
    options = {
        "embedding": 32, "filters": 16, "decoder_size": 32, "label_embedding": 16, "epochs": 10, "batch_size": 16,
        "encoder_rate": 0.01, "head_rate": 0.01, "device": "cpu",
    }  # fmt: skip
    classifier = Classifier("cnn-rnn", options).fit(toy_corpus(300), toy_corpus(60, 1))
    test = toy_corpus(120, 2).with_labels(classifier.labels)
    scores = classifier.scores(test.texts)
    assert scores.decoded is not None and micro_f1(test.truth, scores.decoded) > 0.9
