"""The model ``hmcn``: its equations, the levels of trees and graphs, the loss of violations, and learning a tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conftest import Toy  # noqa: E402
from polytag.classifier import Classifier  # noqa: E402
from polytag.labels import LabelSet  # noqa: E402
from polytag.models.hmcn import Hmcn, HmcnNetwork, Tree, label_edges, label_levels  # noqa: E402
from polytag.nn.encoding.encoders import WordEncoder  # noqa: E402
from polytag.nn.training.batch import Batch  # noqa: E402
from quick import OPTIONS  # noqa: E402
from toys import array, padded, shaken  # noqa: E402

TREE = LabelSet(["d", "a", "c", "b", "e"], parents={"b": "a", "c": "b", "d": "b", "e": ["a", "c"]})


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def small(beta: float = 0.5) -> HmcnNetwork:
    torch.manual_seed(0)
    return shaken(HmcnNetwork(WordEncoder(10, 6), Tree.of(TREE), 7, "mean", 0.0, beta)).eval()


def test_a_label_is_one_level_below_its_deepest_parent() -> None:
    assert label_levels(TREE).tolist() == [2, 0, 2, 1, 3]
    assert label_levels(LabelSet(["x", "y"])).tolist() == [0, 0]
    assert sorted(zip(*label_edges(TREE).tolist(), strict=True)) == [(0, 3), (2, 3), (3, 1), (4, 1), (4, 2)]
    assert label_edges(LabelSet(["x"])).shape == (2, 0)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_outputs_are_those_of_the_equations(beta: float) -> None:
    network, levels = small(beta), label_levels(TREE)
    ids, mask = padded(extra=2)
    found = array(torch.sigmoid(network(ids, mask)))
    table = array(network.encoder.table.weight)
    for row in range(len(ids)):
        own = ids[row][mask[row]].numpy()
        x = table[own].mean(axis=0)
        state, local = x, np.zeros(5)
        for level in range(4):
            joined = np.concatenate([state, x]) if level else x
            state = np.maximum(array(network.level[level].weight) @ joined + array(network.level[level].bias), 0)
            inner = np.maximum(array(network.transfer[level].weight) @ state + array(network.transfer[level].bias), 0)
            every = sigmoid(array(network.local.weight) @ inner + array(network.local.bias))
            local[levels == level] = every[levels == level]
        whole = sigmoid(array(network.output.weight) @ state + array(network.output.bias))
        assert np.allclose(found[row], beta * local + (1 - beta) * whole, atol=1e-5)


def test_large_logits_stay_exact() -> None:
    network = small()
    both = torch.tensor([[80.0, -80.0, 80.0, 0.0, 1.0, 80.0, -80.0, -80.0, 0.0, 1.0]])
    assert torch.allclose(network.mixed(both), torch.tensor([[80.0, -80.0, 0.0, 0.0, 1.0]]), atol=1e-4)


def test_the_loss_is_that_of_both_outputs_and_of_violations() -> None:
    network, (ids, mask) = small(), padded()
    targets = torch.tensor([[0.0, 1, 0, 1, 0], [1, 1, 0, 1, 0], [0, 0, 0, 0, 0]])
    batch = Batch(torch.arange(3), ids, mask, targets)
    model = Hmcn.build({"encoder": "words", "embedding": 6, "level_size": 7, "violation": 2.0})
    model.labels = TREE
    found = float(model._loss(network, batch).detach())
    local, whole = (array(part) for part in network.both(ids, mask).chunk(2, dim=1))
    t = array(targets)
    by_hand = sum(-(t * np.log(sigmoid(part)) + (1 - t) * np.log(1 - sigmoid(part))).mean() for part in (local, whole))
    p = 0.5 * sigmoid(local) + 0.5 * sigmoid(whole)
    each = [max(0.0, p[row, child] - p[row, parent]) ** 2 for row in range(3) for child, parent in label_edges(TREE).T]
    assert np.isclose(found, by_hand + 2 * np.mean(each), rtol=1e-4)
    assert np.mean(each) > 0


def test_a_tree_is_learned_and_fewer_labels_contradict_their_parents(toy: Toy) -> None:
    assert toy.train.labels.has_tree
    scores = {}
    for violation in (0.0, 20.0):
        clf = Classifier("hmcn", {**OPTIONS["hmcn"], "violation": violation}).fit(toy.train, toy.valid)
        p = clf.model.score(toy.test.texts).matrix.toarray()
        child, parent = label_edges(clf.labels)
        scores[violation] = np.maximum(0, p[:, child] - p[:, parent]).mean(), clf.evaluate(toy.test)["micro_f1"]
    assert scores[20.0][0] < scores[0.0][0]
    assert min(quality for _, quality in scores.values()) > 0.9
