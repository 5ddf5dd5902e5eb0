"""Promises: thresholds against brute force, and what is promised against new draws."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from conftest import Toy
from polytag import Classifier, LabelSet, Scores
from polytag.config.promise import Promise
from polytag.decision.decision import Decision
from polytag.decision.risk_control import Sets, keep
from polytag.errors import ConfigError, DataError

LABELS = LabelSet([f"l{i}" for i in range(12)], parents={"l3": "l0", "l4": "l3", "l7": "l1"})


def drawn(seed: int, n: int, sharpness: float = 2.0) -> tuple[Scores, csr_array]:
    """Probabilities of 12 labels, and labels drawn with nearly these probabilities."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-2, sharpness, (n, len(LABELS)))
    truth = rng.random(logits.shape) < 1 / (1 + np.exp(-logits - rng.normal(0, 0.5, (n, 1))))
    values = (1 / (1 + np.exp(-logits))).astype(np.float32)
    return Scores.full(values, LABELS.names, "probability"), csr_array(truth.astype(np.float32))


def recalls(scores: Scores, truth: csr_array, threshold: float) -> NDArray[np.float64]:
    inside, true = scores.matrix.toarray() >= threshold, truth.toarray() > 0
    return np.where(true.any(axis=1), (inside & true).sum(axis=1) / np.maximum(true.sum(axis=1), 1), 1.0)


def precisions(scores: Scores, truth: csr_array, threshold: float) -> NDArray[np.float64]:
    """Of the documents with labels."""
    inside, true = scores.matrix.toarray() >= threshold, truth.toarray() > 0
    some = inside.any(axis=1)
    return ((inside & true).sum(axis=1) / np.maximum(inside.sum(axis=1), 1))[some]


def sets_of(scores: Scores, truth: csr_array) -> Sets:
    return Sets.of(scores, truth, LABELS, 0, False)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("seed", range(3))
def test_the_threshold_for_recall_is_the_largest_one_that_conformal_risk_control_allows(seed: int, level: float) -> None:
    scores, truth = drawn(seed, 60)
    found = keep(Promise("recall", level), sets_of(scores, truth)).threshold
    n = len(scores)
    allowed = [
        value
        for value in [*np.unique(scores.matrix.data), np.float32(np.inf)]
        if (n * (1 - recalls(scores, truth, value).mean()) + 1) / (n + 1) <= 1 - level + 1e-12
    ]
    assert found == max(allowed)


def test_recall_holds_in_expectation_over_draws_and_is_not_far_above() -> None:
    values = []
    for seed in range(150):
        (held, truth), (new, new_truth) = drawn(2 * seed, 80), drawn(2 * seed + 1, 200)
        values.append(recalls(new, new_truth, keep(Promise("recall", 0.9), sets_of(held, truth)).threshold).mean())
    error = np.std(values) / np.sqrt(len(values))
    assert 0.9 - 2 * error <= np.mean(values) <= 0.9 + 0.02 + 2 * error


@pytest.mark.parametrize(("goal", "measure"), [("recall", recalls), ("precision", precisions)])
def test_a_confidence_is_kept_over_draws(goal: str, measure: object) -> None:
    """The share of draws below the level is at most 1 - confidence; and the decision is not needlessly cautious."""
    assert callable(measure)
    new, new_truth = drawn(10_001, 20_000)
    level, values = (0.8, []) if goal == "recall" else (0.7, [])
    for seed in range(60):
        held, truth = drawn(seed, 300)
        values.append(measure(new, new_truth, keep(Promise(goal, level, 0.8), sets_of(held, truth)).threshold).mean())
    missed = np.mean(np.array(values) < level)
    assert missed <= 0.2 + 2 * np.sqrt(0.2 * 0.8 / 60)
    assert np.mean(values) < level + 0.08


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("least", [0, 2])
@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5, 0.9, np.inf])
def test_the_nested_sets_are_those_of_the_decision(least: int, closed: bool, threshold: float) -> None:
    scores, truth = drawn(5, 40)
    scores = scores.best(7)  # not every label is scored
    sets = Sets.of(scores, truth, LABELS, least, closed)
    decision = Decision("threshold", min_labels=least, closed=closed, thresholds=np.array([threshold], dtype=np.float32))
    decided = decision.decide(scores, LABELS)
    inside = sets.values >= threshold
    assert np.array_equal(np.bincount(sets.documents[inside], minlength=40), np.diff(decided.indptr))
    hits = np.diff(csr_array(decided.multiply(truth)).indptr)
    assert np.array_equal(np.bincount(sets.documents[inside & sets.hit], minlength=40), hits)
    assert sets.size_at(threshold) == pytest.approx(decided.nnz / 40)


def test_margins_are_thresholded_as_they_are() -> None:
    scores, truth = drawn(3, 200)
    margins = scores.with_values(np.log(scores.matrix.data / (1 - scores.matrix.data)), "margin")
    for text in ("recall=.8,confidence=.8", "precision=.6,confidence=.8"):
        promise = Promise.parse(text)
        one, other = (keep(promise, sets_of(found, truth)).threshold for found in (scores, margins))
        assert np.log(one / (1 - one)) == pytest.approx(float(other), abs=1e-3)


def test_what_held_out_documents_cannot_support_is_refused() -> None:
    scores, truth = drawn(1, 8)
    with pytest.raises(DataError, match=r"recall=0\.9 needs at least 9 held-out documents, there are 8"):
        keep(Promise("recall", 0.9), sets_of(scores, truth))
    few = drawn(2, 50)
    with pytest.raises(DataError, match=r"out of reach: all scored labels of 50 held-out documents have a recall of 0\.\d+"):
        keep(Promise("recall", 0.95), Sets.of(few[0].best(1), few[1], LABELS, 0, False))
    for text in ("recall=.9,confidence=.99", "precision=.99,confidence=.99"):
        with pytest.raises(DataError, match="out of reach"):
            keep(Promise.parse(text), sets_of(scores, truth))


def test_promises_are_read_and_written() -> None:
    assert Promise.parse(" recall = .9 ") == Promise("recall", 0.9) and str(Promise("recall", 0.9)) == "recall=0.9"
    assert Promise.parse("precision=.8") == Promise("precision", 0.8, 0.9)
    assert Promise.parse("confidence=.95,recall=.5") == Promise.parse("recall=0.5,confidence=0.95")


@pytest.mark.parametrize("text", ["", "recall", "f1=.9", "recall=.9,precision=.9", "confidence=.9", "recall=.9,recall=.8"])
def test_what_is_no_promise_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a promise; write recall="):
        Promise.parse(text)


@pytest.mark.parametrize("text", ["recall=0", "recall=1", "recall=-1", "recall=nan", "recall=x", "recall=.9,confidence=1.5"])
def test_levels_outside_zero_and_one_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a number between 0 and 1"):
        Promise.parse(text)


def test_a_promise_is_part_of_the_classifier(toy: Toy, tmp_path: object) -> None:
    trained = Classifier("br", {"promise": "recall=.8", "c": [1.0], "ngrams": [1]}).fit(toy.train, toy.valid)
    assert trained.decision.rule == "promise" and trained.decision.report["promise"] == "recall=0.8"
    assert trained.decision.report["documents"] <= (len(toy.train) + len(toy.valid)) // 2 + 1, "the calibration has its own half"
    trained.save(str(tmp_path))
    again = Classifier.load(str(tmp_path))
    assert again.decision.promise == "recall=0.8" and again.predict(toy.test.texts) == trained.predict(toy.test.texts)
    assert trained.evaluate(toy.test)["samples_recall"] > 0.7
    with pytest.raises(DataError, match=r"precision=0.99,confidence=0.99\S* is out of reach"):
        Classifier("br", {"promise": "precision=.99,confidence=.99", "c": [1.0]}).fit(toy.train, toy.valid)
