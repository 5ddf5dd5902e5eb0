"""Matching: losses, what is watched in training, the best clusters, and vectors of labels' texts, each against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from polytag.labels import LabelSet
from polytag.models.base.cluster_matcher import ClusterMatcher
from polytag.models.base.match_quality import match_quality
from polytag.nn.encoding.encoders import WordEncoder
from polytag.scores import Scores
from polytag.xmc.match import BertMatch, best_clusters, log_probabilities, squared_hinge, text_vectors
from toys import tiny_bert


@given(seed=st.integers(0, 999), weighted=st.booleans())
@settings(max_examples=20)
def test_squared_hinge_is_its_equation(seed: int, weighted: bool) -> None:
    generator = np.random.default_rng(seed)
    logits, targets = generator.normal(size=(4, 3)) * 2, (generator.random((4, 3)) < 0.5).astype(float)
    weights = generator.random(3) + 0.5
    expected = 0.0
    for row in range(4):
        for cluster in range(3):
            y = 1 if targets[row, cluster] else -1
            weight = weights[cluster] if weighted and y == 1 else 1
            expected += weight * max(0.0, 1 - y * logits[row, cluster]) ** 2 / 12
    given_weights = torch.tensor(weights) if weighted else None
    assert float(squared_hinge(torch.tensor(logits), torch.tensor(targets), given_weights)) == pytest.approx(expected)


def test_chances_follow_the_loss_that_the_network_was_trained_by() -> None:
    logits = torch.tensor([[-3.0, 0.0, 0.5, 2.0]])
    assert torch.exp(log_probabilities(logits, "bce")).numpy() == pytest.approx(1 / (1 + np.exp(-logits.numpy())))
    expected = np.exp(-(np.maximum(0, 1 - logits.numpy()) ** 3))
    assert torch.exp(log_probabilities(logits, "squared-hinge")).numpy() == pytest.approx(expected)


@given(seed=st.integers(0, 999), clusters=st.integers(1, 30), beam=st.integers(1, 30))
@settings(max_examples=60)
def test_best_clusters_are_the_head_of_a_full_sort(seed: int, clusters: int, beam: int) -> None:
    beam = min(beam, clusters)
    logs = np.random.default_rng(seed).normal(size=(6, clusters)).astype(np.float32)
    found, values = best_clusters(logs, beam)
    expected = np.argsort(-logs, axis=1, kind="stable")[:, :beam]
    assert np.array_equal(found, expected) and np.array_equal(values, np.take_along_axis(logs, expected, 1))
    assert found.dtype == np.int32 and found.flags.c_contiguous and values.flags.c_contiguous


@given(seed=st.integers(0, 999), beam=st.integers(1, 6))
@settings(max_examples=30)
def test_what_is_watched_is_the_mean_recall_and_better_probabilities_break_ties(seed: int, beam: int) -> None:
    generator = np.random.default_rng(seed)
    chances = generator.permuted(np.tile(np.linspace(0.05, 0.95, 6), (5, 1)), axis=1)
    truth = (generator.random((5, 6)) < 0.4).astype(np.float32)
    names = [str(i) for i in range(6)]
    recalls = []
    for k in range(1, beam + 1):
        hits = [truth[row, np.argsort(-chances[row])[:k]].sum() for row in range(5)]
        recalls.append(np.mean([hit / max(1, truth[row].sum()) for row, hit in enumerate(hits)]))
    found = match_quality(Scores.full(chances, names, "probability"), csr_array(truth), beam)
    assert found == pytest.approx(np.mean(recalls), abs=0.0101)
    perfect, bold = 0.4 + 0.2 * truth, 0.1 + 0.8 * truth
    timid, sure = (match_quality(Scores.full(one, names, "probability"), csr_array(truth), 6) for one in (perfect, bold))
    assert sure > timid


def test_labels_are_alike_whose_texts_are_alike(tmp_path: Path) -> None:
    """By words they share, or by an encoder; of length one, the same each time."""
    texts = ["red wine", "red wines", "white wine", "space rocket", "rocket"]
    for name in ("words", "bilstm", str(tiny_bert(tmp_path / "bert"))):
        found = text_vectors(name, texts, compute=("cpu", "fp32"))
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
        assert np.array_equal(found, text_vectors(name, texts, compute=("cpu", "fp32")))
        if name in ("words", "bilstm"):
            alike = found @ found.T
            assert min(alike[0, 1], alike[0, 2], alike[3, 4]) > alike[0, 3] + 0.2


def test_one_vector_per_document_and_a_linear_layer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = BertMatch(WordEncoder(20, 6), 3, "mean", 0.5).eval()
    ids, mask = torch.tensor([[3, 4, 5], [6, 0, 0]]), torch.tensor([[True, True, True], [True, False, False]])
    table = network.encoder.token_table().weight.detach().numpy()
    documents = np.stack([table[[3, 4, 5]].mean(axis=0), table[6]])
    assert network.document(ids, mask).detach().numpy() == pytest.approx(documents, abs=1e-6)
    expected = documents @ network.output.weight.detach().numpy().T
    assert network(ids, mask).detach().numpy() == pytest.approx(expected, abs=1e-6)


def test_the_first_bias_is_the_constant_that_minimises_the_squared_hinge() -> None:
    """Also for a cluster with one document in three thousand: its log P starts above -8, not at -729."""
    matcher = ClusterMatcher.build({"loss": "squared-hinge"})
    matcher.labels = LabelSet(["0", "1", "2"])
    network = BertMatch(WordEncoder(20, 6), 3, "mean", 0.0)
    counts = np.array([1500, 300, 1])
    matcher._start_bias(network, counts, 3000)
    start = network.output.bias.detach()
    truth = (torch.arange(3000)[:, None] < torch.from_numpy(counts)).float()

    def loss_at(bias: torch.Tensor) -> float:
        return float(matcher._label_loss(bias.expand(3000, 3), truth))

    for j in range(3):
        for step in (-0.02, 0.02):
            moved = start.clone()
            moved[j] += step
            assert loss_at(start) < loss_at(moved)
    assert float(log_probabilities(start, "squared-hinge").min()) > -8
