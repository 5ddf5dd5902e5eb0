"""Beam search: against exhaustive search and a plain greedy loop, over decoders whose every step depends on all before it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from polytag.nn.decoding.beam_search import Found, beam_search
from polytag.nn.decoding.lstm_decoder import Decoder, Memory, State


def energies(document: float, code: Any, n_labels: int) -> Any:
    """The logits after a prefix with this code: numbers that follow no rule a search could use."""
    each = np.arange(n_labels + 1)
    return 4 * np.sin(1000 * np.sin(document + 12.9898 * np.asarray(code)[..., None] + 78.233 * each))


class Whimsical(Decoder):
    """A decoder whose state is the whole prefix, written as one number; a document is the number that its states hold."""

    def _start(self, states: Tensor, mask: Tensor, last: Tensor | None = None) -> tuple[Memory, State]:
        return states[:, 0, 0].double(), (torch.zeros(len(states), 1, dtype=torch.float64),)

    def _step(self, previous: Tensor, seen: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        code = (state[0] * 7 + previous + 1) % 1009
        each = torch.arange(self.n_labels + 1, dtype=torch.float64)
        inner = memory[:, None, None] + 12.9898 * code[..., None] + 78.233 * each
        return 4 * torch.sin(1000 * torch.sin(inner)), (code,)


def after(document: float, prefix: tuple[int, ...], n_labels: int, mask: bool) -> Any:
    """The distribution after a prefix, written down plainly."""
    code = 0
    for label in (n_labels + 1, *prefix):
        code = (code * 7 + label + 1) % 1009
    o = energies(document, code, n_labels)
    if mask:
        o[list(prefix)] = -np.inf
    e = np.exp(o - o.max())
    return e / e.sum()


def everything(document: float, n_labels: int, longest: int, mask: bool = True) -> dict[tuple[int, ...], float]:
    """The log-probability of every sequence there is."""
    found = {}
    for size in range(longest + 1):
        many = itertools.permutations(range(n_labels), size) if mask else itertools.product(range(n_labels), repeat=size)
        for sequence in many:
            steps = [after(document, sequence[:t], n_labels, mask)[label] for t, label in enumerate((*sequence, n_labels))]
            found[sequence] = sum(map(math.log, steps))
    return found


def search(documents: list[float], n_labels: int, *, mask: bool = True, **options: Any) -> Found:
    states = torch.tensor(documents)[:, None, None]
    return beam_search(Whimsical(n_labels, mask=mask), states, torch.ones(len(states), 1, dtype=torch.bool), **options)


def sequences(found: Found, document: int) -> dict[tuple[int, ...], float]:
    """What was found for a document, in order, without the places that nothing was found for."""
    rows = zip(found.labels[document].tolist(), found.log_probability[document].tolist(), strict=True)
    return {tuple(label for label in row if label >= 0): log for row, log in rows if log > -math.inf}


numbers = st.integers(0, 1000).map(lambda n: float(np.float32(n / 7)))


@settings(max_examples=40, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 4), st.sampled_from([0.0, 0.6, 1.0]))
def test_a_wide_beam_finds_what_exhaustive_search_finds(
    documents: list[float], n_labels: int, longest: int, power: float
) -> None:
    """All sequences, their log-probabilities and their order, however lengths are normalised."""
    found = search(documents, n_labels, beam=400, longest=longest, length_penalty=power)
    for row, document in enumerate(documents):
        every = everything(document, n_labels, longest)
        mine = sequences(found, row)
        assert mine.keys() == every.keys()
        assert list(mine.values()) == pytest.approx([every[sequence] for sequence in mine], abs=1e-4)
        worth = [every[sequence] / (len(sequence) + 1) ** power for sequence in mine]
        assert worth == pytest.approx(sorted(worth, reverse=True), abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(numbers, st.integers(1, 4), st.integers(1, 4))
def test_scores_come_from_the_best_sequence_and_from_all_of_them(document: float, n_labels: int, longest: int) -> None:
    found = search([document], n_labels, beam=400, longest=longest)
    every = everything(document, n_labels, longest)
    best = max(every, key=lambda sequence: every[sequence])
    steps = [after(document, best[:t], n_labels, True) for t in range(len(best) + 1)]
    assert found.pooled[0].numpy() == pytest.approx(np.max(steps, axis=0)[:n_labels], abs=1e-5)
    p = np.exp(list(every.values()))
    marginal = [sum(p[i] for i, s in enumerate(every) if label in s) / p.sum() for label in range(n_labels)]
    assert found.marginal[0].numpy() == pytest.approx(marginal, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(numbers, st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_a_beam_of_one_is_greedy(document: float, n_labels: int, longest: int, mask: bool) -> None:
    prefix: tuple[int, ...] = ()
    log_probability, pooled = 0.0, np.zeros(n_labels)
    while True:
        y = after(document, prefix, n_labels, mask)
        pooled = np.maximum(pooled, y[:n_labels])
        label = int(y.argmax()) if len(prefix) < longest else n_labels
        log_probability += math.log(y[label])
        if label == n_labels:
            break
        prefix = (*prefix, label)
    found = search([document], n_labels, mask=mask, beam=1, longest=longest)
    assert list(sequences(found, 0)) == [prefix]
    assert float(found.log_probability[0, 0]) == pytest.approx(log_probability, abs=1e-4)
    assert found.pooled[0].numpy() == pytest.approx(pooled, abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(numbers, min_size=2, max_size=5), st.integers(2, 6), st.integers(1, 9), st.booleans(), st.sampled_from([0.0, 0.7])
)
def test_what_else_is_in_the_batch_does_not_matter(
    documents: list[float], n_labels: int, beam: int, only_best: bool, power: float
) -> None:
    """Nor does it matter that some documents have ended while others go on."""
    options: dict[str, Any] = {"beam": beam, "longest": 4, "length_penalty": power, "only_best": only_best}
    together = search(documents, n_labels, **options)
    for row, document in enumerate(documents):
        alone = search([document], n_labels, **options)
        assert together.labels[row, 0].tolist() == alone.labels[0, 0].tolist()
        assert torch.equal(together.pooled[row], alone.pooled[0])
        if not only_best:
            assert sequences(together, row) == sequences(alone, 0)
            assert torch.allclose(together.marginal[row], alone.marginal[0], atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=4), st.integers(2, 6), st.integers(1, 9), st.sampled_from([0.0, 0.5, 1.5]))
def test_ending_when_the_best_is_known_changes_nothing_about_it(
    documents: list[float], n_labels: int, beam: int, power: float
) -> None:
    options: dict[str, Any] = {"beam": beam, "longest": 5, "length_penalty": power}
    whole, short = search(documents, n_labels, **options), search(documents, n_labels, only_best=True, **options)
    assert torch.equal(whole.labels[:, 0], short.labels[:, 0])
    assert torch.equal(whole.log_probability[:, 0], short.log_probability[:, 0])
    assert torch.equal(whole.pooled, short.pooled)


@settings(max_examples=30, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 40), st.integers(1, 7))
def test_no_label_comes_twice_and_nothing_comes_after_the_end(
    documents: list[float], n_labels: int, beam: int, longest: int
) -> None:
    found = search(documents, n_labels, beam=beam, longest=longest)
    assert found.labels.shape[2] == longest and 1 <= found.labels.shape[1] <= beam
    for row in range(len(documents)):
        kept = [
            s for s, log in zip(found.labels[row].tolist(), found.log_probability[row].tolist(), strict=True) if log > -math.inf
        ]
        for sequence in kept:
            labels = [label for label in sequence if label >= 0]
            assert sequence == labels + [-1] * (longest - len(labels)) and len(set(labels)) == len(labels)
            assert all(0 <= label < n_labels for label in labels)
        assert len({tuple(sequence) for sequence in kept}) == len(kept), "no hypothesis is there twice"
        logs = found.log_probability[row].tolist()
        assert logs == sorted(logs, reverse=True)


def test_without_a_mask_labels_repeat_and_count_once() -> None:
    """The ablation of the paper: then all sequences with repetitions are found, and a repeated label has one share."""
    for document in (0.5, 1.5, 2.5):
        found = search([document], 2, mask=False, beam=400, longest=3)
        every = everything(document, 2, 3, mask=False)
        assert (1, 1) in every and sequences(found, 0) == pytest.approx(every, abs=1e-4)
        p = np.exp(list(every.values()))
        marginal = [sum(p[i] for i, s in enumerate(every) if label in s) / p.sum() for label in range(2)]
        assert found.marginal[0].numpy() == pytest.approx(marginal, abs=1e-5)


def test_length_normalisation_prefers_longer_sequences() -> None:
    documents = [float(np.float32(n / 7)) for n in range(60)]
    mean = [
        float((search(documents, 5, beam=50, longest=5, length_penalty=power).labels[:, 0] >= 0).sum(dim=1).float().mean())
        for power in (0.0, 0.5, 1.0)
    ]
    assert mean[0] < mean[1] < mean[2]


def test_a_wider_beam_finds_better_sequences_on_average() -> None:
    documents = [float(np.float32(n / 7)) for n in range(60)]
    logs = [float(search(documents, 6, beam=beam, longest=5).log_probability[:, 0].mean()) for beam in (1, 3, 200)]
    assert logs[0] < logs[1] < logs[2]
