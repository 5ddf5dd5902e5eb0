"""The model ``cnn``: Kim's filters and the two-layer network equal their equations, and learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from polytag.classifier import Classifier
from polytag.models.base import neural_model
from polytag.models.cnn import KimNetwork, TwoLayerNetwork
from polytag.nn.encoding.convolution import Filters
from polytag.nn.encoding.encoders import WordEncoder
from toys import DOCUMENTS, array, padded, toy_corpus


def convolved(x: NDArray[Any], w: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """relu(W x_{i:i+h-1} + b) for every place i of a text, zeros after its end; x is (length, size), w (filters, size, h)."""
    h = w.shape[2]
    long = np.concatenate([x, np.zeros((h - 1, x.shape[1]))])
    return np.array([np.maximum(0, np.einsum("fsh,hs->f", w, long[i : i + h]) + b) for i in range(len(x))])


@pytest.mark.parametrize("extra", [0, 5])
def test_kims_network_is_its_equation(extra: int) -> None:
    torch.manual_seed(0)
    network = KimNetwork(WordEncoder(9, 4), 3, (2, 3), 6, 0.5).eval()
    table = array(network.encoder.token_table().weight)
    expected = []
    for document in DOCUMENTS:
        features: list[float] = []
        for part in network.filters:
            assert isinstance(part, Filters)
            w, b = array(part.convolution.weight), array(part.convolution.bias)
            c = convolved(table[document], w, b)[: max(1, len(document) - w.shape[2] + 1)]
            features += c.max(axis=0).tolist()
        expected.append(array(network.output.weight) @ np.array(features) + array(network.output.bias))
    assert array(network(*padded(extra))) == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.parametrize("extra", [0, 4])
def test_the_two_layer_network_is_its_equation(extra: int) -> None:
    torch.manual_seed(0)
    network = TwoLayerNetwork(WordEncoder(9, 4), 3, 2, 6, 0.5).eval()
    network.normalise.running_mean = torch.randn(6)
    table = array(network.encoder.token_table().weight)
    expected = []
    for document in DOCUMENTS:
        c = convolved(table[document], array(network.first.convolution.weight), array(network.first.convolution.bias))
        pooled = np.array([c[i : i + 2].max(axis=0) for i in range(0, len(c), 2)])
        top = convolved(pooled, array(network.second.convolution.weight), array(network.second.convolution.bias)).max(axis=0)
        z = np.maximum(0, array(network.between.weight) @ top + array(network.between.bias))
        norm = network.normalise
        assert norm.running_mean is not None and norm.running_var is not None
        z = (z - array(norm.running_mean)) / np.sqrt(array(norm.running_var) + norm.eps)
        z = z * array(norm.weight) + array(norm.bias)
        expected.append(array(network.output.weight) @ z + array(network.output.bias))
    assert array(network(*padded(extra))) == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.parametrize("convolutions", [1, 2])
def test_it_learns_and_comes_back_from_its_artefact(convolutions: int, tmp_path: Any) -> None:
    options = {"epochs": 10, "embedding": 16, "filters": 32, "batch_size": 16, "convolutions": convolutions, "widths": (1, 2)}
    rates = {"encoder_rate": 1e-2, "head_rate": 1e-2, "device": "cpu", "dropout": 0.1}
    classifier = Classifier("cnn", {**options, **rates}).fit(toy_corpus(300))
    test = toy_corpus(100, 2)
    assert classifier.evaluate(test)["micro_f1"] > 0.95
    classifier.save(tmp_path)
    again = Classifier.load(tmp_path)
    assert (again.scores(test.texts).matrix.data == classifier.scores(test.texts).matrix.data).all()


def test_one_document_is_a_batch_too() -> None:
    network = TwoLayerNetwork(WordEncoder(9, 4), 3, 2, 6, 0.0).train()
    ids = torch.tensor([[2, 3]])
    assert torch.isfinite(network(ids, ids > 0)).all()


def test_epochs_are_compared_on_sets_as_the_decision_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every document has a label, every predicted set has one: when the best epoch is chosen too."""
    least: list[int] = []
    monkeypatch.setattr(neural_model, "reached", lambda *given: least.append(given[4]) or 0.5)
    settings = {"embedding": 8, "filters": 4, "epochs": 2, "batch_size": 16, "device": "cpu"}
    found = Classifier("cnn", settings).fit(toy_corpus(40), toy_corpus(20))
    assert least and set(least) == {1} == {found.decision.min_labels}
