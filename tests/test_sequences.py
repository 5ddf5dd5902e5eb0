"""Label sets as sequences: their orders, what a decoder is taught, its loss, and the way back to sets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polytag.labels import LabelSet, indicator
from polytag.nn.decoding.label_sequences import (
    IGNORE,
    as_sets,
    inputs_for,
    label_ranks,
    log_shares,
    sequence_loss,
    target_sequences,
)

TREE = LabelSet(["leaf", "other", "root", "middle", "twig"], parents={"leaf": "middle", "middle": "root", "twig": "root"})
TRUTH = indicator([[0, 2], [0, 2, 3], [0, 4], [0, 1]], 5)


def order_of(order: str) -> list[str]:
    ranks = label_ranks(order, TREE, TRUTH)
    assert ranks is not None
    return [TREE.names[i] for i in np.argsort(ranks)]


def test_each_order_is_what_its_name_says() -> None:
    assert order_of("frequency") == ["leaf", "root", "other", "middle", "twig"]
    assert order_of("topological") == ["other", "root", "middle", "leaf", "twig"]
    assert order_of("given") == list(TREE.names)
    assert label_ranks("random", TREE, TRUTH) is None


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_topological_order_puts_every_parent_before_its_children(data: Any) -> None:
    """For random trees, in the sequences themselves."""
    n = data.draw(st.integers(2, 9))
    names = [f"l{i}" for i in data.draw(st.permutations(range(n)))]
    parents = {f"l{i}": f"l{data.draw(st.integers(0, i - 1))}" for i in range(1, n) if data.draw(st.booleans())}
    labels = LabelSet(names, parents=parents)
    own = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    truth = labels.close(indicator([own], n))
    ranks = label_ranks("topological", labels, truth)
    assert ranks is not None
    sequence = target_sequences(torch.from_numpy(truth.toarray()), torch.from_numpy(ranks), n + 1)[0].tolist()
    place = {names[label]: at for at, label in enumerate(sequence) if 0 <= label < n}
    assert len(place) == truth.nnz
    assert all(place[parents[name]] < place[name] for name in place if name in parents)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_sequence_holds_the_labels_in_order_then_the_end(data: Any) -> None:
    n, steps = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 8))
    sets = data.draw(st.lists(st.lists(st.integers(0, n - 1), unique=True), min_size=1, max_size=5))
    ranks = data.draw(st.permutations(range(n)))
    targets = torch.from_numpy(indicator(sets, n).toarray())
    found = target_sequences(targets, torch.tensor(ranks, dtype=torch.float32), steps)
    for own, row in zip(sets, found.tolist(), strict=True):
        expected = [*sorted(own, key=lambda label: ranks[label]), n, *[IGNORE] * steps][:steps]
        assert row == expected


def test_a_random_order_differs_between_documents_and_draws() -> None:
    targets = torch.ones(200, 4)
    torch.manual_seed(0)
    first, second = (target_sequences(targets, None, 5) for _ in range(2))
    assert (first[:, 4] == 4).all() and (first[:, :4].sort(dim=1).values == torch.arange(4)).all()
    assert len({tuple(row) for row in first.tolist()}) == 24 and not torch.equal(first, second)


def test_inputs_are_the_sequences_moved_by_one() -> None:
    sequence = torch.tensor([[2, 0, 3, IGNORE], [3, IGNORE, IGNORE, IGNORE], [0, 1, 2, 3]])
    assert inputs_for(sequence, 3).tolist() == [[4, 2, 0, 3], [4, 3, 3, 3], [4, 0, 1, 2]]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_the_mean_log_likelihood_of_the_sequences(smoothing: float) -> None:
    """Written down step by step; what is masked or comes after the end counts nothing, and has no gradient."""
    torch.manual_seed(1)
    sequence = torch.tensor([[2, 0, 3, IGNORE], [3, IGNORE, IGNORE, IGNORE]])
    logits = torch.randn(2, 4, 4)
    logits[0, 1:, 2] = logits[0, 2:, 0] = -math.inf
    logits[1, 1:, :3] = -math.inf
    logits.requires_grad_()
    loss = sequence_loss(logits, sequence, smoothing)
    loss.backward()  # type: ignore[no-untyped-call]
    total = 0.0
    for row, steps in enumerate(([2, 0, 3], [3])):
        for t, label in enumerate(steps):
            o = logits[row, t].detach().numpy().astype(float)
            log_p = o - math.log(np.exp(o).sum())
            allowed = log_p[np.isfinite(log_p)]
            total -= (1 - smoothing) * log_p[label] + smoothing * allowed.mean()
    assert float(loss.detach()) == pytest.approx(total / 2, abs=1e-5)
    assert logits.grad is not None and logits.grad.isfinite().all()
    assert (logits.grad[sequence == IGNORE] == 0).all() and (logits.grad[sequence != IGNORE] != 0).any(dim=1).all()


def test_log_shares_are_those_of_all_that_is_generated() -> None:
    found = np.exp(log_shares(np.array([4, 1, 0]), 4))
    assert found.sum() == pytest.approx(1) and found == pytest.approx(np.array([4.5, 1.5, 0.5, 4.5]) / 11)


def test_sequences_are_sets_again() -> None:
    sequences = np.array([[3, 0, -1], [-1, -1, -1], [1, 1, 2]])
    found = as_sets(sequences, 4)
    assert found.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 0]]
    assert found.has_sorted_indices and found.data.dtype == np.float32
    assert as_sets(np.zeros((0, 3), dtype=int), 4).shape == (0, 4)
