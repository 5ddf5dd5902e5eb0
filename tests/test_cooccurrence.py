"""The tasks beside ``laco``, PLCP and CLCP: what is drawn, equations 5 and 6 in numpy, and that nothing asked for is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polytag.nn.labels.cooccurrence import ConditionTask, PairTask, draw_known, draw_pairs
from toys import array


def test_one_label_has_no_pairs_and_no_loss() -> None:
    labels = torch.randn(3, 1, 4, requires_grad=True)
    loss = PairTask(4, 0, 2, 0.5)(labels, torch.tensor([[1.0], [0.0], [1.0]]))
    (gradients,) = torch.autograd.grad(loss, labels)
    assert float(loss.detach()) == 0.0 and not gradients.any()


def test_a_mean_over_pairs_is_the_loss_of_one_pair() -> None:
    labels, targets = torch.randn(3, 6, 4), torch.tensor([[1.0, 1, 0, 1, 0, 0], [1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1]])
    task = PairTask(4, 0, 2, 0.5, "mean")
    found = []
    for over in ("mean", "sum"):
        torch.manual_seed(3)
        task.over = over
        found.append(float(task(labels, targets).detach()))
    assert found[0] == pytest.approx(found[1] / 6), "2 positive pairs and 4 negative ones per document"


@settings(max_examples=40)
@given(st.integers(2, 9), st.integers(1, 5), st.sampled_from([0.25, 0.5, 1.0]), st.integers(0, 1000))
def test_pairs_are_true_ones_and_mixed_ones_in_the_stated_ratio(n: int, pairs: int, ratio: float, seed: int) -> None:
    torch.manual_seed(seed)
    targets = (torch.rand(12, n) < 0.4).float()
    drawn = draw_pairs(targets, pairs, ratio)
    for row in range(12):
        true = set(torch.nonzero(targets[row])[:, 0].tolist())
        assert bool(drawn.used[row]) == (2 <= len(true) < n)
        if not drawn.used[row]:
            continue
        for i, j, together in zip(
            drawn.first[row].tolist(), drawn.second[row].tolist(), drawn.together[row].tolist(), strict=True
        ):
            assert i != j and i in true and (j in true) == bool(together)
        count = int(drawn.together[row].sum())
        assert count == pairs and count / (drawn.together.shape[1] - count) == pytest.approx(ratio, rel=1e-6)


def test_every_pair_is_as_likely_as_any_other() -> None:
    torch.manual_seed(0)
    drawn = draw_pairs(torch.tensor([[1.0, 0, 1, 1, 0]]).expand(4000, -1), 1, 1.0)
    both = {tuple(pair) for pair in zip(drawn.first[:, 0].tolist(), drawn.second[:, 0].tolist(), strict=True)}
    assert both == {(i, j) for i in (0, 2, 3) for j in (0, 2, 3) if i != j}
    counts = torch.bincount(drawn.first[:, 0] * 5 + drawn.second[:, 0], minlength=25)
    assert counts[counts > 0].tolist() == pytest.approx([4000 / 6] * 6, rel=0.2)
    mixed = torch.bincount(drawn.second[:, 1], minlength=5)
    assert mixed.tolist() == pytest.approx([0, 2000, 0, 0, 2000], rel=0.1, abs=0)


def test_the_loss_of_pairs_is_equation_5() -> None:
    torch.manual_seed(0)
    task, labels = PairTask(3, 0, 2, 0.5), torch.randn(4, 6, 3)
    targets = torch.tensor([[1.0, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 1, 0, 0, 1, 0]])
    torch.manual_seed(5)
    drawn = draw_pairs(targets, 2, 0.5)
    torch.manual_seed(5)
    found = float(task(labels, targets).detach())
    assert isinstance(task.classifier, torch.nn.Linear)
    w, b, total = array(task.classifier.weight)[0], float(array(task.classifier.bias)[0]), 0.0
    for row in (0, 3):  # one label alone, and all labels, give no pairs
        for i, j, q in zip(*(part[row].tolist() for part in drawn[:3]), strict=True):
            p = 1 / (1 + np.exp(-(w @ np.concatenate([array(labels)[row, i], array(labels)[row, j]]) + b)))
            total -= q * np.log(p) + (1 - q) * np.log(1 - p)
    assert found == pytest.approx(total / (4 * 6), rel=1e-4)


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 1000))
def test_known_labels_are_true_ones_and_no_more_than_asked_for(n: int, count: int, seed: int) -> None:
    torch.manual_seed(seed)
    targets = (torch.rand(12, n) < 0.4).float()
    known = draw_known(targets, count)
    assert (known <= (targets > 0)).all()
    assert known.sum(dim=1).tolist() == [min(count, int(row.sum())) for row in targets]


def test_the_loss_given_known_labels_is_equation_6() -> None:
    torch.manual_seed(0)
    task, labels = ConditionTask(3, 0, 2), torch.randn(3, 6, 3)
    targets = torch.tensor([[1.0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]])
    torch.manual_seed(5)
    known = draw_known(targets, 2)
    torch.manual_seed(5)
    found = float(task(labels, targets).detach())
    assert isinstance(task.classifier, torch.nn.Linear)
    w, b, total = array(task.classifier.weight)[0], float(array(task.classifier.bias)[0]), 0.0
    for row in (0, 2):  # a document without labels has nothing to go by
        given_labels = known[row].numpy()
        mean = array(labels)[row][given_labels].mean(axis=0)
        for i in np.flatnonzero(~given_labels):
            p = 1 / (1 + np.exp(-(w @ np.concatenate([mean, array(labels)[row, i]]) + b)))
            total -= np.log(p) if targets[row, i] else np.log(1 - p)
    assert found == pytest.approx(total / (3 * 6), rel=1e-4)


def test_what_is_asked_for_is_never_told() -> None:
    """Whether an unknown label is true changes nothing of what is thought of any label, and a known one is not in the loss."""
    torch.manual_seed(0)
    task, labels = ConditionTask(3, 4, 1), torch.randn(1, 6, 3, requires_grad=True)
    known = torch.tensor([[False, True, False, False, False, False]])
    thought = task.logits(labels, known)
    for target in range(6):
        (blame,) = torch.autograd.grad(thought[0, target], labels, retain_graph=True)
        touched = set(torch.nonzero(blame[0].abs().sum(dim=1))[:, 0].tolist())
        assert touched <= {1, target}, "only the known label and the one that is asked for are looked at"
    # All labels but the drawn one count: with every label true, exactly one term is missing from the sum over six.
    for seed in range(5):
        torch.manual_seed(seed)
        drawn = draw_known(torch.ones(1, 6), 1)
        torch.manual_seed(seed)
        loss = task(labels, torch.ones(1, 6))
        each = torch.nn.functional.softplus(-task.logits(labels, drawn))
        assert torch.allclose(loss, (each * ~drawn).sum() / 6)
