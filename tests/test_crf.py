"""The CRF: everything it computes equals what adding up all tag sequences one by one gives."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from polytag.nn.decoding.crf import Crf
from toys import array


def some_crf(tags: int, seed: int, scale: float = 1.0) -> Crf:
    torch.manual_seed(seed)
    crf = Crf(tags)
    with torch.no_grad():
        for weight in crf.parameters():
            weight.copy_(scale * torch.randn_like(weight))
    return crf


def score_of(crf: Crf, emissions: NDArray[Any], sequence: tuple[int, ...]) -> float:
    """s(x, y), term by term."""
    total = array(crf.first)[sequence[0]] + array(crf.last)[sequence[-1]]
    total += sum(emissions[place, tag] for place, tag in enumerate(sequence))
    return float(total + sum(array(crf.transitions)[a, b] for a, b in itertools.pairwise(sequence)))


@settings(max_examples=40)
@given(st.integers(2, 3), st.integers(1, 6), st.integers(0, 1000), st.sampled_from([0.1, 1.0, 5.0]))
def test_it_equals_brute_force(tags: int, length: int, seed: int, scale: float) -> None:
    crf = some_crf(tags, seed, scale)
    emissions = scale * torch.randn(4, length, tags)
    sequences = list(itertools.product(range(tags), repeat=length))
    best, marginals, logs = array(crf.decode(emissions)), array(crf.marginals(emissions)), array(crf.log_partition(emissions))
    for row in range(4):
        scores = np.array([score_of(crf, array(emissions)[row], sequence) for sequence in sequences])
        log_z = scores.max() + np.log(np.exp(scores - scores.max()).sum())
        p = np.exp(scores - log_z)
        assert logs[row] == pytest.approx(log_z, abs=1e-4)
        expected = [[p[[s[place] == tag for s in sequences]].sum() for tag in range(tags)] for place in range(length)]
        assert marginals[row] == pytest.approx(np.array(expected), abs=1e-4)
        assert score_of(crf, array(emissions)[row], tuple(best[row].astype(int))) == pytest.approx(scores.max(), abs=1e-4)
        one = seed % len(sequences)
        found = crf.log_likelihood(emissions[row : row + 1], torch.tensor([sequences[one]]))
        assert float(found.detach()) == pytest.approx(float(np.log(p[one])), abs=1e-3)


def test_marginals_are_the_gradient_of_the_partition() -> None:
    """d log Z / d emission is the probability of that tag at that place: a second way to the same numbers."""
    crf = some_crf(2, 3)
    emissions = torch.randn(5, 9, 2, requires_grad=True)
    (slope,) = torch.autograd.grad(crf.log_partition(emissions).sum(), emissions)
    assert torch.allclose(slope, crf.marginals(emissions), atol=1e-5)


def test_transitions_decide_where_emissions_do_not() -> None:
    """Tags that must alternate do, whatever a single place says: the best sequence is not the best tag of each place."""
    crf = Crf(2)
    with torch.no_grad():
        crf.transitions.copy_(torch.tensor([[-9.0, 9.0], [9.0, -9.0]]))
    emissions = torch.zeros(1, 5, 2)
    emissions[0, 0, 1] = 1.0
    emissions[0, 1, 1] = 0.5
    assert crf.decode(emissions).tolist() == [[1, 0, 1, 0, 1]]


def test_it_never_asks_the_host() -> None:
    """On the device ``meta`` there are no values: whatever asked for one would raise."""
    crf = Crf(2).to("meta")
    emissions = torch.zeros(3, 7, 2, device="meta", requires_grad=True)
    (-crf.log_likelihood(emissions, torch.zeros(3, 7, dtype=torch.long, device="meta")).mean()).backward()
    assert crf.decode(emissions).shape == (3, 7) and crf.marginals(emissions).shape == (3, 7, 2)
