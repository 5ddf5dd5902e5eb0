"""Calibration finds the curve that made the labels, keeps the order of the scores, and shrinks for rare labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array

from polytag.decision.calibration import Platt, logit
from polytag.labels import indicator
from polytag.metrics.of_sets import calibration_error
from polytag.scores import Scores


def sigmoid(z: Any) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-np.asarray(z, dtype=np.float64))))


def drawn(documents: int, slopes: list[float], offsets: list[float], seed: int = 0) -> tuple[Scores, csr_array]:
    """Margins, and labels that are true with the probability that each label's own curve gives."""
    generator = np.random.default_rng(seed)
    margins = generator.normal(scale=1.5, size=(documents, len(slopes)))
    true = generator.random(margins.shape) < sigmoid(margins * slopes + offsets)
    names = [str(j) for j in range(len(slopes))]
    return Scores.full(margins, names, "margin"), indicator([np.flatnonzero(row) for row in true], len(slopes))


def test_finds_the_curve_that_made_the_labels() -> None:
    slopes, offsets = [2.0, 0.7, 1.2], [-1.0, 0.5, -2.0]
    scores, truth = drawn(20_000, slopes, offsets)
    fitted = Platt.fit(scores, truth)
    assert fitted.slopes == pytest.approx(slopes, abs=0.1)
    assert fitted.offsets == pytest.approx(offsets, abs=0.1)
    probabilities = fitted.apply(scores)
    expected = sigmoid(scores.matrix.toarray() * slopes + offsets)
    assert np.abs(probabilities.matrix.toarray() - expected).max() < 0.03


def test_the_common_curve_is_the_most_likely_one() -> None:
    """With one label the curve maximises the likelihood and the prior; a general optimiser finds the same."""
    scores, truth = drawn(60, [1.5], [-0.5])
    fitted = Platt.fit(scores, truth)
    x, y = scores.matrix.data.astype(np.float64), scores.hits(truth)

    def loss(w: NDArray[Any], around: NDArray[Any], prior: float) -> float:
        z = w[0] * x + w[1]
        return float((np.logaddexp(0, z) - y * z).sum() + prior / 2 * ((w - around) ** 2).sum())

    common = minimize(loss, np.array([1.0, 0.0]), (np.array([1.0, 0.0]), 1.0)).x
    own = minimize(loss, common, (common, 5.0)).x
    assert [fitted.slopes[0], fitted.offsets[0]] == pytest.approx(own, abs=1e-3)


def test_calibration_error_falls() -> None:
    """Also on other documents than those it was fitted on."""
    slopes, offsets = list(np.linspace(0.5, 3, 10)), list(np.linspace(-3, 1, 10))
    fitted = Platt.fit(*drawn(2_000, slopes, offsets))
    scores, truth = drawn(4_000, slopes, offsets, seed=9)
    naive = scores.with_values(sigmoid(scores.matrix.data), "probability")
    after = fitted.apply(scores)
    assert after.kind == "probability" and after.absent == 0.0
    assert calibration_error(truth, naive) > 0.08
    assert calibration_error(truth, after) < 0.02


def test_rare_labels_stay_close_to_the_common_curve() -> None:
    """Two labels contradict the common curve: with two documents a label bends little, with all of them it follows its own.

    A label without any score has the common curve itself.
    """
    scores, truth = drawn(3_000, [2.0, 2.0, 2.0, 2.0, 0.2], [-1.0, -1.0, -1.0, -1.0, 2.0])
    values = np.hstack([scores.matrix.toarray(), np.ones((3_000, 1))])
    labels = np.tile([0, 1, 2, 3, 4, 5], (3_000, 1))
    labels[2:, 5] = -1
    rows = [[*truth.indices[truth.indptr[i] : truth.indptr[i + 1]], *([5] if i < 2 else [])] for i in range(3_000)]
    fitted = Platt.fit(Scores.candidates(labels, values, list("abcdefg"), "margin"), indicator(rows, 7))
    assert (fitted.slopes[4], fitted.offsets[4]) == (pytest.approx(0.2, abs=0.15), pytest.approx(2.0, abs=0.3))
    own, rare = (abs(fitted.offsets[label] - fitted.offsets[6]) for label in (4, 5))
    assert 0 < rare < 0.2 * own and own > 1
    assert abs(fitted.slopes[5] - fitted.slopes[6]) < 0.2 * abs(fitted.slopes[4] - fitted.slopes[6])


def test_a_label_without_scores_has_the_common_curve() -> None:
    scores, truth = drawn(500, [1.5, 1.5], [-0.5, -0.5])
    m = scores.matrix
    wide = Scores(csr_array((m.data, m.indices, m.indptr), shape=(500, 3)), list("abc"), "margin", -np.inf)
    fitted = Platt.fit(wide, csr_array((truth.data, truth.indices, truth.indptr), shape=(500, 3)))
    assert fitted.slopes[2] == pytest.approx(fitted.slopes[:2].mean(), abs=0.3)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 4), st.floats(0, 1), st.sampled_from([0.01, 1.0, 100.0]))
@settings(deadline=None, max_examples=60)
def test_order_within_a_label_is_kept(seed: int, documents: int, labels: int, rate: float, scale: float) -> None:
    """Whatever the data, even where high scores go with false labels: finite, between 0 and 1, never falling with the score."""
    generator = np.random.default_rng(seed)
    values = (generator.normal(size=(documents, labels)) * scale).astype(np.float32)
    truth = indicator([np.flatnonzero(row < rate) for row in generator.random(values.shape)], labels)
    scores = Scores.full(values, [str(j) for j in range(labels)], "margin")
    fitted = Platt.fit(scores, truth)
    assert (fitted.slopes > 0).all() and np.isfinite(fitted.offsets).all()
    found = fitted.apply(scores).matrix.toarray()
    assert np.isfinite(found).all() and (found >= 0).all() and (found <= 1).all()
    for j in range(labels):
        assert (np.diff(found[np.argsort(values[:, j]), j]) >= 0).all()


def test_applying_keeps_the_entries_and_the_decoded_sets() -> None:
    scores, truth = drawn(30, [1.0, 1.0], [0.0, 0.0])
    few = Scores(scores.best(1).matrix, scores.names, "margin", -np.inf, truth)
    after = Platt.fit(scores, truth).apply(few)
    assert np.array_equal(after.matrix.indices, few.matrix.indices) and np.array_equal(after.matrix.indptr, few.matrix.indptr)
    assert after.decoded is truth and after.matrix.data.dtype == np.float32


def test_probabilities_are_calibrated_on_their_log_odds() -> None:
    scores, truth = drawn(5_000, [2.0], [-1.0])
    sure = scores.with_values(sigmoid(scores.matrix.data), "probability")
    a, b = Platt.fit(scores, truth), Platt.fit(sure, truth)
    assert b.slopes == pytest.approx(a.slopes, abs=0.01)
    assert b.apply(sure).matrix.data == pytest.approx(a.apply(scores).matrix.data, abs=1e-3)


def test_log_odds_are_bounded() -> None:
    assert logit(np.array([0.5]))[0] == 0 and np.isfinite(logit(np.array([0.0, 1.0]))).all()


def test_state_and_back() -> None:
    scores, truth = drawn(100, [1.0, 2.0], [0.0, -1.0])
    fitted = Platt.fit(scores, truth)
    assert np.array_equal(Platt.from_state(fitted.state()).apply(scores).matrix.data, fitted.apply(scores).matrix.data)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_hits_says_which_stored_entries_are_true(seed: int, documents: int, labels: int) -> None:
    generator = np.random.default_rng(seed)
    stored, true = generator.random((2, documents, labels)) < 0.5
    scores = Scores(
        indicator([np.flatnonzero(row) for row in stored], labels), [str(j) for j in range(labels)], "margin", -np.inf
    )
    found = scores.hits(indicator([np.flatnonzero(row) for row in true], labels))
    assert found.tolist() == true[stored].tolist()
