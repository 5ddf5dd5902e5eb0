"""The model ``leam``: its equations, the loss on the labels' own embeddings, labels that start from their words, and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.labels import LabelSet
from polytag.models.leam import Leam, LeamNetwork
from polytag.nn.encoding.encoders import WordEncoder
from polytag.nn.training.batch import Batch
from polytag.run import Run
from toys import DOCUMENTS, array, encoder_sizes, padded, toy_corpus

TARGETS = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
STILL: dict[str, Any] = {"encoder_rate": 0.0, "head_rate": 0.0, "epochs": 1, "max_steps": 1, "device": "cpu"}


def some_network(window: int) -> LeamNetwork:
    """A network in which nothing is zero or alike."""
    torch.manual_seed(0)
    network = LeamNetwork(WordEncoder(9, 4), 3, window, 0.5).eval()
    with torch.no_grad():
        network.window.weight.copy_(torch.randn(1, 1, 2 * window + 1))
        network.offset.copy_(torch.randn(3) * 0.1)
    return network


def unit(rows: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def weights_of_words(network: LeamNetwork, v: NDArray[Any], radius: int) -> NDArray[Any]:
    """beta of one document whose words have the states v (length, hidden)."""
    g = unit(array(network.labels)) @ unit(v).T  # G (labels, length)
    w1, b1 = array(network.window.weight).ravel(), array(network.offset)
    m = np.zeros(len(v))
    for place in range(len(v)):
        near = [(w1[radius + d], place + d) for d in range(-radius, radius + 1) if 0 <= place + d < len(v)]
        m[place] = max(max(0.0, sum(w * g[k, at] for w, at in near) + b1[k]) for k in range(len(g)))
    return np.asarray(np.exp(m) / np.exp(m).sum())


def bce(logits: NDArray[Any], targets: NDArray[Any]) -> float:
    p = 1 / (1 + np.exp(-logits.astype(np.float64)))
    return float(-(targets * np.log(p) + (1 - targets) * np.log(1 - p)).mean())


@pytest.mark.parametrize("window", [0, 1, 3])
@pytest.mark.parametrize("extra", [0, 6])
def test_the_network_is_its_equations(window: int, extra: int) -> None:
    """However much is padded: the expected values know of no padding at all."""
    network = some_network(window)
    table = array(network.encoder.token_table().weight)
    expected = []
    for document in DOCUMENTS:
        v = table[document]
        z = weights_of_words(network, v, window) @ v
        expected.append(array(network.output.weight) @ z + array(network.output.bias))
    assert array(network(*padded(extra))) == pytest.approx(np.array(expected), abs=1e-5)


def test_padding_gets_no_attention_and_words_get_all_of_it() -> None:
    network = some_network(1)
    ids, mask = padded(3)
    beta = array(network.attention(network.encoder(ids, mask), mask))
    assert (beta[~mask.numpy()] == 0).all() and (beta[mask.numpy()] > 0).all()
    assert beta.sum(axis=1) == pytest.approx(np.ones(3), abs=1e-6)


def test_what_is_padded_may_be_anything() -> None:
    class Loud(WordEncoder):
        """An encoder that says something about padding too, as transformers do."""

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return torch.where(mask[..., None], self.table(ids), 9.0)

    network = some_network(2)
    expected = array(network(*padded(4)))
    loud = Loud(9, 4)
    loud.load_state_dict(network.encoder.state_dict())
    network.encoder = loud
    assert array(network(*padded(4))) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("anchor", [0.0, 0.1, 2.0])
def test_the_anchor_is_the_loss_of_classifying_the_labels_embeddings(anchor: float) -> None:
    network = some_network(1)
    ids, mask = padded()
    found = Leam.build({"anchor": anchor})._loss(network, Batch(torch.arange(3), ids, mask, TARGETS)).item()
    own = array(network.labels) @ array(network.output.weight).T + array(network.output.bias)
    expected = bce(array(network(ids, mask)), TARGETS.numpy()) + anchor * bce(own, np.eye(3))
    assert found == pytest.approx(expected, abs=1e-5)


def test_the_anchor_pulls_labels_and_outputs_together() -> None:
    network = some_network(1)
    ids, mask = padded()
    Leam.build({"anchor": 1.0})._loss(network, Batch(torch.arange(3), ids, mask, TARGETS)).backward()  # type: ignore[no-untyped-call]
    with_anchor = array(network.labels.grad).copy()
    network.zero_grad()
    Leam.build({"anchor": 0.0})._loss(network, Batch(torch.arange(3), ids, mask, TARGETS)).backward()  # type: ignore[no-untyped-call]
    assert np.abs(with_anchor - array(network.labels.grad)).max() > 1e-3


def described_corpus() -> Corpus:
    labels = LabelSet(["sea life", "land", "?!"], descriptions={"sea life": "cod and whale"})
    texts = ["the cod at sea", "a whale has a life", "the land and a sea"] * 6
    return Corpus.of(texts, [["sea life"], ["sea life", "?!"], ["land"]] * 6, label_set=labels)


def test_labels_start_as_the_mean_of_the_words_of_name_and_description() -> None:
    model = Leam.build({"embedding": 8, **STILL})
    model.fit(described_corpus(), None, Run())
    network, tokens = model.network, model.tokens
    assert isinstance(network, LeamNetwork) and tokens is not None
    table = array(network.encoder.token_table().weight)
    for label, words in (("sea life", "sea life cod and whale"), ("land", "land")):
        rows = table[[int(tokens.encode([word])[0][0]) for word in words.split()]]
        assert len({tuple(row) for row in rows}) == len(words.split()), "every word is known"
        assert array(network.labels)[model.labels.names.index(label)] == pytest.approx(rows.mean(axis=0), abs=1e-6)


def test_labels_start_at_random_where_the_sizes_differ() -> None:
    model = Leam.build(
        {"encoder": "bilstm", "embedding": 8, "hidden": 8, "layers": 1, **STILL}
    )  # states have 16 numbers, words 8
    model.fit(described_corpus(), None, Run())
    assert isinstance(model.network, LeamNetwork)
    labels = array(model.network.labels)
    assert labels.shape == (3, 16) and len(np.unique(labels)) == labels.size


@pytest.mark.parametrize("encoder", ["words", "bilstm"])
def test_it_learns_and_comes_back_from_its_artefact(encoder: str, tmp_path: Path) -> None:
    sizes = {**encoder_sizes(encoder, 16, 8), "window": 1, "dropout": 0.1}
    rates = {"epochs": 10, "batch_size": 16, "encoder_rate": 2e-2, "head_rate": 2e-2, "device": "cpu"}
    classifier = Classifier("leam", {**sizes, **rates}).fit(toy_corpus(300))
    test = toy_corpus(100, 2)
    assert classifier.evaluate(test)["micro_f1"] > 0.9
    classifier.save(tmp_path)
    again = Classifier.load(tmp_path)
    assert (again.scores(test.texts).matrix.data == classifier.scores(test.texts).matrix.data).all()
