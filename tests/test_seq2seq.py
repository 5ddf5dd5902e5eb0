"""The model ``seq2seq``: its equations in numpy, keys and values that are kept, and learning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.metrics.of_sets import micro_f1
from polytag.nn.decoding.beam_search import beam_search
from polytag.nn.decoding.label_sequences import inputs_for
from polytag.nn.decoding.transformer_decoder import Attention, TransformerDecoder, TransformerLayer, TransformerSettings
from toys import array, encoder_sizes, shaken, states_of, toy_corpus

LENGTHS = [5, 1, 3, 0]
SEQUENCES = torch.tensor([[2, 0, 4, 5], [1, 5, -1, -1], [5, -1, -1, -1], [3, 4, 1, 0]])  # 5 is <eos>, -1 comes after it


def decoder(**other: Any) -> TransformerDecoder:
    """One in which nothing is zero or alike."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {"size": 12, "layers": 2, "heads": 3, "positions": 3, **other}
    made = TransformerDecoder(8, 5, TransformerSettings(**settings)).eval()
    return shaken(made)


def documents(extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return states_of(LENGTHS, 8, extra)


def linear(module: torch.nn.Linear, x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(x @ array(module.weight).T + array(module.bias))


def normal(module: Any, x: NDArray[Any]) -> NDArray[Any]:
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + module.eps)
    return np.asarray(centred / scale * array(module.weight) + array(module.bias))


def attend(module: Attention, x: NDArray[Any], read: NDArray[Any]) -> NDArray[Any]:
    """One query x (size,) over all that is read (places, size), head by head."""
    q, k, v = linear(module.query, x), linear(module.key, read), linear(module.value, read)
    size, found = len(q) // module.heads, []
    for head in range(module.heads):
        part = slice(head * size, (head + 1) * size)
        energy = k[:, part] @ q[part] / math.sqrt(size)
        weight = np.exp(energy - energy.max())
        found.append(weight / weight.sum() @ v[:, part])
    return linear(module.join, np.concatenate(found))


def gelu(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2)


def logits_of(net: TransformerDecoder, h: NDArray[Any], labels: list[int]) -> NDArray[Any]:
    """The equations for the last of the labels so far, <bos> first; all layers' inputs are computed again for every place."""
    table = np.concatenate([array(net.labels), array(net.special)])
    rows = [table[y] + array(net.places)[min(t, 2)] for t, y in enumerate(labels)]
    for layer in net.layers:
        assert isinstance(layer, TransformerLayer)
        above = []
        for t, x in enumerate(rows):
            before = np.array([normal(layer.norms[0], row) for row in rows[: t + 1]])
            x = x + attend(layer.own, before[-1], before)
            x = x + attend(layer.across, normal(layer.norms[1], x), h)
            above.append(x + linear(layer.narrow, gelu(linear(layer.wide, normal(layer.norms[2], x)))))
        rows = above
    last = normal(net.norm, rows[-1])
    o = np.append(linear(net.output, last), linear(net.stop, last))
    o[[y for y in labels if y < 5]] = -np.inf  # labels that were generated
    return o


@pytest.mark.parametrize("extra", [0, 4])
def test_the_decoder_is_its_equations(extra: int) -> None:
    """However much is padded: the expected values know of no padding at all. Places beyond the third share its embedding."""
    net, (states, mask) = decoder(), documents(extra)
    inputs = inputs_for(SEQUENCES, 5)
    found = array(net.teacher(states, mask, inputs))
    for row, length in enumerate(LENGTHS[:3]):
        for t in range(4):
            expected = logits_of(net, array(states[row, :length]), inputs[row, : t + 1].tolist())
            assert found[row, t] == pytest.approx(expected, abs=1e-4)
    assert np.isfinite(found[3, :, 5]).all()  # a document without any token is still a document


@pytest.mark.parametrize("mask_repeats", [True, False])
def test_step_by_step_is_the_same_as_all_at_once(mask_repeats: bool) -> None:
    """With keys and values kept, and for hypotheses that change places between the steps."""
    net, (states, mask) = decoder(mask=mask_repeats), documents()
    several = torch.stack([SEQUENCES.clamp(min=0) % 5, (SEQUENCES.clamp(min=0) + 2) % 5], dim=1)  # (batch, beam, steps)
    inputs = torch.cat([torch.full((4, 2, 1), 6), several], dim=2)
    expected = torch.stack([net.teacher(states, mask, inputs[:, b]) for b in range(2)], dim=1)
    memory, state = net.start(states, mask)
    state = tuple(part.expand(-1, 2, *part.shape[2:]) for part in state)
    swapped = False
    for t in range(inputs.shape[2]):
        order = [1, 0] if swapped else [0, 1]
        logits, state = net.step(inputs[:, order, t], state, memory)
        assert torch.allclose(logits, expected[:, order, t], atol=1e-5)
        state = tuple(part[:, [1, 0]] for part in state)
        swapped = not swapped


def test_a_sequence_has_the_probability_that_the_search_says() -> None:
    net, (states, mask) = decoder(), documents()
    found = beam_search(net, states, mask, beam=4, longest=3)
    for best in range(4):
        labels = torch.cat([found.labels[:, best], torch.full((4, 1), -1)], dim=1)
        sequence = torch.where((labels < 0) & (labels.roll(1, 1) >= 0) & (torch.arange(4) > 0), 5, labels)
        sequence[:, 0] = torch.where(labels[:, 0] < 0, 5, labels[:, 0])
        log_p = torch.log_softmax(net.teacher(states, mask, inputs_for(sequence, 5)), dim=2)
        # the search makes a sequence of the most labels end: its <eos> counts as it is
        each = log_p.gather(2, sequence.clamp(min=0)[..., None])[..., 0]
        total = torch.where(sequence >= 0, each, 0).sum(dim=1)
        assert torch.allclose(total, found.log_probability[:, best], atol=1e-4)


def test_training_never_asks_the_host() -> None:
    """On the device ``meta`` there are no values: whatever asked for one would raise. So a step can be captured."""
    net = decoder(dropout=0.1).train().to("meta")
    states, mask = (part.to("meta") for part in documents())
    net.teacher(states, mask, torch.zeros(4, 3, dtype=torch.long, device="meta")).sum().backward()  # type: ignore[no-untyped-call]
    assert all(weight.grad is not None for weight in net.parameters())


def test_heads_that_do_not_divide_the_size_are_refused() -> None:
    with pytest.raises(ConfigError, match="heads=5 does not divide the decoder's size 12"):
        decoder(heads=5)


@pytest.mark.parametrize("encoder", ["words", "bilstm"])
def test_it_learns(encoder: str) -> None:
    options = {
        **encoder_sizes(encoder, 32, 16), "heads": 4, "decoder_layers": 1, "epochs": 10,
        "batch_size": 16, "encoder_rate": 0.01, "head_rate": 0.005, "device": "cpu",
    }  # fmt: skip
    classifier = Classifier("seq2seq", options).fit(toy_corpus(300), toy_corpus(60, 1))
    test = toy_corpus(120, 2).with_labels(classifier.labels)
    scores = classifier.scores(test.texts)
    assert scores.decoded is not None and micro_f1(test.truth, scores.decoded) > 0.9


@pytest.mark.parametrize(
    ("name", "own"), [("seq2seq", {}), ("cnn-rnn", {"filters": 16, "decoder_size": 32, "label_embedding": 16})]
)
def test_it_goes_on_with_more_labels_and_longer_sequences(name: str, own: dict[str, Any]) -> None:
    """Nothing in the network depends on the longest sequence, and <eos> and <bos> are no rows among the labels."""
    first = toy_corpus(60, 1)
    kept = [labels[:1] for labels in first.label_lists()]
    earlier = Corpus.of(first.texts, [[label] for label in ("one", "other") for _ in range(30)])
    later = Corpus.of(first.texts, [[*labels, "one", "other"] for labels in kept])
    sizes = {"encoder": "words", "embedding": 16, "epochs": 6, "batch_size": 8, "head_rate": 3e-3, "device": "cpu", **own}
    before = Classifier(name, sizes).fit(earlier)
    after = Classifier(name, sizes).continue_from(before).fit(later)
    assert after.labels.names[:2] == before.labels.names and len(after.labels) > 2
    decoded = after.scores(first.texts).decoded
    assert decoded is not None and decoded.sum(axis=1).max() > 1
