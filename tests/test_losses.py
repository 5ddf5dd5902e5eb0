"""The losses equal their formulas written plainly in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from polytag.linear.class_weights import capped_imbalance_weights
from polytag.nn.training import losses

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(scale=3, size=(5, 7))
TARGETS = (RNG.random((5, 7)) < 0.3).astype(float)
WEIGHTS = RNG.uniform(0.5, 4, size=7)


def sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(1 / (1 + np.exp(-x)))


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.tensor(LOGITS), torch.tensor(TARGETS), torch.tensor(WEIGHTS)


@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy(weighted: bool) -> None:
    x, t, w = tensors()
    p, weights = sigmoid(LOGITS), WEIGHTS if weighted else 1.0
    expected = -(weights * TARGETS * np.log(p) + (1 - TARGETS) * np.log(1 - p)).mean()
    assert float(losses.binary_cross_entropy(x, t, w if weighted else None)) == pytest.approx(expected)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.5])
def test_focal(gamma: float) -> None:
    x, t, w = tensors()
    p = sigmoid(LOGITS)
    q = np.where(TARGETS > 0, p, 1 - p)  # the probability given to what is true
    expected = (-np.where(TARGETS > 0, WEIGHTS, 1) * (1 - q) ** gamma * np.log(q)).mean()
    assert float(losses.focal(x, t, gamma, w)) == pytest.approx(expected)


@pytest.mark.parametrize(("positive", "negative", "margin"), [(0, 4, 0.05), (1, 2, 0.0), (0, 0, 0.2)])
def test_asymmetric(positive: float, negative: float, margin: float) -> None:
    x, t, _ = tensors()
    p = sigmoid(LOGITS)
    m = np.maximum(p - margin, 0)
    expected = -(TARGETS * (1 - p) ** positive * np.log(p) + (1 - TARGETS) * m**negative * np.log(1 - m)).mean()
    assert float(losses.asymmetric(x, t, positive, negative, margin)) == pytest.approx(expected, rel=1e-5)


def test_gradients_are_finite_where_the_network_is_certain() -> None:
    for loss in (losses.binary_cross_entropy, losses.focal, losses.asymmetric):
        x = torch.tensor([[-90.0, 90.0, 0.0]], requires_grad=True)
        loss(x, torch.tensor([[1.0, 0.0, 1.0]])).backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None and torch.isfinite(x.grad).all()


def test_smoothing_moves_both_targets_by_the_same_amount() -> None:
    assert losses.smooth(torch.tensor([0.0, 1.0]), 0.2).tolist() == pytest.approx([0.1, 0.9])


def test_capped_imbalance_weights_follow_the_ratio_and_the_cap() -> None:
    found = capped_imbalance_weights(np.array([0, 1, 50, 100]), 100, 0.5, most=5)
    assert found.tolist() == pytest.approx([1, 5, 1, np.sqrt(1e-3)])
    assert capped_imbalance_weights(np.array([10]), 100, 1.0).tolist() == pytest.approx([9])


def test_log_odds_of_labels_that_nobody_has_stay_small_together() -> None:
    few = sigmoid(losses.log_odds(np.array([0, 40, 100]), 100))
    assert few.tolist() == pytest.approx([0.5 / 101, 40.5 / 101, 100.5 / 101])
    counts = np.zeros(20_000)
    counts[:4] = 40
    many = sigmoid(losses.log_odds(counts, 100))
    assert many[:4].tolist() == pytest.approx([0.4] * 4, abs=1e-3)
    assert 0 < many[4:].sum() <= 0.1 * many[:4].sum() and np.isfinite(losses.log_odds(np.zeros(3), 0)).all()


def test_log_odds_are_those_of_the_frequencies() -> None:
    assert sigmoid(losses.log_odds(np.array([10, 90]), 100)).tolist() == pytest.approx([0.1, 0.9], abs=0.01)
