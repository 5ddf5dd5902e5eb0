"""Every analysis equals scikit-learn's or scipy's statistic, or a plain loop over documents, on random sets."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from conftest import Toy
from polytag.analysis import label_pairs
from polytag.analysis.cases import case_studies
from polytag.analysis.combinations import combinations
from polytag.analysis.groups import FREQUENCY_NAMES, by_frequency, by_label_count
from polytag.analysis.label_changes import label_changes
from polytag.analysis.label_table import label_table
from polytag.analysis.reliability import reliability, risk_coverage, set_confidence
from polytag.classifier import Classifier
from polytag.errors import ConfigError, DataError
from polytag.labels import indicator
from polytag.metrics.bootstrap import bootstrap_interval, f1_interval
from polytag.metrics.of_sets import calibration_error, evaluate, frequency_groups, macro_f1, micro_f1, per_label
from polytag.scores import Scores

Dense = np.ndarray[Any, Any]
SEEDS = st.integers(0, 10_000)
few = settings(deadline=None, max_examples=15)


def sparse(table: Dense) -> csr_array:
    return indicator([np.flatnonzero(row) for row in table], table.shape[1])


def names(count: int) -> list[str]:
    return [f"label {j}" for j in range(count)]


def drawn(seed: int, shape: tuple[int, int] = (40, 6), wrong: float = 0.15) -> tuple[Dense, Dense]:
    """A random truth, and a guess with some cells turned over."""
    generator = np.random.default_rng(seed)
    truth = generator.random(shape) < generator.random(shape[1]) * 0.6
    return truth, truth ^ (generator.random(shape) < wrong)


# -- groups ------------------------------------------------------------------------------------------------------------


@few
@given(SEEDS)
def test_quality_by_number_of_labels_is_that_of_the_documents_of_every_row(seed: int) -> None:
    truth, guess = drawn(seed)
    rows = by_label_count(sparse(truth), sparse(guess), least=5, rounds=10).rows
    assert sum(row.documents for row in rows) == len(truth)
    for row in rows:
        chosen = (truth.sum(axis=1) >= row.least) & (truth.sum(axis=1) <= row.most)
        assert row.documents == chosen.sum() >= 5
        expected = sk.f1_score(truth[chosen], guess[chosen], average="micro", zero_division=0)
        assert row.micro_f1 == pytest.approx(expected)
        assert row.hamming_loss == pytest.approx(sk.hamming_loss(truth[chosen], guess[chosen]))
        assert row.low <= row.high
    assert [row.least for row in rows] == sorted(row.least for row in rows)


def test_the_last_numbers_of_labels_join_the_row_before() -> None:
    truth = indicator([[0]] * 6 + [[0, 1]] * 5 + [[0, 1, 2]] * 2 + [[0, 1, 2, 3]], 5)
    assert [row.name for row in by_label_count(truth, truth, least=5, rounds=5).rows] == ["1", "2-4"]
    assert [row.name for row in by_label_count(truth, truth, least=100, rounds=5).rows] == ["1-4"]
    assert [row.name for row in by_label_count(truth, truth, least=1, rounds=5).rows] == ["1", "2", "3", "4"]


@few
@given(SEEDS)
def test_four_frequency_groups_have_scikit_learns_macro_f1_and_the_bounds_of_the_metrics(seed: int) -> None:
    truth, guess = drawn(seed, (60, 12))
    counts = np.random.default_rng(seed).zipf(1.5, 12) % 500
    found = by_frequency(sparse(truth), sparse(guess), counts, rounds=10)
    assert [row.name for row in found.rows] == list(FREQUENCY_NAMES) and sum(row.labels for row in found.rows) == 12
    group = frequency_groups(counts, (0.5, 0.75, 0.9))
    three = frequency_groups(counts)
    assert np.array_equal(three, np.array([0, 1, 1, 2])[group]), "head and tail are those of evaluate"
    for at, row in enumerate(found.rows):
        member = (group == at) & truth.any(axis=0)
        assert row.tested == member.sum()
        each = sk.f1_score(truth, guess, average=None, zero_division=0)
        assert row.macro_f1 == pytest.approx(each[member].mean() if member.any() else 0.0)
    assert list(found.frequencies) == sorted(counts.tolist(), reverse=True)
    assert sum(row.share for row in found.rows) == pytest.approx(1.0 if counts.sum() else 0.0)
    metrics = evaluate(sparse(truth), sparse(guess), None, train_counts=counts)
    assert metrics["head_macro_f1"] == pytest.approx(found.rows[0].macro_f1)
    assert metrics["tail_macro_f1"] == pytest.approx(found.rows[3].macro_f1)


# -- pairs -------------------------------------------------------------------------------------------------------------


def equation_8(truth: Dense, guess: Dense, smoothing: float) -> float:
    """The sum, term by term."""
    total = 0.0
    for a, b in itertools.permutations(range(truth.shape[1]), 2):
        n, m = (truth[:, a] & truth[:, b]).sum(), (guess[:, a] & guess[:, b]).sum()
        if n:
            p = (n + smoothing) / (truth[:, a].sum() + 2 * smoothing)
            q = (m + smoothing) / (guess[:, a].sum() + 2 * smoothing)
            total += p * np.log(p / q)
    return float(total)


@few
@given(SEEDS)
def test_co_occurrence_is_equation_8_by_hand(seed: int) -> None:
    truth, guess = drawn(seed, (30, 5))
    found = label_pairs.co_occurrence(sparse(truth), sparse(guess))
    assert found.total == pytest.approx(equation_8(truth, guess, 0.5), abs=1e-9)
    pairs = [(a, b) for a, b in itertools.permutations(range(5), 2) if (truth[:, a] & truth[:, b]).any()]
    assert found.pairs == len(pairs) and found.labels == len({a for a, _ in pairs})
    assert found.missing == sum(not (guess[:, a] & guess[:, b]).any() for a, b in pairs) == found.pairs - found.common
    assert found.kl == pytest.approx(found.total / max(found.labels, 1))
    if not found.missing:
        assert found.common_kl * max(found.labels, 1) == pytest.approx(equation_8(truth, guess, 0.0), abs=1e-9)
    same = label_pairs.co_occurrence(sparse(truth), sparse(truth))
    assert same.total == same.missing == same.common_kl == 0


def test_labels_predicted_one_by_one_are_further_from_the_truth() -> None:
    """Labels that come together always, predicted independently of each other with the right frequency."""
    generator = np.random.default_rng(0)
    truth = np.repeat(generator.random((500, 4)) < 0.3, 2, axis=1)
    apart = np.stack([generator.permutation(column) for column in truth.T], axis=1)
    slightly = truth ^ (generator.random(truth.shape) < 0.02)
    near, far = (label_pairs.co_occurrence(sparse(truth), sparse(guess)).kl for guess in (slightly, apart))
    assert 0 < near < far / 5


@few
@given(SEEDS)
def test_correlation_is_numpys_and_sorted(seed: int) -> None:
    truth, guess = drawn(seed)
    found = label_pairs.correlations(sparse(truth), names(6), sparse(guess), least=1, shown=6)
    assert [row.phi for row in found.rows] == sorted((row.phi for row in found.rows), reverse=True)
    assert len(found.rows) == sum((truth[:, a] & truth[:, b]).any() for a, b in itertools.combinations(range(6), 2))
    for row in found.rows:
        a, b = int(row.first[-1]), int(row.second[-1])
        assert row.phi == pytest.approx(sk.matthews_corrcoef(truth[:, a], truth[:, b]))
        assert row.predicted_phi == pytest.approx(sk.matthews_corrcoef(guess[:, a], guess[:, b]))
        assert row.together == (truth[:, a] & truth[:, b]).sum()
        assert found.matrix[a][b] == found.matrix[b][a] == pytest.approx(row.phi)
    varied = np.flatnonzero((truth.sum(axis=0) > 0) & (truth.sum(axis=0) < len(truth)))
    expected = np.corrcoef(truth[:, varied].T.astype(float)) if len(varied) > 1 else np.ones((len(varied), len(varied)))
    assert np.allclose(np.array(found.matrix)[np.ix_(varied, varied)], expected)


@few
@given(SEEDS)
def test_confused_and_missed_pairs_are_counted_document_by_document(seed: int) -> None:
    truth, guess = drawn(seed, (30, 5), 0.3)
    found = label_pairs.pair_errors(sparse(truth), sparse(guess), names(5), most=1000)
    confused, missed = {}, {}
    for a, b in itertools.permutations(range(5), 2):
        wrong = (truth[:, a] & ~guess[:, a] & guess[:, b] & ~truth[:, b]).sum()
        alone = (truth[:, a] & guess[:, a] & truth[:, b] & ~guess[:, b]).sum()
        if wrong:
            confused[f"label {a}", f"label {b}"] = (wrong, pytest.approx(wrong / (truth[:, a] & ~guess[:, a]).sum()))
        if alone:
            missed[f"label {a}", f"label {b}"] = (alone, pytest.approx(alone / (truth[:, a] & truth[:, b]).sum()))
    assert {(row.true, row.predicted): (row.documents, row.share) for row in found.confused} == confused
    assert {(row.found, row.missed): (row.documents, row.share) for row in found.missed} == missed
    assert [row.documents for row in found.confused] == sorted((row.documents for row in found.confused), reverse=True)


# -- combinations ------------------------------------------------------------------------------------------------------


@few
@given(SEEDS)
def test_combinations_are_those_of_sets_of_frozen_sets(seed: int) -> None:
    truth, guess = drawn(seed, (25, 4))
    train = drawn(seed + 1, (10, 4))[0]
    found = combinations(sparse(truth), sparse(guess), sparse(train), names(4))
    true, given_, known = ([frozenset(np.flatnonzero(row)) for row in table] for table in (truth, guess, train))
    assert (found.true, found.predicted, found.train) == (len(set(true)), len(set(given_)), len(set(known)))
    assert found.unseen_true == len(set(true) - set(known)) and found.unseen_predicted == len(set(given_) - set(known))
    assert found.subset_accuracy == pytest.approx(sk.accuracy_score(truth, guess))
    unseen = [(t, g) for t, g in zip(true, given_, strict=True) if t not in set(known)]
    assert found.unseen_documents == len(unseen) == len(truth) - found.seen_documents
    assert found.unseen_accuracy == pytest.approx(np.mean([t == g for t, g in unseen]) if unseen else 0)
    assert found.new_sets_right == sum(t == g for t, g in unseen)
    assert found.new_sets_predicted == sum(g not in set(known) for g in given_)
    first = found.rows[0]
    assert first.predicted == max(given_.count(one) for one in given_)
    assert sum(row.predicted for row in found.rows) == len(truth), "at most 16 sets of four labels, all of them shown"


# -- probabilities -----------------------------------------------------------------------------------------------------


@few
@given(SEEDS, st.integers(2, 20))
def test_reliability_is_scikit_learns_calibration_curve(seed: int, bins: int) -> None:
    generator = np.random.default_rng(seed)
    probability = generator.random((50, 4)).astype(np.float32)
    truth = generator.random((50, 4)) < probability
    scores = Scores.full(probability, names(4), "probability")
    found = reliability(sparse(truth), scores, bins=bins)
    true, mean = calibration_curve(truth.ravel(), probability.ravel(), n_bins=bins)
    assert [row.true for row in found.rows] == pytest.approx(true)
    assert [row.probability for row in found.rows] == pytest.approx(mean, rel=1e-5)
    assert found.brier == pytest.approx(sk.brier_score_loss(truth.ravel(), probability.ravel()))
    assert found.expected_error == pytest.approx(calibration_error(sparse(truth), scores, bins))
    assert found.largest_error == pytest.approx(max(abs(row.true - row.probability) for row in found.rows))
    with pytest.raises(ConfigError, match="calibrate"):
        reliability(sparse(truth), Scores.full(probability, names(4), "margin"))


@few
@given(SEEDS)
def test_risk_and_coverage_are_those_of_the_most_certain_documents(seed: int) -> None:
    truth, guess = drawn(seed, (20, 4))
    confidence = np.random.default_rng(seed).permutation(20).astype(float)
    found = risk_coverage(sparse(truth), sparse(guess), confidence)
    order = np.argsort(-confidence)
    errors = []
    for row in found.rows:
        chosen = order[: row.documents]
        assert row.coverage == pytest.approx(row.documents / 20) and row.confidence == confidence[chosen[-1]]
        errors.append(1 - sk.accuracy_score(truth[chosen], guess[chosen]))
        assert row.subset_error == pytest.approx(errors[-1])
        assert row.micro_f1 == pytest.approx(micro_f1(sparse(truth[chosen]), sparse(guess[chosen])))
    assert found.area == pytest.approx(np.mean(errors)) and found.best_area <= found.area + 1e-12
    assert found.random_area == pytest.approx(1 - sk.accuracy_score(truth, guess))
    with pytest.raises(ConfigError, match="one for every document"):
        risk_coverage(sparse(truth), sparse(guess), confidence[:3])


def test_an_order_by_the_errors_themselves_has_the_best_area() -> None:
    truth, guess = drawn(3, (50, 4))
    exact = (truth == guess).all(axis=1).astype(float)
    found = risk_coverage(sparse(truth), sparse(guess), exact)
    assert found.area == pytest.approx(found.best_area) and found.best_area < found.random_area


def test_the_confidence_of_a_set_is_its_log_probability() -> None:
    probability = np.array([[0.9, 0.2, 0.5], [0.1, 0.6, 0.99]], dtype=np.float32)
    scores = Scores.full(probability, names(3), "probability")
    found = set_confidence(scores, indicator([[0], [1, 2]], 3))
    assert found == pytest.approx(np.log([0.9 * 0.8 * 0.5, 0.9 * 0.6 * 0.99]), rel=1e-5)


# -- labels ------------------------------------------------------------------------------------------------------------


@few
@given(SEEDS)
def test_the_table_of_labels_is_scikit_learns(seed: int) -> None:
    truth, guess = drawn(seed)
    thresholds, train = np.linspace(0.1, 0.9, 6), np.arange(6)
    found = label_table(sparse(truth), sparse(guess), names(6), thresholds=thresholds, train_counts=train, rounds=20)
    precision, recall, f1, support = sk.precision_recall_fscore_support(truth, guess, average=None, zero_division=0)
    assert [row.support for row in found.rows] == sorted((row.support for row in found.rows), reverse=True)
    assert len(found.rows) + found.silent == 6 and found.silent == ((truth | guess).sum(axis=0) == 0).sum()
    for row in found.rows:
        j = int(row.label[-1])
        assert (row.precision, row.recall, row.f1) == pytest.approx((precision[j], recall[j], f1[j]))
        assert row.support == support[j] and row.predicted == guess[:, j].sum()
        assert row.threshold == pytest.approx(thresholds[j]) and row.train_documents == train[j]


def test_the_interval_by_counts_is_that_of_resampled_documents() -> None:
    """A bootstrap of the documents themselves, label by label; the bounds agree within the noise of 4,000 rounds."""
    truth, guess = drawn(5, (150, 6), 0.1)
    low, high = f1_interval(per_label(sparse(truth), sparse(guess)), 150, rounds=4000, seed=1)
    generator, samples = np.random.default_rng(2), []
    for _ in range(4000):
        rows = generator.integers(150, size=150)
        hits = (truth[rows] & guess[rows]).sum(axis=0)
        below = truth[rows].sum(axis=0) + guess[rows].sum(axis=0)
        samples.append(np.divide(2 * hits, below, out=np.zeros(6), where=below > 0))
    expected = np.quantile(samples, (0.025, 0.975), axis=0)
    assert np.abs(np.stack([low, high]) - expected).max() < 0.02
    one = bootstrap_interval(sparse(truth), sparse(guess), "macro_f1", rounds=200)
    assert one.low < one.value < one.high and one.value == pytest.approx(macro_f1(sparse(truth), sparse(guess)))


def test_labels_with_equal_counts_have_equal_intervals_and_a_label_never_right_has_none() -> None:
    truth, guess = indicator([[0, 1, 2]] * 5 + [[]] * 5, 3), indicator([[0, 1]] * 4 + [[]] * 6, 3)
    low, high = f1_interval(per_label(truth, guess), 10, rounds=100)
    assert low[0] == low[1] and high[0] == high[1] and (low[2], high[2]) == (0, 0)


# -- cases and changes -------------------------------------------------------------------------------------------------


def test_case_studies_show_the_largest_gain_and_mark_correlated_labels() -> None:
    truth = indicator([[0, 1], [0, 1], [0, 1], [2], [2], [3]], 4)
    first, last = indicator([[0], [0], [0, 1], [2], [3], [3]], 4), indicator([[0, 1], [0, 1], [0, 1], [2], [2], []], 4)
    found = case_studies(truth, {"br": first, "sgm": last}, ["a", "b", "c", "d"], ids=list("uvwxyz"), count=2)
    assert [row.id for row in found.rows] == ["y", "u"] and found.candidates == 3
    assert found.rows[1].correlated == ("a", "b") and found.rows[0].correlated == ()
    assert found.rows[1].systems[0].right == ("a",) and found.rows[1].systems[0].missed == ("b",)
    assert found.rows[0].systems[0].wrong == ("d",) and found.rows[0].systems[1].f1 == 1
    loss = case_studies(truth, {"br": first, "sgm": last}, ["a", "b", "c", "d"], choose="loss")
    assert [row.id for row in loss.rows] == ["5"]
    assert case_studies(truth, {"x": first}, ["a", "b", "c", "d"], choose="worst").rows[0].id == "4"
    any_ = [case_studies(truth, {"x": first}, list("abcd"), choose="random", seed=s, count=6) for s in (1, 1)]
    assert any_[0] == any_[1] and {row.id for row in any_[0].rows} == set("012345")
    with pytest.raises(ConfigError, match="gain"):
        case_studies(truth, {"x": first}, list("abcd"), choose="best")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="at least one"):
        case_studies(truth, {}, list("abcd"))


@few
@given(SEEDS)
def test_changes_are_the_cells_that_differ_and_the_truth_takes_one_side(seed: int) -> None:
    truth, old = drawn(seed, (20, 5), 0.2)
    new = drawn(seed, (20, 5), 0.2)[0] ^ (np.random.default_rng(seed + 1).random((20, 5)) < 0.2)
    values = np.random.default_rng(seed).random((20, 5)).astype(np.float32)
    scores = Scores.full(values, names(5), "probability")
    ids = [f"d{i}" for i in range(20)]
    found = label_changes(sparse(old), sparse(new), names(5), ids, truth=sparse(truth), new_scores=scores)
    cells = {(int(row.label[-1]), change.row): change for row in found.rows for change in row.documents}
    assert set(cells) == {(j, i) for i, j in np.argwhere(old != new).tolist()} and found.changes == len(cells)
    for (j, i), change in cells.items():
        assert change.id == f"d{i}" and change.change == ("gained" if new[i, j] else "lost")
        assert change.true == truth[i, j] and change.better == ("new" if new[i, j] == truth[i, j] else "old")
        assert change.new_score == pytest.approx(values[i, j]) and change.old_score is None
    assert found.changed_documents == (old != new).any(axis=1).sum()
    assert (
        found.new_is_right == ((old != new) & (new == truth)).sum()
        and found.old_is_right == ((old != new) & (old == truth)).sum()
    )
    sizes = [row.gained + row.lost for row in found.rows]
    assert sizes == sorted(sizes, reverse=True) and all(
        row.new_is_right + row.old_is_right == n for row, n in zip(found.rows, sizes, strict=True)
    )
    silent = label_changes(sparse(old), sparse(new), names(5), ids)
    assert silent.new_is_right is None and all(c.better is None and c.true is None for row in silent.rows for c in row.documents)
    assert label_changes(sparse(old), sparse(old), names(5), ids).rows == ()


# -- all together ------------------------------------------------------------------------------------------------------


def test_the_outcome_of_a_classifier_is_what_it_evaluates(toy: Toy, br: Classifier) -> None:
    found = br.outcome(toy.test)
    assert micro_f1(found.truth, found.predicted) == pytest.approx(br.evaluate(toy.test)["micro_f1"])
    predicted = [[found.labels[j] for j in found.predicted[[i]].indices] for i in range(len(toy.test))]
    assert [set(row) for row in predicted] == [set(row) for row in br.predict(toy.test.texts)]
    assert len(found.train_counts) == len(found.labels) == found.scores.matrix.shape[1]
    assert found.thresholds is None or len(found.thresholds) == len(found.labels)


def test_every_analysis_is_json_and_takes_many_labels_without_a_dense_table() -> None:
    """2,000 documents with 35,425 labels: every analysis in a few seconds, and every result as JSON."""
    generator, n_labels = np.random.default_rng(0), 35_425
    ranks = np.minimum(generator.zipf(1.3, (2000, 8)) - 1, n_labels - 1)
    truth = indicator([np.unique(row[:5]) for row in ranks], n_labels)
    guess = indicator([np.unique(row[2:]) for row in ranks], n_labels)
    candidates = np.arange(2000)[:, None] % 90 + np.arange(8) * 100
    scores = Scores.candidates(candidates, generator.random((2000, 8)), names(n_labels), "probability")
    counts, all_names = np.bincount(truth.indices, minlength=n_labels), names(n_labels)
    start = time.process_time()
    results = [
        by_label_count(truth, guess, rounds=100),
        by_frequency(truth, guess, counts, rounds=100),
        label_pairs.co_occurrence(truth, guess),
        label_pairs.correlations(truth, all_names, guess),
        label_pairs.pair_errors(truth, guess, all_names),
        combinations(truth, guess, truth, all_names),
        reliability(truth, scores),
        risk_coverage(truth, guess, set_confidence(scores, guess)),
        label_table(truth, guess, all_names),
        case_studies(truth, {"a": guess}, all_names, choose="random"),
        label_changes(guess, truth, all_names, all_names[:2000], truth=truth),
    ]
    assert time.process_time() - start < 20
    for result in results:
        json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (3, 4)])
def test_nothing_true_and_nothing_predicted_is_no_error(shape: tuple[int, int]) -> None:
    empty, all_names = csr_array(shape, dtype=np.float32), names(shape[1])
    scores = Scores(empty, all_names, "probability", 0.0)
    results = [
        by_label_count(empty, empty, rounds=2),
        label_pairs.co_occurrence(empty, empty),
        label_pairs.correlations(empty, all_names, empty),
        label_pairs.pair_errors(empty, empty, all_names),
        combinations(empty, empty, empty, all_names),
        reliability(empty, scores),
        risk_coverage(empty, empty, np.zeros(shape[0])),
        label_table(empty, empty, all_names),
        case_studies(empty, {"a": empty}, all_names),
        label_changes(empty, empty, all_names, all_names[: shape[0]] if shape[1] else ["x"] * shape[0]),
    ]
    for result in results:
        json.dumps(result.to_json(), allow_nan=False)
