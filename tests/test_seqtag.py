"""The model ``seqtag``: emissions as its parts say, scores and sets from the CRF, labels that depend on their neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.models.seqtag import Seqtag, SeqtagNetwork
from polytag.nn.encoding.encoders import BiLSTM
from polytag.nn.labels.label_input import LabelPart, label_blocks
from polytag.nn.training.batch import Batch
from polytag.run import Run
from toys import shaken, toy_corpus

SMALL: dict[str, Any] = {
    "encoder": "bilstm", "label_text": "new", "embedding": 64, "hidden": 32, "layers": 1, "decoder_size": 32, "batch_size": 8,
    "encoder_rate": 0.02, "head_rate": 0.01, "dropout": 0.0, "device": "cpu", "precision": "fp32",
}  # fmt: skip


def part(n_labels: int) -> LabelPart:
    return LabelPart(label_blocks([np.array([2 + label % 5, 3]) for label in range(n_labels)], 99, (), 0))


def batch_of(texts: list[list[int]], targets: torch.Tensor | None = None) -> Batch:
    width = max(map(len, texts))
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    return Batch(torch.arange(len(texts)), ids, ids > 0, targets)


def some_network(n_labels: int) -> SeqtagNetwork:
    torch.manual_seed(0)
    network = SeqtagNetwork(BiLSTM(9, 4, 3, 1, 0.0), part(n_labels), n_labels, 5, 0.0).eval()
    return shaken(network, 0.5)


def test_emissions_are_those_of_the_lstm_over_the_labels_states() -> None:
    network = some_network(4)
    batch = batch_of([[2, 3, 4, 5], [7]])
    _, states = network.labels(network.encoder, batch.ids, batch.mask)
    expected = network.emit(network.lstm(states)[0])
    expected[..., 1] += network.bias
    assert torch.allclose(network(batch.ids, batch.mask), expected, atol=1e-6)


def test_scores_are_marginals_and_the_set_is_the_best_sequence() -> None:
    network, model = some_network(4), Seqtag()
    batch = batch_of([[2, 3, 4, 5], [7], [3, 3]])
    with torch.no_grad():
        emissions = network(batch.ids, batch.mask)
        found = model._infer(network, batch)
    assert torch.allclose(found.probabilities, network.crf.marginals(emissions)[..., 1])
    tags = network.crf.decode(emissions)
    assert found.sets is not None and found.log_probability is not None
    assert [sorted(n for n in row if n >= 0) for row in found.sets.tolist()] == [
        [label for label in range(4) if row[label]] for row in tags.tolist()
    ]
    assert torch.allclose(found.log_probability, network.crf.log_likelihood(emissions, tags))


def test_the_loss_is_the_likelihood_of_the_whole_sequence() -> None:
    network, targets = some_network(4), torch.tensor([[1.0, 0, 1, 0], [0, 0, 0, 1.0]])
    batch = batch_of([[2, 3, 4, 5], [7]], targets)
    expected = -network.crf.log_likelihood(network(batch.ids, batch.mask), targets.long()).mean() / 4
    assert torch.allclose(Seqtag()._loss(network, batch), expected)


def test_a_step_never_asks_the_host() -> None:
    """On the device ``meta`` there are no values: whatever asked for one would raise. So a step can be captured."""
    network = some_network(6).to("meta")
    batch = batch_of([[2, 3, 4], [5]])
    _, states = network.labels(network.encoder, batch.ids.to("meta"), batch.mask.to("meta"))
    emissions = network.emissions(states)
    network.crf.log_likelihood(emissions, torch.ones(2, 6, dtype=torch.long, device="meta")).mean().backward()
    assert emissions.shape == (2, 6, 2) and network.encoder.capturable


def exclusive(n: int, seed: int) -> Corpus:
    """Every document looks alike and has either a or b: only the one tells about the other."""
    rng = np.random.default_rng(seed)
    return Corpus.of(["red green blue"] * n, [["a"] if rng.random() < 0.6 else ["b"] for _ in range(n)])


def test_a_label_depends_on_its_neighbours() -> None:
    """The words say nothing: a set is one of the two that there are, and as likely as its label; alone it would be 0.6 x 0.6."""
    classifier = Classifier("seqtag", {**SMALL, "epochs": 12, "evaluate_every": 10_000}).fit(exclusive(150, 0))
    scores = classifier.model.score(exclusive(30, 2).texts)
    assert scores.decoded is not None and scores.log_probability is not None
    assert {tuple(names) for names in classifier.labels.decode(scores.decoded)} <= {("a",), ("b",)}
    probability, best = np.exp(scores.log_probability), scores.matrix.toarray().max(axis=1)
    assert (probability > 0.45).all() and probability == pytest.approx(best, abs=0.1)


def test_it_learns_and_comes_back_from_its_artefact(tmp_path: Path) -> None:
    classifier = Classifier("seqtag", {**SMALL, "epochs": 20}).fit(toy_corpus(300), toy_corpus(60, 1))
    test = toy_corpus(100, 2)
    assert classifier.evaluate(test)["micro_f1"] > 0.85
    classifier.save(tmp_path)
    again = Classifier.load(tmp_path)
    here, there = again.scores(test.texts), classifier.scores(test.texts)
    assert (here.matrix.data == there.matrix.data).all()
    assert here.decoded is not None and there.decoded is not None and (here.decoded != there.decoded).nnz == 0


def test_an_encoder_in_which_labels_do_not_meet_the_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="label states do not depend on the text"):
        Seqtag.build({"encoder": "words"}).fit(toy_corpus(20), None, Run())


def test_it_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be exported"):
        Seqtag().export(tmp_path)
    assert not Seqtag().use_export(tmp_path)
