"""The solver finds what scikit-learn's LinearSVC finds, and the kernels compute what numpy computes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, random_array
from sklearn.svm import LinearSVC

import polytag.linear.svm as svm
from polytag.kernels.threads import in_threads, thread_count
from polytag.kernels.vectors import WIDTH, add_to_block, row_times_block
from polytag.labels import indicator
from polytag.linear.block_kernels import best_of_rows, labels_of_sets, run_chain
from polytag.linear.class_weights import imbalance_weights
from polytag.linear.svm import Problem, Separators, Solver, train_separators
from polytag.models.classifier_chain import ClassifierChain
from polytag.models.label_powerset import LabelPowerset, distinct_sets

Dense = NDArray[Any]
TIGHT = Solver(tolerance=1e-4, max_passes=20_000)


def random_problem(documents: int = 80, features: int = 40, labels: int = 20, seed: int = 0) -> Problem:
    """Sparse documents whose labels follow noisy linear rules, from frequent labels to rare ones; some rows are empty."""
    generator = np.random.default_rng(seed)
    dense = random_array((documents, features), density=0.15, rng=generator, dtype=np.float32).toarray()
    dense[3] = 0
    dense[-1] = 0
    scores = dense @ generator.normal(size=(features, labels)) + 0.3 * generator.normal(size=(documents, labels))
    true = scores > np.quantile(scores, np.linspace(0.5, 0.95, labels), axis=0).diagonal()
    return Problem(csr_array(dense), indicator([np.flatnonzero(row) for row in true], labels))


def objective(x: Any, sign: Dense, weights: Dense, bias: float, costs: Dense) -> float:
    """½(|w|² + b²) + Σ cost · max(0, 1 - y (w·x + b))²."""
    slack = np.maximum(0, 1 - sign * (x @ weights + bias))
    return float(0.5 * (weights @ weights + bias**2) + (costs * slack**2).sum())


def reference(x: Any, sign: Dense, c: float, heavier: float = 1.0) -> tuple[Dense, float]:
    """What scikit-learn finds for one label."""
    costs = {1: heavier, -1: 1}
    machine = LinearSVC(C=c, loss="squared_hinge", dual=True, intercept_scaling=1, tol=1e-6, max_iter=200_000, class_weight=costs)
    machine.fit(x.toarray().astype(np.float64), sign)
    return machine.coef_[0], float(machine.intercept_[0])


def signs_of(problem: Problem, label: int, rows: Dense | None = None) -> Dense:
    sign = np.where(problem.truth.toarray()[:, label] > 0, 1, -1)
    return sign if rows is None else sign[rows]


# -- the solver --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("c", [0.1, 1.0, 10.0])
def test_objective_is_that_of_scikit_learn(balance: float, c: float) -> None:
    problem = random_problem()
    solver = Solver(balance=balance, tolerance=1e-4, max_passes=20_000)
    (found,) = train_separators(problem, [c], solver)
    weights = found.weights.toarray().astype(np.float64)
    for label in range(0, 20, 3):
        sign = signs_of(problem, label)
        heavier = ((sign < 0).sum() / (sign > 0).sum()) ** balance
        costs = c * np.where(sign > 0, heavier, 1.0)
        best = objective(problem.features, sign, *reference(problem.features, sign, c, heavier), costs)
        ours = objective(problem.features, sign, weights[:, label], float(found.bias[label]), costs)
        assert ours == pytest.approx(best, rel=1e-3)
        assert ours >= best * (1 - 1e-5), "nothing is better than the optimum"


def test_a_looser_tolerance_costs_little() -> None:
    """At the tolerance that models use, the objective is within a few per cent of the best one."""
    problem = random_problem()
    for tolerance, near in ((0.3, 0.05), (0.01, 0.001)):
        (found,) = train_separators(problem, [1.0], Solver(tolerance=tolerance))
        weights = found.weights.toarray().astype(np.float64)
        for label in (0, 9, 19):
            sign = signs_of(problem, label)
            best = objective(problem.features, sign, *reference(problem.features, sign, 1.0), np.ones(80))
            ours = objective(problem.features, sign, weights[:, label], float(found.bias[label]), np.ones(80))
            assert ours == pytest.approx(best, rel=near)


@pytest.mark.parametrize("labels", [1, 15, 16, 17, 33])
def test_blocks_of_labels_are_solved_as_each_alone(labels: int) -> None:
    problem = random_problem(labels=33)
    part = Problem(problem.features, csr_array(problem.truth[:, :labels]))
    (found,) = train_separators(part, [1.0], TIGHT)
    assert found.shape == (40, labels)
    for label in {0, labels // 2, labels - 1}:
        (alone,) = train_separators(Problem(problem.features, csr_array(problem.truth[:, [label]])), [1.0], TIGHT)
        assert np.allclose(found.weights.toarray()[:, label], alone.weights.toarray()[:, 0], atol=2e-3)
        assert found.bias[label] == pytest.approx(alone.bias[0], abs=2e-3)


def test_rows_are_training_on_the_subset() -> None:
    problem = random_problem()
    rows = np.sort(np.random.default_rng(1).permutation(80)[:50])
    solver = Solver(balance=1.0, tolerance=1e-4, max_passes=20_000)
    (some,) = train_separators(problem, [1.0], solver, rows=rows)
    (alone,) = train_separators(Problem(problem.features[rows], problem.truth[rows]), [1.0], solver)
    assert np.allclose(some.weights.toarray(), alone.weights.toarray(), atol=2e-3)
    assert np.allclose(some.bias, alone.bias, atol=2e-3)
    (whole,) = train_separators(problem, [1.0], solver)
    assert not np.allclose(some.weights.toarray(), whole.weights.toarray(), atol=0.05)


@pytest.mark.parametrize("chain", [False, True])
def test_a_grid_of_c_is_as_good_as_separate_fits(chain: bool) -> None:
    problem = random_problem()
    order = np.arange(20)[::-1] if chain else None
    strengths = [0.1, 0.5, 4.0]
    together = train_separators(problem, strengths, TIGHT, chain=order)
    for c, warm in zip(strengths, together, strict=True):
        (cold,) = train_separators(problem, [c], TIGHT, chain=order)
        assert np.allclose(warm.weights.toarray(), cold.weights.toarray(), atol=5e-3)
        assert np.allclose(warm.bias, cold.bias, atol=5e-3)
    norms = [float((found.weights.data**2).sum()) for found in together]
    assert norms[0] < norms[1] < norms[2], "less regularisation, larger weights"


@pytest.mark.parametrize("balance", [0.0, 1.0])
def test_a_chain_is_one_svm_per_label_on_words_and_earlier_labels(balance: float) -> None:
    """With more labels than one block holds, so that earlier labels come from this block and from those before."""
    problem = random_problem(labels=20)
    order = np.random.default_rng(3).permutation(20)
    solver = Solver(balance=balance, tolerance=1e-4, max_passes=20_000)
    (found,) = train_separators(problem, [1.0], solver, chain=order)
    assert found.shape == (40 + 20, 20)
    weights = found.weights.toarray().astype(np.float64)
    for place in (0, 1, 7, 15, 16, 19):
        label = order[place]
        x = csr_array(hstack([problem.features, problem.truth[:, order[:place]]]))
        sign = signs_of(problem, int(label))
        heavier = ((sign < 0).sum() / (sign > 0).sum()) ** balance
        costs = np.where(sign > 0, heavier, 1.0)
        best = objective(x, sign, *reference(x, sign, 1.0, heavier), costs)
        own = np.concatenate([weights[:40, label], weights[40 : 40 + place, label]])
        assert objective(x, sign, own, float(found.bias[label]), costs) == pytest.approx(best, rel=1e-3)
        assert not weights[40 + place :, label].any(), "a label sees only those before it"


def test_pruning_drops_the_small_weights_and_only_those() -> None:
    problem = random_problem()
    (whole,) = train_separators(problem, [1.0], TIGHT)
    (pruned,) = train_separators(problem, [1.0], Solver(tolerance=1e-4, max_passes=20_000, prune=0.1))
    dense = whole.weights.toarray()
    assert 0 < pruned.weights.nnz < whole.weights.nnz
    assert np.array_equal(pruned.weights.toarray(), np.where(np.abs(dense) > 0.1, dense, 0))


def test_labels_without_documents_and_labels_of_all_are_solved() -> None:
    problem = random_problem(labels=3)
    rows = [[1, *row] for row in np.split(problem.truth.indices + 2, problem.truth.indptr[1:-1])]
    (found,) = train_separators(Problem(problem.features, indicator(rows, 5)), [1.0], Solver(balance=0.5))
    margins = found.all(problem.features)
    assert np.isfinite(margins).all()
    assert (margins[:, 0] < 0).all() and (margins[:, 1] > 0).all()


def test_imbalance_weights_balance_positives_and_negatives() -> None:
    counts = np.array([0, 1, 50, 100])
    assert imbalance_weights(counts, 100, 0.0).tolist() == [1, 1, 1, 1]
    assert np.allclose(imbalance_weights(counts, 100, 1.0), [99, 99, 1, 1 / 100])
    assert np.allclose(imbalance_weights(counts, 100, 0.5) ** 2, imbalance_weights(counts, 100, 1.0), rtol=1e-5)


@pytest.mark.parametrize("chain", [False, True])
def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch, chain: bool) -> None:
    problem = random_problem(documents=300, labels=50)
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("POLYTAG_THREADS", threads)
        assert thread_count() == int(threads)
        (found,) = train_separators(problem, [1.0], Solver(seed=3), chain=np.arange(50) if chain else None)
        features = csr_array(hstack([problem.features, problem.truth], dtype=np.float32)) if chain else problem.features
        results.append((found.weights.toarray(), found.bias, found.all(features), *found.best(features, 7)))
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_threads_keep_the_order_and_pass_errors_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads in ("1", "3"):
        monkeypatch.setenv("POLYTAG_THREADS", threads)
        assert list(in_threads(lambda x: x * x, range(20))) == [x * x for x in range(20)]
        assert list(in_threads(abs, [])) == []
        with pytest.raises(ZeroDivisionError):
            list(in_threads(lambda x: 1 // x, [1, 0]))
    monkeypatch.setenv("POLYTAG_THREADS", "1")
    assert set(in_threads(lambda _: threading.get_ident(), range(3))) == {threading.get_ident()}, "one thread is this one"
    for wrong in ("", "0", "-2", "many"):
        monkeypatch.setenv("POLYTAG_THREADS", wrong)
        assert thread_count() >= 1


# -- scoring -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [1, 16, 21])
def test_dense_blocks_and_sparse_weights_give_the_margins(monkeypatch: pytest.MonkeyPatch, labels: int) -> None:
    problem = random_problem(documents=600, labels=labels)
    (found,) = train_separators(problem, [1.0], Solver(prune=0.05))
    expected = problem.features @ found.weights.toarray().astype(np.float64) + found.bias
    dense = found.all(problem.features)
    monkeypatch.setattr(svm, "_DENSE_BYTES", 0)
    sparse = Separators(found.weights, found.bias)
    assert found.blocks is not None and sparse.blocks is None
    for margins in (dense, sparse.all(problem.features)):
        assert margins.dtype == np.float32 and np.allclose(margins, expected, atol=1e-5)
    assert np.array_equal(sparse.best(problem.features, labels)[1], np.sort(sparse.all(problem.features), axis=1)[:, ::-1])


@pytest.mark.parametrize("most", [1, 3, 7, 100])
def test_every_row_of_the_weights_is_in_one_tile(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """And no tile goes beyond the last row: compiled code would read what is behind it."""
    tiles: list[tuple[int, int]] = []
    monkeypatch.setattr(svm, "_FILLED", most)
    monkeypatch.setattr(svm, "fill_blocks", lambda indptr, indices, data, start, stop, dense: tiles.append((start, stop)))
    weights = csr_array(np.ones((20, 3), dtype=np.float32))
    assert Separators(weights, np.zeros(3, dtype=np.float32)).blocks is not None
    assert sorted(row for start, stop in tiles for row in range(start, stop)) == list(range(20))


def test_the_best_are_the_head_of_all() -> None:
    problem = random_problem(documents=600, labels=21)
    (found,) = train_separators(problem, [1.0], Solver())
    margins = found.all(problem.features)
    order = np.argsort(-margins, axis=1, kind="stable")
    for k in (1, 4, 21):
        labels, values = found.best(problem.features, k)
        assert np.array_equal(labels, order[:, :k])
        assert np.array_equal(values, np.take_along_axis(margins, order[:, :k], 1))


def test_no_documents_give_no_margins() -> None:
    (found,) = train_separators(random_problem(), [1.0], Solver())
    none = csr_array(np.zeros((0, 40), dtype=np.float32))
    assert found.all(none).shape == (0, 20)
    assert [part.shape for part in found.best(none, 3)] == [(0, 3), (0, 3)]


def test_state_and_back() -> None:
    problem = random_problem()
    (found,) = train_separators(problem, [1.0], Solver())
    again = Separators.from_state(found.state())
    assert np.array_equal(again.all(problem.features), found.all(problem.features))


# -- kernels -----------------------------------------------------------------------------------------------------------


@njit  # type: ignore[untyped-decorator]
def _times(out: Any, block: Any, indices: Any, data: Any, first: int, last: int) -> None:
    row_times_block(out, block, indices, data, first, last)


@njit  # type: ignore[untyped-decorator]
def _add(block: Any, step: Any, indices: Any, data: Any, first: int, last: int) -> None:
    add_to_block(block, step, indices, data, first, last)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_vector_instructions_compute_what_numpy_computes(first: int, last: int, seed: int) -> None:
    """Any range of a sparse row, empty ones and repeated columns included, at any alignment."""
    generator = np.random.default_rng(seed)
    indices, data = generator.integers(0, 9, 12).astype(np.int32), generator.normal(size=12).astype(np.float32)
    memory = generator.normal(size=9 * WIDTH + 3).astype(np.float32)
    block = memory[3:].reshape(9, WIDTH)  # four bytes are all the alignment that an array promises
    out, step = generator.normal(size=(2, WIDTH)).astype(np.float32)
    used = range(first, last)
    expected_out = out + sum((data[p] * block[indices[p]] for p in used), np.zeros(WIDTH))
    expected = block.astype(np.float64)
    for p in used:
        expected[indices[p]] += data[p] * step
    _times(out, block, indices, data, first, last)
    assert np.allclose(out, expected_out, atol=1e-5)
    _add(block, step, indices, data, first, last)
    assert np.allclose(block, expected, atol=1e-5)


TABLES = arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=st.sampled_from([-1.0, 0.0, 0.5, 2.0]))


@given(TABLES, st.data())
@settings(deadline=None)
def test_best_of_rows_is_a_stable_sort(table: Dense, data: st.DataObject) -> None:
    """Few values, so that ties are common: the smaller label number comes first."""
    k = data.draw(st.integers(1, table.shape[1]))
    labels, values = np.empty((len(table), k), dtype=np.int32), np.empty((len(table), k), dtype=np.float32)
    best_of_rows(table, k, labels, values)
    order = np.argsort(-table, axis=1, kind="stable")[:, :k]
    assert np.array_equal(labels, order) and np.array_equal(values, np.take_along_axis(table, order, 1))


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 7))
@settings(deadline=None, max_examples=60)
def test_run_chain_is_the_plain_loop(seed: int, documents: int, labels: int) -> None:
    generator = np.random.default_rng(seed)
    table = generator.normal(size=(documents, labels)).astype(np.float32)
    order = generator.permutation(labels)
    links = np.zeros((labels, labels), dtype=np.float32)
    for place, label in enumerate(order):
        links[label, order[place + 1 :]] = generator.normal(size=labels - place - 1)
    expected = table.astype(np.float64)
    for row in expected:
        for place, label in enumerate(order):
            for earlier in order[:place]:
                if row[earlier] > 0:
                    row[label] += links[earlier, label]
    run_chain(table, order, links)
    assert np.allclose(table, expected, atol=1e-5)


@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=6), st.integers(0, 2**32 - 1), st.integers(1, 4))
@settings(deadline=None, max_examples=100)
def test_labels_of_sets_take_the_best_set_that_holds_them(sets: list[set[int]], seed: int, documents: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = indicator([sorted(own) for own in sets], 6)
    count = int(generator.integers(1, len(sets) + 1))
    found = np.array([generator.permutation(len(sets))[:count] for _ in range(documents)], dtype=np.int32)
    margins = -np.sort(-generator.normal(size=found.shape).astype(np.float32), axis=1)
    size = sum(len(sets[s]) for row in found for s in row)
    indptr, indices, values = np.zeros(documents + 1, np.int64), np.empty(size, np.int32), np.empty(size, np.float32)
    used = labels_of_sets(
        found, margins, matrix.indptr, matrix.indices, np.full(6, -1), np.empty(6, np.float32), indptr, indices, values
    )
    assert used == indptr[-1]
    for i in range(documents):
        pairs = [(label, m) for s, m in zip(found[i], margins[i], strict=True) for label in sets[s]]
        expected = {label: max(m for other, m in pairs if other == label) for label, _ in pairs}
        assert indices[indptr[i] : indptr[i + 1]].tolist() == sorted(expected)
        assert values[indptr[i] : indptr[i + 1]].tolist() == [expected[label] for label in sorted(expected)]


# -- the models on top -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["frequency", "given", "random"])
def test_the_chain_decides_label_by_label(order: str) -> None:
    """Scores of the model are those of a plain walk along its order, with the labels decided so far as features."""
    problem = random_problem(labels=20)
    model = ClassifierChain.build({"order": order, "prune": 0.0, "tolerance": 0.01})
    (chain,) = model._train(problem, [1.0], None)
    counts = np.bincount(problem.truth.indices, minlength=20)
    expected_order: dict[str, Callable[[], list[int]]] = {
        "frequency": lambda: sorted(range(20), key=lambda j: -counts[j]),
        "given": lambda: list(range(20)),
        "random": lambda: np.random.default_rng(0).permutation(20).tolist(),
    }
    assert chain.order.tolist() == expected_order[order]()
    (whole,) = train_separators(problem, [1.0], model.make_solver(), chain=chain.order)
    dense = whole.weights.toarray()
    scores = model._score(chain, problem.features, [str(j) for j in range(20)], None)
    margins = scores.matrix.toarray()
    for i in range(0, 80, 9):
        given_so_far = np.zeros(20)
        for place, label in enumerate(chain.order):
            value = problem.features[[i]] @ dense[:40, label] + dense[40:, label] @ given_so_far + whole.bias[label]
            assert margins[i, label] == pytest.approx(float(value[0]), abs=1e-4)
            given_so_far[place] = value[0] > 0
    assert scores.decoded is not None and np.array_equal(scores.decoded.toarray() > 0, margins > 0)


def test_distinct_sets_are_those_of_the_corpus() -> None:
    sets, member = distinct_sets(indicator([[1, 2], [], [2], [1, 2], [], [0, 1, 2]], 3))
    assert [row.tolist() for row in np.split(sets.indices, sets.indptr[1:-1])] == [[1, 2], [], [2], [0, 1, 2]]
    assert member.tolist() == [0, 1, 2, 0, 1, 3]


@pytest.mark.parametrize("rows", [None, np.arange(0, 80, 2)])
def test_powerset_never_predicts_an_unseen_combination(rows: Dense | None) -> None:
    problem = random_problem(labels=6)
    model = LabelPowerset()
    (trained,) = model._train(problem, [1.0], rows)
    scores = model._score(trained, problem.features, list("abcdef"), None)
    assert scores.decoded is not None
    used = problem.truth if rows is None else problem.truth[rows]
    seen = {tuple(row) for row in used.toarray().tolist()}
    predicted = {tuple(row) for row in scores.decoded.toarray().tolist()}
    assert predicted <= seen and len(predicted) > 2
    assert {tuple(row) for row in trained.sets.toarray().tolist()} == seen


def test_powerset_scores_are_margins_of_the_best_set_with_the_label() -> None:
    problem = random_problem(labels=6)
    model = LabelPowerset.build({"prune": 0.0})
    (trained,) = model._train(problem, [1.0], None)
    scores = model._score(trained, problem.features, list("abcdef"), None)
    margins, sets = trained.separators.all(problem.features), trained.sets.toarray() > 0
    kept = np.argsort(-margins, axis=1, kind="stable")[:, :50]
    for i, (numbers, values) in enumerate(scores):
        expected = {j: max(margins[i, s] for s in kept[i] if sets[s, j]) for j in range(6) if sets[kept[i], j].any()}
        assert dict(zip(numbers.tolist(), values.tolist(), strict=True)) == expected
    assert scores.decoded is not None
    assert np.array_equal(scores.decoded.toarray() > 0, sets[margins.argmax(axis=1)])


def test_powerset_is_one_svm_per_set() -> None:
    problem = random_problem(labels=4)
    model = LabelPowerset.build({"tolerance": 1e-4, "prune": 0.0, "balance": 0.0})
    (trained,) = model._train(problem, [1.0], None)
    sets, member = distinct_sets(problem.truth)
    for number in range(0, int(sets.shape[0]), 3):
        sign = np.where(member == number, 1, -1)
        best = objective(problem.features, sign, *reference(problem.features, sign, 1.0), np.ones(80))
        weights = trained.separators.weights.toarray()[:, number].astype(np.float64)
        ours = objective(problem.features, sign, weights, float(trained.separators.bias[number]), np.ones(80))
        assert ours == pytest.approx(best, rel=1e-3)
