"""Every metric equals scikit-learn's, or a plain loop where scikit-learn has none, on random sparse inputs."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from sklearn import metrics as sk

import polytag.metrics.of_rankings as ranking
from polytag.errors import ConfigError, DataError
from polytag.labels import LabelSet, indicator
from polytag.metrics.bootstrap import paired_bootstrap
from polytag.metrics.of_sets import (
    GROUPS,
    calibration_error,
    evaluate,
    frequency_groups,
    macro_f1,
    micro_f1,
    propensities,
    subset_accuracy,
)
from polytag.metrics.of_trees import tree_metrics
from polytag.scores import Scores

Dense = np.ndarray[Any, Any]
SHAPES = st.tuples(st.integers(1, 7), st.integers(2, 6))
LEVELS = st.sampled_from([-0.0, 0.0, 0.125, 0.25, 0.5, 0.75, 1.0])  # few levels, so that ties are common
relaxed = settings(deadline=None, max_examples=60)  # the first call of a library can be slow
KS = (1, 2, 3, 5, 9)  # 9 is more than there are labels


def sparse(table: Dense) -> csr_array:
    return indicator([np.flatnonzero(row) for row in table], table.shape[1])


def names(count: int) -> list[str]:
    return [f"label {j}" for j in range(count)]


@st.composite
def truth_and_guess(draw: st.DrawFn) -> tuple[Dense, Dense]:
    shape = draw(SHAPES)
    return draw(arrays(np.bool_, shape)), draw(arrays(np.bool_, shape))


@st.composite
def truth_and_values(draw: st.DrawFn) -> tuple[Dense, Dense]:
    """Truth, and values with many ties."""
    shape = draw(SHAPES)
    return draw(arrays(np.bool_, shape)), draw(arrays(np.float32, shape, elements=LEVELS))


@st.composite
def truth_and_order(draw: st.DrawFn) -> tuple[Dense, Dense]:
    """Truth, and values without ties within a document."""
    n, n_labels = draw(SHAPES)
    rows = [draw(st.permutations(range(1, n_labels + 1))) for _ in range(n)]
    return draw(arrays(np.bool_, (n, n_labels))), np.array(rows, dtype=np.float32) / (n_labels + 1)


@st.composite
def truth_and_candidates(draw: st.DrawFn) -> tuple[Dense, Dense, Dense]:
    """Truth, values with ties, and which of the entries are stored."""
    truth, values = draw(truth_and_values())
    return truth, values, draw(arrays(np.bool_, truth.shape))


def candidates(values: Dense, stored: Dense, kind: Any = "probability") -> Scores:
    labels = np.where(stored, np.arange(values.shape[1]), -1)
    return Scores.candidates(labels, values, names(values.shape[1]), kind)


# -- label sets --------------------------------------------------------------------------------------------------------


@relaxed
@given(truth_and_guess())
def test_set_metrics_equal_scikit_learn(tables: tuple[Dense, Dense]) -> None:
    truth, guess = tables
    result = evaluate(sparse(truth), sparse(guess), None)
    occurring = np.flatnonzero(truth.any(axis=0))
    expected = {
        "subset_accuracy": sk.accuracy_score(truth, guess),
        "hamming_loss": sk.hamming_loss(truth, guess),
        "hamming_accuracy": 1 - sk.hamming_loss(truth, guess),
        "macro_f1_all": sk.f1_score(truth, guess, average="macro", zero_division=0),
        "predicted_labels_per_document": guess.sum(axis=1).mean(),
        "true_labels_per_document": truth.sum(axis=1).mean(),
        "documents": len(truth),
    }
    # with labels=[] scikit-learn would take all labels
    macro = {"labels": occurring, "average": "macro"} if len(occurring) else None
    for name, options in (("micro", {"average": "micro"}), ("samples", {"average": "samples"}), ("macro", macro)):
        found = sk.precision_recall_fscore_support(truth, guess, zero_division=0, **options) if options else (0.0, 0.0, 0.0)
        expected |= {f"{name}_{part}": value for part, value in zip(("precision", "recall", "f1"), found, strict=False)}
    for key, value in expected.items():
        assert result[key] == pytest.approx(value, abs=1e-12), key
    assert micro_f1(sparse(truth), sparse(guess)) == pytest.approx(expected["micro_f1"])
    assert macro_f1(sparse(truth), sparse(guess)) == pytest.approx(expected["macro_f1"])
    assert subset_accuracy(sparse(truth), sparse(guess)) == pytest.approx(expected["subset_accuracy"])


@relaxed
@given(truth_and_guess(), st.data())
def test_the_frequency_groups_split_macro_f1(tables: tuple[Dense, Dense], data: st.DataObject) -> None:
    truth, guess = tables
    counts = data.draw(arrays(np.int64, truth.shape[1], elements=st.integers(0, 20)))
    result = evaluate(sparse(truth), sparse(guess), None, train_counts=counts)
    sizes = np.array([result[f"{name}_labels"] for name in GROUPS])
    assert sizes.sum() == truth.any(axis=0).sum()
    weighted = sum(result[f"{name}_macro_f1"] * size for name, size in zip(GROUPS, sizes, strict=True))
    assert weighted / max(sizes.sum(), 1) == pytest.approx(result["macro_f1"])
    f1 = sk.f1_score(truth, guess, average=None, zero_division=0)
    for number, name in enumerate(GROUPS):
        member = (frequency_groups(counts) == number) & truth.any(axis=0)
        assert result[f"{name}_macro_f1"] == pytest.approx(f1[member].mean() if member.any() else 0.0)


@relaxed
@given(arrays(np.int64, st.integers(0, 12), elements=st.integers(0, 30)))
def test_frequency_groups_follow_their_definition(counts: Dense) -> None:
    total = sum(counts)
    for group, count in zip(frequency_groups(counts), counts, strict=True):
        before = sum(other for other in counts if other > count)
        assert group == (0 if 2 * before < total else 1 if 10 * before < 9 * total else 2)
        assert count > 0 or group == 2


def test_without_training_counts_the_groups_follow_the_truth() -> None:
    truth = indicator([[0], [0], [0], [0], [0], [0, 1], [0, 1], [1], [1, 2]], 4)
    result = evaluate(truth, truth, None)
    assert [result[f"{name}_labels"] for name in GROUPS] == [1, 1, 1]
    assert result["head_macro_f1"] == result["tail_macro_f1"] == 1.0


# -- rankings ----------------------------------------------------------------------------------------------------------


@relaxed
@given(truth_and_order())
def test_ranking_metrics_equal_scikit_learn(tables: tuple[Dense, Dense]) -> None:
    truth, values = tables
    result = evaluate(sparse(truth), None, Scores.full(values, names(truth.shape[1]), "margin"), ks=KS)
    for k in KS:
        assert result[f"ndcg@{k}"] == pytest.approx(sk.ndcg_score(truth, values, k=k), abs=1e-9)
    assert result["lrap"] == pytest.approx(sk.label_ranking_average_precision_score(truth, values))


def brute_at_k(truth: Dense, order: list[list[int]], k: int, inverse: Dense) -> dict[str, float]:
    """Precision, recall and gains at k, one document and one place at a time."""
    sums = dict.fromkeys(["p", "r", "ndcg", "psp", "psndcg", "best psp", "best psndcg"], 0.0)
    for row, labels in zip(truth, order, strict=True):
        true = [j for j, yes in enumerate(row) if yes]
        perfect = sum(1 / math.log2(place + 2) for place in range(min(k, len(true)))) or 1.0
        for place, label in enumerate(labels[:k]):
            if label in true:
                sums["p"] += 1 / k
                sums["r"] += 1 / len(true)
                sums["ndcg"] += 1 / math.log2(place + 2) / perfect
                sums["psp"] += inverse[label] / k
                sums["psndcg"] += inverse[label] / math.log2(place + 2) / perfect
        for place, weight in enumerate(sorted((inverse[j] for j in true), reverse=True)[:k]):
            sums["best psp"] += weight / k
            sums["best psndcg"] += weight / math.log2(place + 2) / perfect
    result = {key: sums[key] / len(truth) for key in ("p", "r", "ndcg")}
    return result | {key: sums[key] / (sums[f"best {key}"] or 1.0) for key in ("psp", "psndcg")}


@relaxed
@given(truth_and_candidates(), st.data())
def test_metrics_at_k_equal_a_plain_loop(tables: tuple[Dense, Dense, Dense], data: st.DataObject) -> None:
    truth, values, stored = tables
    counts = data.draw(arrays(np.int64, truth.shape[1], elements=st.integers(0, 50)))
    scores = candidates(values, stored)
    result = evaluate(sparse(truth), None, scores, train_counts=counts, train_documents=60, ks=KS)
    order = [sorted(np.flatnonzero(keep), key=lambda j: (-row[j], j)) for row, keep in zip(values, stored, strict=True)]
    for k in KS:
        expected = brute_at_k(truth, order, k, 1 / propensities(counts, 60))
        for key, value in expected.items():
            assert result[f"{key}@{k}"] == pytest.approx(value, abs=1e-9), f"{key}@{k}"


@relaxed
@given(truth_and_candidates(), st.sampled_from(["probability", "margin"]))
def test_average_precision_of_candidates_equals_the_filled_table(tables: tuple[Dense, Dense, Dense], kind: Any) -> None:
    truth, values, stored = tables
    filled = np.where(stored, values, 0.0 if kind == "probability" else -1e30)  # scikit-learn refuses minus infinity
    result = evaluate(sparse(truth), None, candidates(values, stored, kind))
    assert result["lrap"] == pytest.approx(sk.label_ranking_average_precision_score(truth, filled))


@relaxed
@given(truth_and_candidates())
def test_average_precision_when_absent_lies_between_the_values(tables: tuple[Dense, Dense, Dense]) -> None:
    truth, values, stored = tables
    found = candidates(values, stored)
    scores = Scores(found.matrix, found.names, "probability", absent=0.25)
    expected = sk.label_ranking_average_precision_score(truth, np.where(stored, values, 0.25))
    assert evaluate(sparse(truth), None, scores)["lrap"] == pytest.approx(expected)


@relaxed
@given(truth_and_values(), st.integers(1, 4))
def test_the_k_best_labels_are_enough_for_metrics_at_k(tables: tuple[Dense, Dense], k: int) -> None:
    truth, values = tables
    full = Scores.full(values, names(truth.shape[1]), "margin")
    options: dict[str, Any] = {"train_counts": truth.sum(axis=0), "train_documents": 100, "ks": range(1, k + 1)}
    whole = evaluate(sparse(truth), None, full, **options)
    best = evaluate(sparse(truth), None, full.best(k), **options)
    whole.pop("lrap"), best.pop("lrap")
    assert whole == best


@relaxed
@given(truth_and_candidates())
def test_blocks_do_not_change_the_result(tables: tuple[Dense, Dense, Dense]) -> None:
    truth, values, stored = tables
    scores, options = candidates(values, stored), {"train_counts": truth.sum(axis=0), "train_documents": 40}
    whole = evaluate(sparse(truth), None, scores, **options) | {"error": calibration_error(sparse(truth), scores)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "BLOCK", 4)
        parts = evaluate(sparse(truth), None, scores, **options) | {"error": calibration_error(sparse(truth), scores)}
    assert parts == pytest.approx(whole, abs=1e-12)


def test_a_perfect_ranking_scores_one_and_a_document_without_labels_costs_at_k() -> None:
    truth = indicator([[0, 1], [2], [0, 1, 2]], 4)
    perfect = Scores.full(truth.toarray() + np.array([0, 0.1, 0.2, 0]), names(4), "margin")
    counts = np.array([9, 3, 1, 0])  # the rarer true label has the higher score, as the best achievable wants
    result = evaluate(truth, truth, perfect, train_counts=counts, train_documents=10, ks=(1, 3))
    keys = ["p@1", "r@3", "ndcg@1", "ndcg@3", "psp@1", "psp@3", "psndcg@1", "psndcg@3", "lrap", "micro_f1", "samples_f1"]
    assert [result[key] for key in keys] == pytest.approx([1.0] * len(keys))
    half = evaluate(indicator([[0], []], 2), None, Scores.full(np.array([[1.0, 0], [1, 0]]), names(2), "margin"), ks=(1,))
    assert (half["p@1"], half["r@1"], half["ndcg@1"], half["lrap"]) == (0.5, 0.5, 0.5, 1.0)


@relaxed
@given(st.integers(1, 10**6), st.floats(0.1, 1.0), st.floats(0.1, 5.0))
def test_propensities_follow_the_formula_and_grow_with_frequency(documents: int, a: float, b: float) -> None:
    counts = np.array([0, 1, 5, 100, 10_000])
    found = propensities(counts, documents, a, b)
    assert (found > 0).all() and (found <= 1).all() and (np.diff(found) >= 0).all()
    if documents >= 3:
        c = (math.log(documents) - 1) * (b + 1) ** a
        assert found == pytest.approx([1 / (1 + c * math.exp(-a * math.log(count + b))) for count in counts])


# -- calibration -------------------------------------------------------------------------------------------------------


@relaxed
@given(truth_and_candidates(), st.integers(1, 20))
def test_calibration_error_equals_a_plain_loop(tables: tuple[Dense, Dense, Dense], bins: int) -> None:
    truth, values, stored = tables
    total, entries = 0.0, [(float(values[i, j]), bool(truth[i, j])) for i, j in zip(*np.nonzero(stored), strict=True)]
    for number in range(bins):
        inside = [(p, y) for p, y in entries if number <= p * bins < number + 1 or (number == bins - 1 and p == 1)]
        if inside:
            confidence, accuracy = np.mean([p for p, _ in inside]), np.mean([y for _, y in inside])
            total += len(inside) / len(entries) * abs(confidence - accuracy)
    assert calibration_error(sparse(truth), candidates(values, stored), bins) == pytest.approx(total, abs=1e-9)


def test_calibration_error_is_small_for_honest_probabilities_and_large_for_bold_ones() -> None:
    generator = np.random.default_rng(0)
    probability = generator.random((2000, 10))
    truth = sparse(generator.random((2000, 10)) < probability)
    assert calibration_error(truth, Scores.full(probability, names(10), "probability")) < 0.02
    assert calibration_error(truth, Scores.full(np.sqrt(probability), names(10), "probability")) > 0.1
    with pytest.raises(ConfigError, match="calibrate"):
        calibration_error(truth, Scores.full(probability, names(10), "margin"))


# -- bootstrap ---------------------------------------------------------------------------------------------------------

BOOTSTRAP = ["micro_f1", "micro_precision", "micro_recall", "samples_f1", "subset_accuracy", "hamming_loss", "macro_f1"]


def noisy(truth: Dense, share: float, seed: int) -> Dense:
    return truth ^ (np.random.default_rng(seed).random(truth.shape) < share)


@pytest.mark.parametrize("metric", BOOTSTRAP)
def test_bootstrap_equals_evaluating_the_resampled_documents(metric: str) -> None:
    truth = np.random.default_rng(1).random((30, 5)) < 0.2
    a, b = noisy(truth, 0.1, 2), noisy(truth, 0.3, 3)
    result = paired_bootstrap(sparse(truth), sparse(a), sparse(b), metric, rounds=60, seed=4)
    generator, differences = np.random.default_rng(4), []
    for _ in range(60):
        rows = generator.integers(30, size=30)
        one, two = (evaluate(sparse(truth[rows]), sparse(guess[rows]), None)[metric] for guess in (a, b))
        differences.append(one - two)
    assert (result.low, result.high) == pytest.approx(tuple(np.quantile(differences, (0.025, 0.975))))
    rarer = min(sum(d <= 0 for d in differences), sum(d >= 0 for d in differences))
    assert result.p == pytest.approx(min(1.0, 2 * (rarer + 1) / 61))
    whole = [evaluate(sparse(truth), sparse(guess), None)[metric] for guess in (a, b)]
    assert result.difference == pytest.approx(whole[0] - whole[1])


@pytest.mark.parametrize("metric", BOOTSTRAP)
def test_bootstrap_tells_a_real_difference_from_none(metric: str) -> None:
    truth = np.random.default_rng(5).random((300, 8)) < 0.3
    good, bad, alike = noisy(truth, 0.02, 6), noisy(truth, 0.3, 7), noisy(truth, 0.02, 8)
    sure = paired_bootstrap(sparse(truth), sparse(good), sparse(bad), metric, rounds=200)
    assert sure.p < 0.02 and (sure.low > 0 or sure.high < 0) and sure.low <= sure.difference <= sure.high
    unsure = paired_bootstrap(sparse(truth), sparse(good), sparse(alike), metric, rounds=200)
    assert unsure.p > sure.p and unsure.low <= 0 <= unsure.high
    same = paired_bootstrap(sparse(truth), sparse(good), sparse(good), metric, rounds=50)
    assert same == (0.0, 0.0, 0.0, 1.0)


# -- edges -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (3, 4)])
def test_nothing_true_and_nothing_predicted_gives_finite_numbers_without_warnings(shape: tuple[int, int]) -> None:
    empty = csr_array(shape, dtype=np.float32)
    scores = Scores(empty, names(shape[1]), "probability", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = evaluate(empty, empty, scores, train_counts=np.zeros(shape[1]), train_documents=1)
        error = calibration_error(empty, scores)
    assert np.isfinite([*result.values(), error]).all()
    assert result["micro_f1"] == result["macro_f1_all"] == result["p@5"] == result["psp@1"] == 0.0


def test_many_labels_cost_memory_by_stored_entries_only() -> None:
    n, n_labels = 2000, 500_000  # a dense table of this would hold a billion numbers
    generator = np.random.default_rng(0)
    labels = np.sort(generator.integers(0, n_labels, (n, 10)), axis=1)
    truth = indicator(labels[:, ::3], n_labels)
    scores = Scores.candidates(labels, generator.random((n, 10)), names(n_labels), "probability")
    counts = np.bincount(labels.reshape(-1), minlength=n_labels)
    result = evaluate(truth, indicator(labels, n_labels), scores, train_counts=counts, train_documents=n)
    assert result["micro_recall"] == 1.0
    assert result["micro_precision"] == pytest.approx(truth.nnz / sum(len(set(row)) for row in labels))
    assert 0 < result["p@1"] < 1 and 0 < result["lrap"] < 1


def test_what_does_not_fit_together_is_refused() -> None:
    truth, scores = indicator([[0]], 2), Scores.full(np.ones((1, 2)), names(2), "margin")
    with pytest.raises(ConfigError, match="same documents and labels"):
        evaluate(truth, indicator([[0]], 3), None)
    with pytest.raises(ConfigError, match="same documents and labels"):
        micro_f1(truth, indicator([[0], [1]], 2))
    with pytest.raises(ConfigError, match="same documents and labels"):
        evaluate(indicator([[0]], 3), None, scores)
    with pytest.raises(ConfigError, match="train_documents"):
        evaluate(truth, None, scores, train_counts=np.ones(2))
    with pytest.raises(ConfigError, match="one count per label"):
        evaluate(truth, truth, None, train_counts=np.ones(3))
    with pytest.raises(ConfigError, match="1 or more"):
        evaluate(truth, None, scores, ks=(0,))
    with pytest.raises(ConfigError, match="micro_f1"):
        paired_bootstrap(truth, truth, truth, "f2")
    with pytest.raises(DataError, match="document"):
        paired_bootstrap(indicator([], 2), indicator([], 2), indicator([], 2))


# -- along a tree ------------------------------------------------------------------------------------------------------


@relaxed
@given(truth_and_guess(), st.lists(st.integers(-1, 5), min_size=6, max_size=6))
def test_hierarchical_metrics_count_sets_with_their_ancestors(tables: tuple[Dense, Dense], parents: list[int]) -> None:
    truth, guess = tables
    size = truth.shape[1]
    parent = {j: p for j, p in enumerate(parents[:size]) if 0 <= p < j}  # a parent comes before its child: no cycle
    labels = LabelSet(names(size), parents={f"label {j}": f"label {p}" for j, p in parent.items()})

    def closed(row: Dense) -> set[int]:
        found = set(np.flatnonzero(row).tolist())
        while more := {parent[j] for j in found if j in parent} - found:
            found |= more
        return found

    sets = [(closed(a), closed(b)) for a, b in zip(truth, guess, strict=True)]
    both, told, true = (sum(map(len, part)) for part in ((a & b for a, b in sets), (b for _, b in sets), (a for a, _ in sets)))
    found = tree_metrics(sparse(truth), sparse(guess), labels)
    if not parent:
        assert found == {}
        return
    precision, recall = both / told if told else 0.0, both / true if true else 0.0
    f1 = 2 * both / (told + true) if told + true else 0.0
    assert found == {
        "hierarchical_precision": pytest.approx(precision), "hierarchical_recall": pytest.approx(recall),
        "hierarchical_f1": pytest.approx(f1),
    }  # fmt: skip


def test_precisions_of_documents_are_those_of_the_ranking() -> None:
    """Their mean is that of P@1, P@3 and P@5; what has no score is wrong, and so is what is missing in short rankings."""
    rng = np.random.default_rng(0)
    truth = csr_array((rng.random((40, 9)) < 0.3).astype(np.float32))
    values = rng.random((40, 9)).astype(np.float32) * (rng.random((40, 9)) < 0.5)
    for scores in (
        Scores.full(values, [*"abcdefghi"], "probability"),
        Scores(csr_array(values), [*"abcdefghi"], "probability", 0.0),
    ):
        found, expected = ranking.precisions(truth, scores), ranking.ranking_metrics(truth, scores)
        assert found.shape == (40,)
        assert found.mean() == pytest.approx(np.mean([expected[f"p@{k}"] for k in (1, 3, 5)]))
    few = Scores(csr_array(values[:, :2]), ["a", "b"], "probability", 0.0)
    assert ranking.precisions(csr_array(truth.toarray()[:, :2]), few).max() <= 1
