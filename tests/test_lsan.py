"""The model ``lsan``: its equations with the BiLSTM's directions apart, labels that start from their words, and learning."""

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
from polytag.models.lsan import Lsan, LsanNetwork
from polytag.nn.encoding.encoders import BiLSTM, Encoder, WordEncoder
from polytag.run import Run
from toys import DOCUMENTS, array, encoder_sizes, padded, toy_corpus


def some_network(kind: str) -> LsanNetwork:
    """A network in which nothing is zero or alike."""
    torch.manual_seed(0)
    encoder: Encoder = BiLSTM(9, 4, 3, 1, 0.0) if kind == "bilstm" else WordEncoder(9, 6)
    network = LsanNetwork(encoder, 5, 4, 7, 0.5).eval()
    with torch.no_grad():
        network.bias.copy_(torch.randn(5))
        network.labels.copy_(torch.randn(network.labels.shape))
        encoder.token_table().weight[2:] *= 10  # states that differ
    return network


def states_of(network: LsanNetwork, document: list[int]) -> NDArray[Any]:
    """H (length, hidden) of one document by itself."""
    ids = torch.tensor([document])
    return array(network.encoder(ids, torch.ones_like(ids, dtype=torch.bool))[0])


def softmax(rows: NDArray[Any]) -> NDArray[Any]:
    e = np.exp(rows - rows.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(1 / (1 + np.exp(-x)))


def logits_of(network: LsanNetwork, h: NDArray[Any], directions: int) -> NDArray[Any]:
    """The equations, for one document with the states h."""
    a = softmax(array(network.second.weight) @ np.tanh(array(network.first.weight) @ h.T))  # A (labels, length)
    m_s = a @ h
    c, size = array(network.labels), h.shape[1] // directions
    parts = [h[:, at * size : (at + 1) * size] for at in range(directions)]  # to the right, to the left
    m_l = np.concatenate([(c @ part.T) @ part for part in parts], axis=1)
    alpha = sigmoid(m_s @ array(network.trust_words.weight)[0] + array(network.trust_words.bias))
    beta = sigmoid(m_l @ array(network.trust_labels.weight)[0] + array(network.trust_labels.bias))
    alpha, beta = alpha / (alpha + beta), beta / (alpha + beta)
    m = alpha[:, None] * m_s + beta[:, None] * m_l
    hidden = np.maximum(0, m @ array(network.dense.weight).T + array(network.dense.bias))
    return np.asarray(hidden @ array(network.score.weight)[0] + array(network.bias))


@pytest.mark.parametrize("extra", [0, 6])
@pytest.mark.parametrize(("kind", "directions"), [("bilstm", 2), ("words", 1)])
def test_the_network_is_its_equations(kind: str, directions: int, extra: int) -> None:
    """However much is padded: the expected values know of no padding at all."""
    network = some_network(kind)
    expected = np.array([logits_of(network, states_of(network, document), directions) for document in DOCUMENTS])
    assert array(network(*padded(extra))) == pytest.approx(expected, abs=1e-5)


def test_the_directions_of_a_bilstm_are_looked_at_one_by_one() -> None:
    """A label's embedding has the size of one direction, and each view holds what that direction alone says."""
    network = some_network("bilstm")
    assert network.labels.shape == (5, 3)
    states = torch.from_numpy(states_of(network, DOCUMENTS[0]))[None]
    silent = states.clone()
    silent[..., 3:] = 0  # nothing is read to the left
    whole, half = array(network.label_attention(states)), array(network.label_attention(silent))
    assert (whole[..., :3] == half[..., :3]).all() and (half[..., 3:] == 0).all() and (whole[..., 3:] != 0).all()


def test_what_is_padded_may_be_anything() -> None:
    class Loud(WordEncoder):
        """An encoder that says something about padding too, as transformers do."""

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return torch.where(mask[..., None], self.table(ids), 9.0)

    network = some_network("words")
    expected = array(network(*padded(4)))
    loud = Loud(9, 6)
    loud.load_state_dict(network.encoder.state_dict())
    network.encoder = loud
    assert array(network(*padded(4))) == pytest.approx(expected, abs=1e-6)


def test_labels_look_at_different_words() -> None:
    """Each label has a view of its own: other self-attention and other label attention than its neighbours."""
    network = some_network("words")
    ids, mask = padded()
    states = network.encoder(ids, mask)
    for views in (network.self_attention(states, mask), network.label_attention(states)):
        first = array(views)[0]  # of the document with several words
        assert len({tuple(row) for row in first.round(6)}) == 5


@pytest.mark.parametrize(("hidden", "agree"), [(8, True), (6, False)])
def test_labels_start_from_their_words_where_a_direction_is_as_large_as_a_word(hidden: int, agree: bool) -> None:
    labels = LabelSet(["sea life", "land"], descriptions={"sea life": "cod and whale"})
    texts = ["the cod at sea", "a whale has a life", "the land and a sea"] * 6
    corpus = Corpus.of(texts, [["sea life"], ["sea life", "land"], ["land"]] * 6, label_set=labels)
    still: dict[str, Any] = {"encoder_rate": 0.0, "head_rate": 0.0, "epochs": 1, "max_steps": 1, "device": "cpu"}
    model = Lsan.build({"embedding": 8, "hidden": hidden, **still})
    model.fit(corpus, None, Run())
    assert isinstance(model.network, LsanNetwork) and model.tokens is not None
    found, table = array(model.network.labels), array(model.network.encoder.token_table().weight)
    assert found.shape == (2, hidden)
    for row, words in zip(found, ("sea life cod and whale", "land"), strict=True):
        mean = table[[int(model.tokens.encode([word])[0][0]) for word in words.split()]].mean(axis=0)
        assert not agree or row == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize("encoder", ["words", "bilstm"])
def test_it_learns_and_comes_back_from_its_artefact(encoder: str, tmp_path: Path) -> None:
    sizes = {**encoder_sizes(encoder, 16, 16), "attention_size": 16, "dense": 32, "dropout": 0.1}
    rates = {"epochs": 12, "batch_size": 16, "encoder_rate": 2e-2, "head_rate": 1e-2, "device": "cpu"}
    classifier = Classifier("lsan", {**sizes, **rates}).fit(toy_corpus(300))
    test = toy_corpus(100, 2)
    assert classifier.evaluate(test)["micro_f1"] > 0.9
    classifier.save(tmp_path)
    again = Classifier.load(tmp_path)
    assert (again.scores(test.texts).matrix.data == classifier.scores(test.texts).matrix.data).all()
