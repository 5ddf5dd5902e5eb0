"""Thresholds are the best there are (by trying all), shrink for rare labels, and work on a stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision import decision, thresholds
from polytag.decision.decision import METRICS, RULES, Decision, reached
from polytag.errors import ConfigError
from polytag.labels import LabelSet, indicator
from polytag.scores import Kind, Scores

relaxed = settings(deadline=None, max_examples=80)
LEVELS = {"margin": [-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0], "probability": [0.0, 0.01, 0.125, 0.25, 0.5, 0.75, 0.9, 1.0]}
LEAST = st.integers(0, 2)


def names(count: int) -> list[str]:
    return [f"label {j}" for j in range(count)]


@st.composite
def held_out(draw: st.DrawFn, documents: int = 6, labels: int = 4) -> tuple[Scores, csr_array]:
    """Scores with many ties and some absent entries, and a truth that also holds labels without a score."""
    n, m = draw(st.integers(1, documents)), draw(st.integers(1, labels))
    kind: Kind = draw(st.sampled_from(["margin", "probability"]))
    rows, truth = [], []
    for _ in range(n):
        stored = sorted(draw(st.sets(st.integers(0, m - 1))))
        rows.append({label: draw(st.sampled_from(LEVELS[kind])) for label in stored})
        truth.append(sorted(draw(st.sets(st.integers(0, m - 1)))))
    return scores_of(rows, m, kind), indicator(truth, m)


def scores_of(rows: list[dict[int, float]], n_labels: int, kind: Kind = "margin") -> Scores:
    labels = np.full((len(rows), max(1, max(map(len, rows)))), -1)
    values = np.zeros(labels.shape)
    for i, row in enumerate(rows):
        labels[i, : len(row)], values[i, : len(row)] = list(row), list(row.values())
    return Scores.candidates(labels, values, names(n_labels), kind)


def random_scores(documents: int, labels: int, seed: int, kind: Kind = "margin") -> tuple[Scores, csr_array]:
    """Scores that know something about the truth, with a rare tail of labels."""
    generator = np.random.default_rng(seed)
    rate = np.linspace(0.5, 0.02, labels)
    true = generator.random((documents, labels)) < rate
    values = generator.normal(size=true.shape) + 2.0 * true - np.linspace(0, 1, labels)
    if kind == "probability":
        values = 1 / (1 + np.exp(-values))
    return Scores.full(values, names(labels), kind), indicator([np.flatnonzero(row) for row in true], labels)


def all_cuts(scores: Scores) -> list[float]:
    """One threshold for every way to cut the stored scores: below all, between two, above all."""
    values = np.unique(scores.matrix.data.astype(np.float64))
    between = (values[1:] + values[:-1]) / 2
    return [-np.inf, *between, np.inf]


def plain_decision(scores: Scores, limits: NDArray[Any], least: int) -> csr_array:
    """The rule in plain Python: every label that reaches its limit, and always the best ones (the first of equal ones)."""
    rows = []
    for labels, values in scores:
        best = sorted(range(len(labels)), key=lambda p: (-values[p], labels[p]))[:least]
        over = [p for p in range(len(labels)) if values[p] >= (limits[labels[p]] if len(limits) > 1 else limits[0])]
        rows.append([int(labels[p]) for p in {*best, *over}])
    return indicator(rows, scores.matrix.shape[1])


def same(a: csr_array, b: csr_array) -> bool:
    return a.shape == b.shape and np.array_equal(a.indptr, b.indptr) and np.array_equal(a.indices, b.indices)


# -- one threshold -----------------------------------------------------------------------------------------------------


@given(held_out(), LEAST, st.lists(st.sampled_from([-1.0, 0.0, 0.5, 0.9]), min_size=4, max_size=4))
@relaxed
def test_applying_is_the_plain_rule(case: tuple[Scores, csr_array], least: int, limits: list[float]) -> None:
    scores, truth = case
    each = np.array(limits[: max(2, truth.shape[1])], dtype=np.float32)
    for chosen in (each[:1], each):
        if len(chosen) == 1 or len(chosen) == truth.shape[1]:
            found = thresholds.apply(scores, chosen, least)
            assert same(found, plain_decision(scores, chosen, least))
            assert (found.data == 1).all() and found.data.dtype == np.float32


@pytest.mark.parametrize("metric", list(METRICS))
@given(case=held_out(), least=LEAST)
@relaxed
def test_common_threshold_is_the_best_of_all(metric: str, case: tuple[Scores, csr_array], least: int) -> None:
    scores, truth = case
    value = METRICS[metric]
    best = max(value(truth, plain_decision(scores, np.array([cut]), least)) for cut in all_cuts(scores))
    found = thresholds.common(scores, truth, metric, least)
    assert found.shape == (1,) and found.dtype == np.float32 and np.isfinite(found).all()
    assert value(truth, thresholds.apply(scores, found, least)) == pytest.approx(best)


@pytest.mark.parametrize("metric", list(METRICS))
@pytest.mark.parametrize("kind", ["margin", "probability"])
@pytest.mark.parametrize("least", [0, 1])
def test_common_threshold_is_the_best_on_many_documents(metric: str, kind: Kind, least: int) -> None:
    scores, truth = random_scores(40, 6, 3, kind)
    value = METRICS[metric]
    best = max(value(truth, plain_decision(scores, np.array([cut]), least)) for cut in all_cuts(scores))
    found = thresholds.common(scores, truth, metric, least)
    assert value(truth, thresholds.apply(scores, found, least)) == pytest.approx(best)


@pytest.mark.parametrize(
    ("metric", "least", "kind", "documents"),
    [
        # two documents have a true label without a score: no threshold makes them exact, one above -2 the first
        ("subset_accuracy", 0, "margin", [({0: -2.0}, []), ({0: -2.0}, [0, 1]), ({0: -2.0}, [0, 1])]),
        # the best label is always predicted, and wrong in two documents: only the third can be exact, by a threshold above 1
        ("subset_accuracy", 1, "margin", [({0: 3.0, 1: 1.0}, [1]), ({0: 3.0, 1: 1.0}, [1]), ({0: 3.0, 1: 1.0}, [0])]),
        # in two documents the wrong label has the better score: they count at no threshold, and take nothing from the others
        ("subset_accuracy", 0, "margin", [({0: 1.0}, [0]), ({0: 0.0}, []), *[({0: 0.0, 1: 1.0}, [0])] * 2]),
        # a wrong and a true label with one score: there is no threshold between them
        ("subset_accuracy", 0, "margin", [({0: 1.0, 1: 1.0}, [0]), ({0: 0.0}, []), ({0: 2.0}, [0])]),
        ("subset_accuracy", 0, "probability", [({0: 1.0}, [])]),  # a probability of 1 has to be left out
        ("micro_f1", 0, "probability", [({0: 1.0, 1: 1.0}, []), ({0: 0.5}, [])]),
        ("micro_f1", 0, "probability", [({0: 0.0}, [0])]),  # a probability of 0 has to be predicted
        ("macro_f1", 0, "probability", [({0: 0.0, 1: 1.0}, [0, 1]), ({0: 0.0}, [0])]),
        # what is always predicted counts first, though what the threshold decides about has a better score elsewhere
        (
            "macro_f1", 2, "margin",
            [
                ({0: -2.0, 1: -2.0}, [0, 1]), ({0: -2.0, 1: -2.0, 2: -2.0, 3: -1.0}, [1, 3]),
                ({0: -0.5, 1: -0.5, 2: -2.0, 3: -0.5}, []),
            ],
        ),
    ],
)  # fmt: skip
def test_cases_that_random_ones_rarely_meet(metric: str, least: int, kind: Kind, documents: list[Any]) -> None:
    n_labels = 4
    scores, truth = scores_of([row for row, _ in documents], n_labels, kind), indicator([own for _, own in documents], n_labels)
    value = METRICS[metric]
    best = max(value(truth, plain_decision(scores, np.array([cut]), least)) for cut in all_cuts(scores))
    found = thresholds.common(scores, truth, metric, least)
    assert value(truth, thresholds.apply(scores, found, least)) == pytest.approx(best)


def test_the_metrics_ask_for_different_thresholds() -> None:
    """The one threshold is chosen for the metric that was asked for, not always for micro-F1."""
    scores, truth = random_scores(300, 12, 7)
    found = {metric: thresholds.common(scores, truth, metric, 0)[0] for metric in METRICS}
    assert len(set(found.values())) == 3
    for metric, value in METRICS.items():
        reached = {other: value(truth, thresholds.apply(scores, np.array([limit]), 0)) for other, limit in found.items()}
        assert max(reached, key=lambda other: reached[other]) == metric


# -- a threshold for every label ---------------------------------------------------------------------------------------


@given(held_out(documents=5, labels=3), LEAST)
@relaxed
def test_thresholds_per_label_are_the_best_together(case: tuple[Scores, csr_array], least: int) -> None:
    """Without shrinkage, micro-F1 is as high as the best of all combinations of cuts; every label here has a document."""
    scores, truth = case
    assume(len(np.unique(truth.indices)) == truth.shape[1])
    cuts = [np.array(limits) for limits in itertools.product(all_cuts(scores), repeat=truth.shape[1])]
    best = max(METRICS["micro_f1"](truth, plain_decision(scores, limits, least)) for limits in cuts)
    found = thresholds.evidence(scores, truth, "micro_f1", least).limits(1e-9)
    assert METRICS["micro_f1"](truth, thresholds.apply(scores, found, least)) == pytest.approx(best)


@given(held_out(documents=5, labels=3))
@relaxed
def test_thresholds_per_label_are_the_best_for_macro_f1(case: tuple[Scores, csr_array]) -> None:
    scores, truth = case
    assume(len(np.unique(truth.indices)) == truth.shape[1])
    cuts = [np.array(limits) for limits in itertools.product(all_cuts(scores), repeat=truth.shape[1])]
    best = max(METRICS["macro_f1"](truth, plain_decision(scores, limits, 0)) for limits in cuts)
    found = thresholds.evidence(scores, truth, "macro_f1", 0).limits(1e-9)
    assert METRICS["macro_f1"](truth, thresholds.apply(scores, found, 0)) == pytest.approx(best)


@pytest.mark.parametrize("metric", ["micro_f1", "macro_f1"])
@pytest.mark.parametrize("missed", [0, 2, 5, 9])
@pytest.mark.parametrize("before", [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 30])
def test_a_true_entry_below_many_wrong_ones_is_found_where_it_pays(metric: str, missed: int, before: int) -> None:
    """By trying all: the search looks at a bounded number of entries of each label, and the bound must not cut off the best.

    The one true entry of label 0 stands below ``before`` wrong ones; label 1 is easy; label 2 has ``missed`` documents that no
    threshold finds, which makes F1 low and wrong entries cheap.
    """
    rows = [*({0: 2.0 - at / 100} for at in range(before)), {0: 1.0}, *({0: -at / 100} for at in range(20)), {1: 5.0}, {1: -5.0}]
    truth = [*([] for _ in range(before)), [0], *([] for _ in range(20)), [1], [], *([2] for _ in range(missed))]
    scores, known = scores_of([*rows, *({} for _ in range(missed))], 3), indicator(truth, 3)
    pairs = itertools.product(all_cuts(scores), (0.0, np.inf))
    best = max(METRICS[metric](known, thresholds.apply(scores, np.float32([a, b, 0.0]), 0)) for a, b in pairs)
    found = thresholds.evidence(scores, known, metric, 0).limits(1e-9)
    assert METRICS[metric](known, thresholds.apply(scores, found, 0)) == pytest.approx(best)


@pytest.mark.parametrize("metric", list(METRICS))
@pytest.mark.parametrize("kind", ["margin", "probability"])
def test_more_pseudo_counts_pull_towards_the_common_threshold(metric: str, kind: Kind) -> None:
    scores, truth = random_scores(200, 10, 5, kind)
    base = thresholds.common(scores, truth, metric, 0)
    found = [thresholds.evidence(scores, truth, metric, 0).limits(pseudo) for pseudo in (1e-9, 1.0, 5.0, 50.0, 1e9)]
    distance = np.abs(np.array(found) - base)  # (pseudo, labels)
    assert (np.diff(distance, axis=0) <= 1e-6).all() and distance[0].max() > 0.01
    assert distance[-1].max() < 1e-5
    assert np.allclose(thresholds.evidence(scores, truth, metric, 0).limits(float("inf")), base, atol=1e-6)


def test_rare_labels_stay_closer_to_the_common_threshold() -> None:
    """Two labels with the same scores in the same proportion: the one with fewer documents moves less."""
    often = [({0: 1.0}, [0]), ({0: 0.9}, []), ({0: -1.0}, [])] * 30
    rare = [({1: 1.0}, [1]), ({1: 0.9}, []), ({1: -1.0}, [])] * 2
    other = [({2: -0.5}, [2]), ({2: -0.7}, [2])] * 30
    scores = scores_of([row for row, _ in often + rare + other], 3)
    truth = indicator([labels for _, labels in often + rare + other], 3)
    base = thresholds.common(scores, truth, "micro_f1", 0)[0]
    found = thresholds.evidence(scores, truth, "micro_f1", 0).limits(20.0)
    assert abs(found[1] - base) < abs(found[0] - base) and found[0] > base


def test_a_label_without_held_out_documents_has_the_common_threshold() -> None:
    scores, truth = random_scores(100, 5, 2)
    m = scores.matrix
    wide = Scores(csr_array((m.data, m.indices, m.indptr), shape=(100, 6)), names(6), "margin", -np.inf)
    truth = csr_array((truth.data, truth.indices, truth.indptr), shape=(100, 6))
    assert thresholds.evidence(wide, truth, "micro_f1", 0).limits(5.0)[5] == thresholds.common(wide, truth, "micro_f1", 0)[0]


# -- the decision ------------------------------------------------------------------------------------------------------

LABELS = LabelSet(names(6), parents={"label 3": "label 1", "label 5": "label 3"})


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", list(METRICS))
@pytest.mark.parametrize("closed", [False, True])
def test_every_rule_gives_least_labels_and_is_closed_under_the_tree(rule: str, metric: str, closed: bool) -> None:
    scores, truth = with_decoded(*random_scores(60, 6, 9, "probability"))
    for least in (0, 1, 3):
        promise = "recall=.8" if rule == "promise" else ""
        decision = Decision(rule, metric, least, closed, promise=promise).fit(scores, truth, LABELS)
        decided = decision.decide(scores, LABELS)
        assert np.diff(decided.indptr).min() >= least
        if closed:
            for row in LABELS.decode(decided):
                assert "label 3" not in row or "label 1" in row
                assert "label 5" not in row or "label 3" in row
            assert any("label 3" in row for row in LABELS.decode(decided))
        assert decision.rule in ("threshold", "per_label", "top_k", "decoded", "promise")
        assert decision.report["fitted"] == METRICS[metric](truth, decided)


def with_decoded(scores: Scores, truth: csr_array) -> tuple[Scores, csr_array]:
    """The same scores with sets that a model decoded itself, some of them empty."""
    decoded = indicator([np.sort(numbers[values > 0.7]) for numbers, values in scores], int(truth.shape[1]))
    assert np.diff(decoded.indptr).min() == 0
    return Scores(scores.matrix, scores.names, scores.kind, scores.absent, decoded), truth


def test_decoded_sets_are_kept_where_they_are_large_enough() -> None:
    scores, truth = with_decoded(*random_scores(60, 6, 9, "probability"))
    assert scores.decoded is not None
    decided = Decision("decoded", min_labels=1).fit(scores, truth, LABELS).decide(scores, LABELS)
    best = [row[0][0] for row in scores.top(1)]
    for own, now, first in zip(LABELS.decode(scores.decoded), LABELS.decode(decided), best, strict=True):
        assert now == (own or [first])


@pytest.mark.parametrize(("least", "expected"), [(0, [1]), (1, [1]), (2, [0, 1])])
def test_a_decoded_set_of_exactly_the_least_size_stays(least: int, expected: list[int]) -> None:
    """Its labels need not be those with the best scores; only a set that is too small is filled up with them."""
    scores = scores_of([{0: 0.9, 1: 0.4, 2: 0.1}, {0: 0.2}], 3, "probability")
    decoded = Scores(scores.matrix, scores.names, scores.kind, scores.absent, indicator([[1], []], 3))
    decided = Decision("decoded", min_labels=least).decide(decoded, LabelSet(names(3)))
    assert decided[[0]].indices.tolist() == expected
    assert decided[[1]].indices.tolist() == [0][:least]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [1, 7])
def test_a_stream_is_decided_as_the_whole(rule: str, size: int) -> None:
    scores, truth = with_decoded(*random_scores(50, 6, 4, "probability"))
    promise = "recall=.8" if rule == "promise" else ""
    decision = Decision(rule, min_labels=1, closed=True, promise=promise).fit(scores, truth, LABELS)
    whole = LABELS.decode(decision.decide(scores, LABELS))
    parts = (decision.decide(scores.rows(at, at + size), LABELS) for at in range(0, 50, size))
    assert [row for part in parts for row in LABELS.decode(part)] == whole


def test_top_k_gives_the_k_best_and_guesses_k_from_the_truth() -> None:
    scores, truth = random_scores(50, 6, 4)
    decided = LABELS.decode(Decision("top_k", k=2).fit(scores, truth, LABELS).decide(scores, LABELS))
    assert [set(row) for row in decided] == [{name for name, _ in row} for row in scores.top(2)]
    assert Decision("top_k").fit(scores, truth, LABELS).k == round(truth.nnz / 50)


@pytest.mark.parametrize(("sizes", "k"), [([0, 0, 1], 1), ([1, 1, 2], 1), ([1, 2, 2], 2), ([2, 3, 3, 3], 3), ([0, 0, 0], 1)])
def test_k_is_the_nearest_whole_number_of_labels_and_at_least_one(sizes: list[int], k: int) -> None:
    scores, _ = random_scores(len(sizes), 6, 4)
    truth = indicator([np.arange(size) for size in sizes], 6)
    assert Decision("top_k").fit(scores, truth, LABELS).k == k


@pytest.mark.parametrize("metric", list(METRICS))
def test_auto_takes_the_rule_that_is_best_when_cross_fitted(metric: str) -> None:
    scores, truth = random_scores(400, 6, 8)
    decision = Decision("auto", metric).fit(scores, truth, LABELS)
    tried = decision.report["cross_fitted"]
    assert set(tried) == {"threshold", "per_label:80", "per_label:20", "per_label:5"}
    assert tried[decision.report["rule"]] >= max(tried.values()) - 0.002
    assert METRICS[metric](truth, decision.decide(scores, LABELS)) >= max(tried.values()) - 0.03


def test_cross_fitted_values_come_from_thresholds_of_other_documents() -> None:
    """Five documents are five fifths, however they are divided. Of the scores 3, 1.5 | 1, 0, -1 the first two are true.

    All together a threshold of 1.25 is perfect. Without the second document it is 2, and that document is missed; without the
    third it is .75, and that document is wrong. The others stay as they are: one right, one missed, one wrong.
    """
    scores = scores_of([{0: 3.0}, {0: 1.5}, {0: 1.0}, {0: 0.0}, {0: -1.0}], 2)
    truth = indicator([[0], [0], [], [], []], 2)
    report = Decision("auto").fit(scores, truth, LabelSet(names(2))).report
    assert report["fitted"] == 1.0
    assert report["cross_fitted"] == pytest.approx(dict.fromkeys(report["cross_fitted"], 0.5))


@pytest.mark.parametrize("rule", ["threshold", "top_k", "decoded"])
def test_a_rule_without_others_is_not_compared(rule: str) -> None:
    scores, truth = with_decoded(*random_scores(60, 6, 9, "probability"))
    assert Decision(rule).fit(scores, truth, LABELS).report["cross_fitted"] == {}


def test_of_rules_that_are_as_good_the_one_that_is_best_for_rare_labels_is_taken() -> None:
    tried = {"threshold": (0.900, 0.50), "per_label:20": (0.899, 0.55), "per_label:5": (0.897, 0.60)}
    assert Decision()._preferred(list(tried), tried) == "per_label:20"


def test_auto_takes_thresholds_per_label_where_labels_differ() -> None:
    """Labels on different scales need different thresholds."""
    scores, truth = random_scores(400, 6, 8)
    shift = np.linspace(-3, 3, 6)[scores.matrix.indices]
    apart = scores.with_values(scores.matrix.data + shift, "margin")
    assert Decision("auto").fit(apart, truth, LABELS).rule == "per_label"


def test_a_short_decoded_set_takes_no_more_than_it_needs() -> None:
    """A is decoded, two labels are needed, and both others score higher: only the better one is added."""
    scores = Scores.full(np.array([[0.40, 0.45, 0.41], [0.1, 0.2, 0.3]]), ["A", "B", "C"], "probability")
    labels = LabelSet(["A", "B", "C"])
    decoded = replace(scores, decoded=indicator([[0], [0, 1]], 3))
    assert labels.decode(Decision("decoded", min_labels=2).decide(decoded, labels)) == [["A", "B"], ["A", "B"]]


@relaxed
@given(held_out(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_filled_sets_are_those_of_sorting_by_hand(given_: tuple[Scores, csr_array], least: int, random: Any) -> None:
    """Decoded labels stay, also those without a score; of the rest, the best scored ones fill the set."""
    scores, truth = given_
    m = int(truth.shape[1])
    sets = [sorted(random.sample(range(m), random.randint(0, m))) for _ in range(len(scores))]
    decided = Decision("decoded", min_labels=least).decide(replace(scores, decoded=indicator(sets, m)), LabelSet(names(m)))
    for (numbers, values), own, row in zip(scores, sets, np.split(decided.indices, decided.indptr[1:-1]), strict=True):
        stored = dict(zip(numbers.tolist(), values.tolist(), strict=True))
        free = sorted((label for label in stored if label not in own), key=lambda label: -stored[label])
        wanted = max(0, least - len(own))
        assert set(own) <= set(row.tolist()) and len(row) == len(own) + min(wanted, len(free))
        added = sorted((stored[label] for label in set(row.tolist()) - set(own)), reverse=True)
        assert added == [stored[label] for label in free[:wanted]]


def test_epochs_are_chosen_by_the_decoded_sets_as_they_are_reported() -> None:
    """Filling up to two labels would turn this decoded set of one label into the true one."""
    scores = replace(Scores.full(np.array([[0.9, 0.8, 0.1]]), names(3), "probability"), decoded=indicator([[0]], 3))
    assert reached(scores, indicator([[0, 1]], 3), LabelSet(names(3)), "subset_accuracy", 2) == 0.0


def test_auto_takes_the_decoded_sets_when_they_are_better() -> None:
    scores, truth = random_scores(100, 6, 3)
    perfect = Scores(scores.matrix, scores.names, scores.kind, scores.absent, truth)
    decision = Decision("auto").fit(perfect, truth, LABELS)
    assert decision.rule == "decoded" and decision.report["fitted"] == 1.0


def test_state_and_back() -> None:
    scores, truth = random_scores(50, 6, 4)
    decision = Decision("per_label", "macro_f1", 1, True).fit(scores, truth, LABELS)
    again = Decision.from_state(decision.state())
    assert same(again.decide(scores, LABELS), decision.decide(scores, LABELS))
    assert again.state().keys() == decision.state().keys() and again.report == decision.report


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "promise"])
def test_very_few_held_out_documents_are_enough(rule: str, count: int) -> None:
    scores, truth = random_scores(count, 6, 1)
    for metric in METRICS:
        decided = Decision(rule, metric, 1).fit(scores, truth, LABELS).decide(scores, LABELS)
        assert np.diff(decided.indptr).min() >= 1


def test_wrong_words_are_configuration_errors() -> None:
    with pytest.raises(ConfigError, match=r"no decision rule 'best'.*per_label"):
        Decision("best")
    with pytest.raises(ConfigError, match="the rule 'promise' needs a promise"):
        Decision("promise")
    with pytest.raises(ConfigError, match=r"cannot optimise 'f1'.*micro_f1"):
        Decision(optimise="f1")


def test_documents_times_labels_is_never_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand labels, a few stored per document: fitting and deciding look at the stored entries alone."""
    n_labels, n = 100_000, 300
    generator = np.random.default_rng(0)

    def rows() -> Iterator[NDArray[Any]]:
        for _ in range(n):
            yield np.unique(generator.integers(0, n_labels, 20))

    stored = list(rows())
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in stored])])
    matrix = csr_array(
        (generator.normal(size=indptr[-1]).astype(np.float32), np.concatenate(stored), indptr), shape=(n, n_labels)
    )
    labels = LabelSet(map(str, range(n_labels)))
    scores = Scores(matrix, labels.names, "margin", -np.inf)
    truth = indicator([row[::4] for row in stored], n_labels)
    for name in ("toarray", "todense"):
        monkeypatch.setattr(csr_array, name, lambda *_: pytest.fail("a sparse matrix was written out"))
    for metric in METRICS:
        decided = Decision("auto", metric, 1).fit(scores, truth, labels).decide(scores, labels)
        assert decided.nnz >= n


def test_with_few_documents_the_comparison_hardly_depends_on_how_they_are_divided() -> None:
    rng = np.random.default_rng(0)
    documents, labels = 300, LabelSet(names(30))
    truth = rng.random((documents, len(labels))) < 0.06
    values = 1 / (1 + np.exp(-(3 * truth - 2.2 + rng.normal(size=truth.shape))))
    leads = []
    for seed in range(8):
        order = np.random.default_rng(seed).permutation(documents)
        scores = Scores.full(values[order], labels.names, "probability")
        crossed = Decision().fit(scores, csr_array(truth[order].astype(np.float32)), labels).report["cross_fitted"]
        leads.append(crossed["threshold"] - crossed["per_label:5"])
    assert np.std(leads) < 0.003  # with one division into fifths: above .004


@pytest.mark.parametrize(("documents", "times"), [(20, 10), (500, 10), (600, 8), (2600, 1), (6000, 1)])
def test_few_documents_are_divided_at_most_ten_times(documents: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as it takes to decide 5,000 times; each division is into fifths."""
    fitted: list[int] = []
    plain = decision.evidence
    monkeypatch.setattr(decision, "evidence", lambda seen, *rest: (fitted.append(len(seen)), plain(seen, *rest))[1])
    generator = np.random.default_rng(0)
    scores = Scores.full(generator.random((documents, 2), dtype=np.float32), ["a", "b"], "probability")
    Decision().fit(scores, indicator([[number % 2] for number in range(documents)], 2), LabelSet(["a", "b"]))
    held_out = [size for size in fitted if size < documents]
    assert len(held_out) == 5 * times and sum(documents - size for size in held_out) == times * documents
