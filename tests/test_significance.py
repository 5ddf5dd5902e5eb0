"""Tests of significance: equal to scipy's, to published tables, and to a loop over resampled documents."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from polytag.analysis.significance import compare_systems, rank_test, seed_test
from polytag.errors import DataError
from polytag.metrics.bootstrap import paired_bootstrap
from polytag.metrics.of_sets import evaluate, macro_f1

TRUTH = np.random.default_rng(0).random((120, 6)) < 0.25


def guess(wrong: float, seed: int) -> csr_array:
    return csr_array((TRUTH ^ (np.random.default_rng(seed).random(TRUTH.shape) < wrong)).astype(np.float32))


def test_two_systems_are_compared_by_the_metrics_and_the_bootstrap() -> None:
    truth, first, second = csr_array(TRUTH.astype(np.float32)), guess(0.2, 1), guess(0.05, 2)
    found = compare_systems(truth, first, second, names=("br", "sgm"), rounds=200, seed=3)
    before, after = evaluate(truth, first, None), evaluate(truth, second, None)
    for row in found.rows:
        assert (row.first, row.second) == pytest.approx((before[row.metric], after[row.metric]))
        expected = paired_bootstrap(truth, second, first, row.metric, 200, 3)
        assert (row.difference, row.low, row.high, row.p) == pytest.approx(tuple(expected))
    by_name = {row.metric: row for row in found.rows}
    assert by_name["micro_f1"].low > 0 and by_name["hamming_loss"].high < 0 and by_name["micro_f1"].p < 0.02
    json.dumps(found.to_json())


def test_a_system_of_several_seeds_counts_with_its_mean() -> None:
    truth = csr_array(TRUTH.astype(np.float32))
    one, other = [guess(0.1, s) for s in (1, 2, 3)], [guess(0.1, s) for s in (4, 5)]
    found = paired_bootstrap(truth, one, other, "macro_f1", rounds=50, seed=7)
    means = [np.mean([macro_f1(truth, sets) for sets in several]) for several in (one, other)]
    assert found.difference == pytest.approx(means[0] - means[1])
    generator, drawn = np.random.default_rng(7), []
    for _ in range(50):
        rows = generator.integers(120, size=120)
        values = [np.mean([macro_f1(truth[rows], sets[rows]) for sets in several]) for several in (one, other)]
        drawn.append(values[0] - values[1])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, (0.025, 0.975))))
    with pytest.raises(DataError, match="at least one"):
        paired_bootstrap(truth, [], other)


@pytest.mark.parametrize("seed", range(3))
def test_the_t_test_over_seeds_is_scipys(seed: int) -> None:
    generator = np.random.default_rng(seed)
    a, b, c = generator.normal(0.8, 0.01, 5), generator.normal(0.81, 0.01, 5), generator.normal(0.81, 0.03, 4)
    paired, welch = seed_test(a.tolist(), b.tolist()), seed_test(a.tolist(), c.tolist())
    assert paired.paired and not welch.paired
    expected = stats.ttest_rel(b, a)
    interval = expected.confidence_interval(0.95)
    assert (paired.t, paired.p, paired.low, paired.high) == pytest.approx((*expected, interval.low, interval.high))
    assert (welch.t, welch.p) == pytest.approx(tuple(stats.ttest_ind(c, a, equal_var=False)))
    assert paired.difference == pytest.approx(b.mean() - a.mean()) and paired.first_deviation == pytest.approx(a.std(ddof=1))


def test_seeds_without_spread_and_too_few_seeds() -> None:
    assert seed_test([0.5, 0.5], [0.5, 0.5]).p == 1
    assert seed_test([0.5, 0.6], [0.75, 0.85]).p < 1e-6, "each seed is better by the same amount"
    assert seed_test([0.5, 0.5], [0.7, 0.7, 0.7]).p == 0
    with pytest.raises(DataError, match="two seeds"):
        seed_test([0.5], [0.6, 0.7])
    with pytest.raises(DataError, match="same seeds"):
        seed_test([0.5, 0.6, 0.7], [0.6, 0.7], paired=True)


@pytest.mark.parametrize("ties", [False, True])
def test_friedman_is_scipys(ties: bool) -> None:
    table = np.random.default_rng(4).random((7, 4)) + np.array([0, 0.2, 0.4, 0.6])
    table = table.round(1) if ties else table
    found = rank_test({f"s{j}": table[:, j].tolist() for j in range(4)})
    expected = stats.friedmanchisquare(*table.T)
    assert (found.chi_square, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert sum(row.mean_rank for row in found.rows) == pytest.approx(10) and found.corpora == 7
    assert [row.mean_rank for row in found.rows] == sorted(row.mean_rank for row in found.rows)
    lower = rank_test({f"s{j}": (-table[:, j]).tolist() for j in range(4)}, higher_is_better=False)
    assert lower.rows == found.rows


# Demsar (2006), table 5a: critical values of the two-tailed Nemenyi test, for 2 to 10 systems.
TABLE_05 = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)
TABLE_10 = (1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920)


@pytest.mark.parametrize(("alpha", "table"), [(0.05, TABLE_05), (0.1, TABLE_10)])
def test_the_critical_difference_is_that_of_the_published_table(alpha: float, table: tuple[float, ...]) -> None:
    for k in (2, 3, 4, 10):
        values = {f"s{j}": np.random.default_rng(j).random(12).tolist() for j in range(k)}
        found = rank_test(values, alpha=alpha)
        expected = table[k - 2] * np.sqrt(k * (k + 1) / (6 * 12))
        assert found.critical_difference == pytest.approx(expected, abs=0.001)
        for pair in found.pairs:
            assert pair.different == (pair.p < alpha) == (abs(pair.difference) > found.critical_difference)


def test_systems_that_never_differ_and_too_little_to_rank() -> None:
    same = rank_test({"a": [0.5, 0.6], "b": [0.5, 0.6]})
    assert (same.chi_square, same.p) == (0, 1) and not same.pairs[0].different
    for values in ({"a": [0.5, 0.6]}, {"a": [0.5], "b": [0.6]}, {}):
        with pytest.raises(DataError, match="two systems and two corpora"):
            rank_test(values)
    with pytest.raises(DataError, match="as many values"):
        rank_test({"a": [0.5, 0.6], "b": [0.5]})
