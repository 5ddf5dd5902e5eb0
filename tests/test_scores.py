"""Scores: ranking, cutting, stacking and mixing agree with plain loops over dense tables, and lose nothing."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from polytag.errors import ConfigError
from polytag.kernels.top_k import best_of_sparse_rows
from polytag.labels import indicator
from polytag.scores import Scores

Dense = np.ndarray[Any, Any]
LEVELS = st.sampled_from([0.0, 0.25, 0.5, 1.0])  # few levels, so that ties and explicit zeros are common
relaxed = settings(deadline=None, max_examples=80)


def names(count: int) -> list[str]:
    return [f"label {j}" for j in range(count)]


@st.composite
def tables(draw: st.DrawFn, documents: int | None = None, labels: int | None = None) -> tuple[Dense, Dense]:
    """Values, and which of them are stored."""
    n = draw(st.integers(0, 5)) if documents is None else documents
    n_labels = draw(st.integers(1, 5)) if labels is None else labels
    return draw(arrays(np.float32, (n, n_labels), elements=LEVELS)), draw(arrays(np.bool_, (n, n_labels)))


def build(values: Dense, stored: Dense, kind: Any = "probability") -> Scores:
    labels = np.where(stored, np.arange(values.shape[1]), -1)
    return Scores.candidates(labels, values, names(values.shape[1]), kind)


def entries(scores: Scores) -> list[dict[int, float]]:
    """The stored entries per document; fails if labels are not strictly ascending."""
    for labels, _ in scores:
        assert (np.diff(labels) > 0).all()
    return [dict(zip(labels.tolist(), values.tolist(), strict=True)) for labels, values in scores]


def best_first(row: Dense, keep: Dense) -> list[int]:
    return sorted(np.flatnonzero(keep).tolist(), key=lambda j: (-row[j], j))


@relaxed
@given(tables(), st.integers(0, 7), st.sampled_from([0, 32]))
def test_ranked_is_best_first_with_ties_by_number_and_filled_with_minus_one(table: tuple[Dense, Dense], k: int, few: int) -> None:
    """Whether the best are looked for one by one, or all are sorted."""
    values, stored = table
    for scores, keep in ((build(values, stored), stored), (Scores.full(values, names(values.shape[1]), "margin"), values >= 0)):
        with mock.patch("polytag.scores._FEW", few):
            labels, found = scores.ranked(k)
        width = min(k, values.shape[1])  # no document has more labels than there are
        assert labels.shape == found.shape == (len(values), width)
        for i in range(len(values)):
            expected = best_first(values[i], keep[i])[:k]
            assert labels[i].tolist() == expected + [-1] * (width - len(expected))
            assert found[i].tolist() == [values[i, j] for j in expected] + [scores.absent] * (width - len(expected))


@relaxed
@given(tables(), st.integers(0, 7))
def test_top_gives_names_and_values_best_first(table: tuple[Dense, Dense], k: int) -> None:
    values, stored = table
    expected = [
        [(f"label {j}", float(row[j])) for j in best_first(row, keep)[:k]] for row, keep in zip(values, stored, strict=True)
    ]
    assert build(values, stored).top(k) == expected


@relaxed
@given(tables(), LEVELS)
def test_above_keeps_the_labels_at_or_over_the_threshold(table: tuple[Dense, Dense], threshold: float) -> None:
    values, stored = table
    expected = [
        [f"label {j}" for j in best_first(row, keep & (row >= threshold))] for row, keep in zip(values, stored, strict=True)
    ]
    assert build(values, stored).above(threshold) == expected


@relaxed
@given(tables(), st.integers(0, 7))
def test_best_keeps_the_first_k_and_everything_else_about_the_scores(table: tuple[Dense, Dense], k: int) -> None:
    values, stored = table
    decoded, logs = indicator([[0]] * len(values), values.shape[1]), np.arange(len(values), dtype=np.float32)
    base = build(values, stored)
    scores = Scores(base.matrix, base.names, "probability", 0.125, decoded, logs)
    cut = scores.best(k)
    assert entries(cut) == [
        {j: float(row[j]) for j in best_first(row, keep)[:k]} for row, keep in zip(values, stored, strict=True)
    ]
    assert cut.decoded is decoded and cut.log_probability is logs
    assert (cut.kind, cut.names, cut.absent) == (scores.kind, scores.names, scores.absent)


@relaxed
@given(tables())
def test_full_stores_every_entry_and_candidates_only_the_given_ones(table: tuple[Dense, Dense]) -> None:
    values, stored = table
    full = Scores.full(values, names(values.shape[1]), "probability")
    assert full.is_full and len(full) == len(values)
    assert entries(full) == [dict(enumerate(row.tolist())) for row in values]
    some = build(values, stored)
    assert some.is_full == bool(stored.all())
    assert entries(some) == [{j: float(row[j]) for j in np.flatnonzero(keep)} for row, keep in zip(values, stored, strict=True)]


def test_candidates_may_come_in_any_order_with_gaps_anywhere() -> None:
    labels = np.array([[3, -1, 0], [-1, -1, -1], [2, 1, 4]])
    values = np.array([[0.5, 9.0, 0.0], [9.0, 9.0, 9.0], [0.1, 0.2, 0.3]])
    scores = Scores.candidates(labels, values, names(5), "margin")
    assert entries(scores) == [{0: 0.0, 3: 0.5}, {}, {1: pytest.approx(0.2), 2: pytest.approx(0.1), 4: pytest.approx(0.3)}]
    assert scores.absent == float("-inf") and scores.matrix.shape == (3, 5) and scores.matrix.data.dtype == np.float32
    assert Scores.candidates(np.empty((2, 0), dtype=int), np.empty((2, 0)), names(5), "probability").top(3) == [[], []]


@relaxed
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.data())
def test_stacking_batches_loses_nothing_and_rows_take_them_apart_again(sizes: list[int], data: st.DataObject) -> None:
    tables_ = [data.draw(tables(size, 4)) for size in sizes]
    parts = []
    for values, stored in tables_:
        base = build(values, stored)
        decoded = indicator([np.flatnonzero(keep) for keep in stored], 4)
        parts.append(Scores(base.matrix, base.names, base.kind, base.absent, decoded, np.arange(len(values), dtype=np.float32)))
    whole = Scores.stack(parts)
    assert entries(whole) == [row for part in parts for row in entries(part)]
    start = 0
    for part in parts:
        again = whole.rows(start, start + len(part))
        assert entries(again) == entries(part)
        assert again.decoded is not None and part.decoded is not None
        assert (again.decoded.toarray() == part.decoded.toarray()).all()
        assert np.array_equal(again.log_probability, part.log_probability)  # type: ignore[arg-type]
        start += len(part)


def test_stacking_keeps_explicit_zeros_so_that_full_stays_full() -> None:
    batch = Scores.full(np.zeros((2, 3)), names(3), "probability")
    whole = Scores.stack([batch, batch])
    assert whole.is_full and whole.rows(1, 3).is_full
    assert whole.ranked(3)[0].tolist() == [[0, 1, 2]] * 4


def test_stacking_drops_decoded_sets_unless_every_batch_has_them() -> None:
    bare = Scores.full(np.ones((1, 2)), names(2), "margin")
    decoded = Scores.full(np.ones((1, 2)), names(2), "margin", decoded=indicator([[1]], 2))
    assert Scores.stack([bare, decoded]).decoded is None
    both = Scores.stack([decoded, decoded]).decoded
    assert both is not None and both.toarray().tolist() == [[0, 1], [0, 1]]


@relaxed
@given(tables(3, 4), tables(3, 4), st.floats(0.0625, 1), st.floats(0.0625, 1))
def test_mixing_is_the_weighted_sum_with_absent_as_zero(
    a: tuple[Dense, Dense], b: tuple[Dense, Dense], first: float, second: float
) -> None:
    mixed = Scores.mix([build(*a), build(*b)], [first, second])
    expected = np.where(a[1], a[0], 0) * first + np.where(b[1], b[0], 0) * second
    assert np.allclose(mixed.matrix.toarray(), expected, atol=1e-6)
    assert (mixed.kind, mixed.absent, mixed.matrix.data.dtype) == ("probability", 0.0, np.float32)
    entries(mixed)  # ascending labels


@relaxed
@given(tables(3, 4), tables(3, 4))
def test_mixing_keeps_an_entry_that_any_part_stores_even_if_it_is_zero(a: tuple[Dense, Dense], b: tuple[Dense, Dense]) -> None:
    mixed = Scores.mix([build(*a), build(*b)], [0.5, 0.5])
    assert [set(row) for row in entries(mixed)] == [set(np.flatnonzero(keep)) for keep in a[1] | b[1]]


def test_mixing_refuses_margins_and_different_labels() -> None:
    margin, probability = (Scores.full(np.ones((1, 2)), names(2), kind) for kind in ("margin", "probability"))
    with pytest.raises(ConfigError, match="calibrate"):
        Scores.mix([margin, probability], [0.5, 0.5])
    with pytest.raises(ConfigError, match="labels"):
        Scores.mix([probability, Scores.full(np.ones((1, 2)), ["x", "y"], "probability")], [0.5, 0.5])


@relaxed
@given(tables())
def test_new_values_keep_the_entries_and_change_what_absent_means(table: tuple[Dense, Dense]) -> None:
    values, stored = table
    margins = build(values, stored, "margin")
    assert margins.absent == float("-inf")
    halved = margins.with_values(margins.matrix.data / 2, "probability")
    assert entries(halved) == [{j: value / 2 for j, value in row.items()} for row in entries(margins)]
    assert (halved.kind, halved.absent) == ("probability", 0.0)
    assert entries(margins) == entries(build(values, stored))  # the original is as it was


def test_what_is_no_number_comes_last() -> None:
    data = np.array([np.nan, 2, np.nan, -np.inf, 3], dtype=np.float32)
    labels, found = np.full((1, 5), -1, dtype=np.int32), np.zeros((1, 5), dtype=np.float32)
    best_of_sparse_rows(data, np.arange(5, dtype=np.int32), np.array([0, 5]), labels, found)
    assert labels.tolist() == [[4, 1, 3, 0, 2]] and np.isnan(found[0, 3:]).all()
