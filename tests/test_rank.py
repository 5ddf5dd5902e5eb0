"""Separators over a tree: training against one node at a time, and the beam against brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.svm import LinearSVC

from polytag.kernels.threads import thread_count, tile_size
from polytag.linear.svm import Problem
from polytag.storage.schema import check
from polytag.xmc import rank
from polytag.xmc.index import LabelTree, build_tree, instance_vectors, label_vectors
from polytag.xmc.rank import WORTH, Chunks, Forest, TreeRanker, forest_schema
from polytag.xmc.tree_training import Ranking, TreeTraining
from toys import train_ranker

SIZES: dict[str, Any] = {"n_labels": st.integers(2, 40), "branching": st.integers(2, 4), "max_leaf": st.integers(2, 9)}


def topics(n: int, n_labels: int, seed: int, noise: int = 3) -> tuple[csr_array, csr_array]:
    """Documents with one to three labels, each label shown by two words of its own and two that its neighbours share."""
    generator = np.random.default_rng(seed)
    words = 2 * n_labels + n_labels // 4 * 2 + 12
    x, y = np.zeros((n, words), dtype=np.float32), np.zeros((n, n_labels), dtype=np.float32)
    for row in range(n):
        for label in generator.choice(n_labels, generator.integers(1, 4)):
            y[row, label] = 1
            shared = 2 * n_labels + min(label // 4, max(n_labels // 4 - 1, 0)) * 2
            x[row, [2 * label, 2 * label + 1, shared, shared + 1]] += generator.random(4) + 0.3
        x[row, words - 12 + generator.choice(12, noise, replace=False)] += 0.3
    return csr_array(x / np.linalg.norm(x, axis=1, keepdims=True)), csr_array(y)


def random_ranker(n_labels: int, branching: int, max_leaf: int, seed: int, half: bool = False) -> TreeRanker:
    """A tree with random sparse weights."""
    generator = np.random.default_rng(seed)
    tree = build_tree(
        label_vectors(csr_array(generator.random((n_labels, 5)).astype(np.float32)), None), branching, max_leaf, seed
    )
    chunks = []
    for starts in tree.starts:
        nodes = []
        for p in range(len(starts) - 1):
            width = int(starts[p + 1] - starts[p])
            weights = generator.normal(size=(30, width)) * (generator.random((30, width)) < 0.2)
            table = csr_array(weights.astype(np.float32))
            kept = np.flatnonzero(np.diff(table.indptr))
            features, begins = kept.astype(np.int32), table.indptr[kept].astype(np.uint32)
            values = table.data.astype(np.float16 if half else np.float32)
            bias = generator.normal(size=width).astype(np.float32)
            nodes.append((features, begins, table.indices.astype(np.uint16), values, bias))
        chunks.append(Chunks.of(nodes))
    return TreeRanker(tree, chunks, 30)


def dense_weights(ranker: TreeRanker, depth: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights (features, children of all nodes) and bias of one depth, entry by entry."""
    c, starts = ranker.chunks[depth], ranker.tree.starts[depth]
    weights = np.zeros((ranker.n_features, int(starts[-1])))
    for p in range(len(starts) - 1):
        for r in range(c.row_starts[p], c.row_starts[p + 1]):
            stop = c.starts[r + 1] if r + 1 < c.row_starts[p + 1] else c.entry_starts[p + 1] - c.entry_starts[p]
            for q in range(int(c.entry_starts[p]) + int(c.starts[r]), int(c.entry_starts[p]) + int(stop)):
                weights[c.rows[r], starts[p] + c.children[q]] = c.weights[q]
    return weights, c.bias.astype(np.float64)


def worth_of(margin: NDArray[np.float64], worth: str) -> NDArray[np.float64]:
    """The probability that a margin stands for, as the equations have it."""
    if worth == "sigmoid":
        return np.asarray(1 / (1 + np.exp(-margin)))
    return np.asarray(np.exp(-(np.maximum(0, 1 - margin) ** int(worth[1]))))


def outside(chance: NDArray[np.float64], beam: int) -> NDArray[np.int64]:
    """The nodes that a beam leaves out; no example is taken where that depends on how the last digits are rounded."""
    order = np.argsort(-chance, axis=1, kind="stable")
    if beam < chance.shape[1]:
        last, first = (np.take_along_axis(chance, order[:, [at]], axis=1) for at in (beam - 1, beam))
        if ((first < last) & (first > (1 - 1e-5) * last)).any():
            reject()
    return order[:, beam:]


def brute_force(ranker: TreeRanker, x: csr_array, beam: int, worth: str) -> NDArray[np.float64]:
    """P(label | x) of every label (documents, labels): the beam written out over dense arrays; 0 where it does not reach."""
    chance = np.ones((x.shape[0], 1))
    last = len(ranker.tree.starts) - 1
    for depth in range(last + 1):
        weights, bias = dense_weights(ranker, depth)
        chance = chance[:, ranker.tree.parents(depth)] * worth_of(x.toarray() @ weights + bias, worth)
        if depth < last:
            np.put_along_axis(chance, outside(chance, beam), 0, axis=1)
    found = np.empty_like(chance)
    found[:, ranker.tree.order] = chance
    return found


def rows(seed: int, n: int = 5) -> csr_array:
    generator = np.random.default_rng(seed)
    return csr_array((generator.random((n, 30)) * (generator.random((n, 30)) < 0.3)).astype(np.float32))


def table(labels: NDArray[Any], logs: NDArray[Any], n_labels: int) -> NDArray[np.float64]:
    """Candidates as an array (documents, labels), 0 where a label is not among them."""
    found = np.zeros((len(labels), n_labels))
    for row, (names, values) in enumerate(zip(labels, logs, strict=True)):
        assert len(set(names[names >= 0])) == (names >= 0).sum() and (np.diff(values[names >= 0]) <= 0).all()
        found[row, names[names >= 0]] = np.exp(values[names >= 0])
    return found


# -- the beam ----------------------------------------------------------------------------------------------------------


@given(**SIZES, beam=st.integers(1, 12), seed=st.integers(0, 999), worth=st.sampled_from(sorted(WORTH)))
@settings(max_examples=80)
def test_beam_equals_brute_force(n_labels: int, branching: int, max_leaf: int, beam: int, seed: int, worth: str) -> None:
    ranker = random_ranker(n_labels, branching, max_leaf, seed)
    x = rows(seed)
    found = table(*ranker.best(x, n_labels, beam, worth), n_labels)
    np.testing.assert_allclose(found, brute_force(ranker, x, beam, worth), rtol=2e-3, atol=1e-6)


@given(**SIZES, k=st.integers(1, 12), seed=st.integers(0, 999))
@settings(max_examples=40)
def test_k_best_are_the_head_of_all_and_one_document_is_like_many(
    n_labels: int, branching: int, max_leaf: int, k: int, seed: int
) -> None:
    ranker = random_ranker(n_labels, branching, max_leaf, seed, half=True)
    x, width = rows(seed, 9), min(k, n_labels)
    everything, best = ranker.best(x, n_labels, 3), ranker.best(x, width, 3)
    assert np.array_equal(best[0], everything[0][:, :width]) and np.array_equal(best[1], everything[1][:, :width])
    for i in range(9):
        alone = ranker.best(csr_array(x[[i]]), width, 3)
        assert np.array_equal(alone[0][0], best[0][i]) and np.array_equal(alone[1][0], best[1][i])


def test_many_documents_at_once_place_rows_and_give_the_same() -> None:
    """Enough documents for the other way of looking weights up, and for several threads."""
    ranker = random_ranker(60, 3, 8, 1)
    x = rows(2, 3000)
    labels, logs = ranker.best(x, 10, 4)
    for i in (0, 1, 1500, 2999):
        alone = ranker.best(csr_array(x[[i]]), 10, 4)
        assert np.array_equal(alone[0][0], labels[i]) and np.array_equal(alone[1][0], logs[i])


@pytest.mark.parametrize("slots", [0, 1, 7])
def test_rows_that_find_no_room_are_added_without_being_written_out(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit what there is with room for all of them."""
    monkeypatch.setenv("POLYTAG_THREADS", "1")
    ranker, x = random_ranker(60, 3, 20, 1, half=True), rows(2, 300)
    expected = ranker.best(x, 10, 4)
    monkeypatch.setattr(rank.SCRATCH, "room", np.full(32 * slots + 5, np.nan, dtype=np.float32))
    found = ranker.best(x, 10, 4)
    assert np.array_equal(found[0], expected[0]) and np.array_equal(found[1], expected[1])


def test_half_precision_is_as_exact_as_half_precision_is() -> None:
    full, half = random_ranker(30, 3, 5, 7), random_ranker(30, 3, 5, 7, half=True)
    assert half.chunks[0].weights.dtype == np.float16
    values = [dense_weights(one, 0)[0] for one in (full, half)]
    assert np.array_equal(values[0].astype(np.float16), values[1].astype(np.float16))
    found = [table(*one.best(rows(7), 30, 30), 30) for one in (full, half)]
    np.testing.assert_allclose(found[0], found[1], atol=0.02)
    np.testing.assert_allclose(found[1], brute_force(half, rows(7), 30, "l3-hinge"), rtol=2e-3, atol=1e-6)


@given(**SIZES, seed=st.integers(0, 999), worth=st.sampled_from(sorted(WORTH)), share=st.floats(0, 1))
@settings(max_examples=60)
def test_given_labels_get_the_scores_that_a_search_of_everything_gives_them(
    n_labels: int, branching: int, max_leaf: int, seed: int, worth: str, share: float
) -> None:
    ranker, x = random_ranker(n_labels, branching, max_leaf, seed), rows(seed)
    wanted = csr_array((np.random.default_rng(seed).random((5, n_labels)) < share).astype(np.float32))
    found = ranker.given(x, wanted, worth)
    assert np.array_equal(found.indices, wanted.indices) and np.array_equal(found.indptr, wanted.indptr)
    everything = brute_force(ranker, x, n_labels, worth)
    np.testing.assert_allclose(np.exp(found.data), everything[wanted.toarray() > 0], rtol=2e-3, atol=1e-6)


@given(**SIZES, seed=st.integers(0, 999))
@settings(max_examples=20)
def test_given_labels_below_leaves_that_something_else_found(n_labels: int, branching: int, max_leaf: int, seed: int) -> None:
    """Logs of the first level that are not the tree's own take the place of its own separators there."""
    ranker, x = random_ranker(n_labels, branching, max_leaf, seed), rows(seed)
    if len(ranker.tree.starts) != 2:
        return
    first = np.log(np.random.default_rng(seed).random((5, len(ranker.tree.starts[1]) - 1))).astype(np.float32)
    weights, bias = dense_weights(ranker, 1)
    worth = worth_of(x.toarray() @ weights + bias, "l3-hinge")
    expected = np.empty_like(worth)
    expected[:, ranker.tree.order] = np.exp(first)[:, ranker.tree.parents(1)] * worth
    found = ranker.given(x, csr_array(np.ones((5, n_labels), dtype=np.float32)), "l3-hinge", first)
    np.testing.assert_allclose(np.exp(found.toarray()), expected, rtol=2e-3, atol=1e-6)
    leaves = np.argsort(-first, axis=1, kind="stable")[:, :2].astype(np.int32)
    reached = table(*ranker.best_below(x, leaves, np.take_along_axis(first, leaves, 1), n_labels, "l3-hinge"), n_labels)
    inside = np.stack([np.isin(ranker.tree.leaf_of, row) for row in leaves])
    np.testing.assert_allclose(reached, np.where(inside, expected, 0), rtol=2e-3, atol=1e-6)


@given(seed=st.integers(0, 999), trees=st.integers(2, 4), k=st.integers(1, 20))
@settings(max_examples=30)
def test_equation_1_a_forest_is_the_mean_of_its_trees(seed: int, trees: int, k: int) -> None:
    """A tree whose beam has missed a label counts as 0 in a search, and says what it is worth when it is asked."""
    rankers = [random_ranker(20, 2, 3, seed + t) for t in range(trees)]
    x = rows(seed)
    expected = np.mean([brute_force(one, x, 3, "l3-hinge") for one in rankers], axis=0)
    np.testing.assert_allclose(table(*Forest(rankers).best(x, 20, 3, "l3-hinge"), 20), expected, rtol=2e-3, atol=1e-6)
    asked = Forest(rankers).given(x, csr_array(np.ones((5, 20), dtype=np.float32)), "l3-hinge")
    everything = np.mean([brute_force(one, x, 20, "l3-hinge") for one in rankers], axis=0)
    np.testing.assert_allclose(np.exp(asked.toarray()), everything, rtol=2e-3, atol=1e-6)
    labels, logs = Forest(rankers).best(x, k, 3, "l3-hinge")
    kept = [table(*one.best(x, k, 3, "l3-hinge"), 20) for one in rankers]
    assert labels.shape == (5, k)
    best = np.sort(np.mean(kept, axis=0), axis=1)[:, ::-1][:, :k]
    np.testing.assert_allclose(np.where(labels >= 0, np.exp(logs), 0), best, rtol=1e-5, atol=1e-6)


@given(**SIZES, seed=st.integers(0, 999), beam=st.integers(1, 9))
@settings(max_examples=20)
def test_clusters_are_the_leaves_that_the_beam_reaches(
    n_labels: int, branching: int, max_leaf: int, seed: int, beam: int
) -> None:
    """By the separators above the leaves alone."""
    ranker, x = random_ranker(n_labels, branching, max_leaf, seed), rows(seed)
    leaves, logs = ranker.clusters(x, beam, "l3-hinge")
    found = table(leaves, logs, len(ranker.tree.starts[-1]) - 1)
    last = len(ranker.tree.starts) - 1
    chance = np.ones((5, 1))
    for depth in range(last):
        weights, bias = dense_weights(ranker, depth)
        chance = chance[:, ranker.tree.parents(depth)] * worth_of(x.toarray() @ weights + bias, "l3-hinge")
        np.put_along_axis(chance, outside(chance, beam), 0, axis=1)
    np.testing.assert_allclose(found, chance, rtol=2e-3, atol=1e-6)


def test_no_documents_and_no_words() -> None:
    ranker = random_ranker(20, 2, 3, 0)
    assert ranker.best(csr_array((0, 30), dtype=np.float32), 4)[0].shape == (0, 4)
    nothing = csr_array((2, 30), dtype=np.float32)
    np.testing.assert_allclose(
        table(*ranker.best(nothing, 20, 3), 20), brute_force(ranker, nothing, 3, "l3-hinge"), rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize("part", ["rows", "children", "starts", "bias", "row_starts"])
def test_weights_that_point_outside_are_refused(part: str) -> None:
    """An artefact from a stranger must not make compiled code read or write elsewhere."""
    state = Forest([random_ranker(20, 2, 3, 0)]).state()
    half = state["trees"][0]["chunks"][0]["weights"].dtype == np.float16
    check(forest_schema(half=half), state, {"labels": 20})
    chunk = state["trees"][0]["chunks"][-1]
    wrong = chunk[part].copy()
    wrong[len(wrong) // 2] = 60_000
    chunk[part] = wrong[:-1] if part == "bias" else wrong
    with pytest.raises(ValueError, match=r"do not fit|is not"):
        check(forest_schema(half=half), state, {"labels": 20})


# -- training ----------------------------------------------------------------------------------------------------------


def grown(x: csr_array, y: csr_array, branching: int, max_leaf: int, seed: int = 0) -> LabelTree:
    return build_tree(label_vectors(instance_vectors(x, y), None), branching, max_leaf, seed)


def test_the_levels_of_the_truth_follow_the_parents() -> None:
    x, y = topics(80, 20, 0)
    tree = grown(x, y, 2, 4)
    levels = tree.levels(y)
    assert np.array_equal(levels[-1].toarray(), y.toarray()[:, tree.order])
    for depth in range(1, len(levels)):
        parent = tree.parents(depth)
        for node in range(levels[depth - 1].shape[1]):
            below = levels[depth].toarray()[:, parent == node].any(axis=1)
            assert np.array_equal(levels[depth - 1].toarray()[:, node] > 0, below)


def test_every_node_is_what_a_separate_solver_makes_of_its_documents() -> None:
    """The children of a node, trained together, against scikit-learn one by one on the documents of that node."""
    x, y = topics(150, 24, 1)
    tree = grown(x, y, 2, 6)
    ranker = train_ranker(Problem(x, y), tree, Ranking(c=1.0, prune=0.0, tolerance=1e-3, max_passes=3000, half=False))
    truth = [np.ones((150, 1)), *(level.toarray() for level in tree.levels(y))]
    compared = 0
    for depth in range(len(tree.starts)):
        weights, bias = dense_weights(ranker, depth)
        for child in range(weights.shape[1]):
            own = truth[depth][:, tree.parents(depth)[child]] > 0
            target = truth[depth + 1][own, child]
            if len(np.unique(target)) == 2:
                # scikit-learn's dual solver also puts a penalty on the bias
                peer = LinearSVC(C=1.0, tol=1e-5, max_iter=20_000, intercept_scaling=1.0).fit(x.toarray()[own], target)
                np.testing.assert_allclose(weights[:, child], peer.coef_[0], atol=0.02)
                assert bias[child] == pytest.approx(peer.intercept_[0], abs=0.02)
                compared += 1
    assert compared > 20


def test_a_child_without_documents_is_never_preferred() -> None:
    x, y = topics(60, 10, 2)
    y = csr_array(np.hstack([y.toarray(), np.zeros((60, 30), dtype=np.float32)]))
    ranker = train_ranker(Problem(x, y), grown(x, y, 3, 4), Ranking())
    assert (ranker.best(x, 1, 10)[0] < 10).all()


def test_pruning_drops_small_weights_and_nothing_else() -> None:
    x, y = topics(150, 24, 3)
    tree = grown(x, y, 2, 6)
    whole, pruned = (train_ranker(Problem(x, y), tree, Ranking(prune=prune, half=False)) for prune in (0.0, 0.2))
    for depth in range(len(tree.starts)):
        full, few = dense_weights(whole, depth)[0], dense_weights(pruned, depth)[0]
        assert np.array_equal(np.where(np.abs(full) > 0.2, full, 0), few)


def recall(ranker: TreeRanker, x: csr_array, y: csr_array, beam: int) -> float:
    """The share of true labels whose leaf the beam reaches."""
    reached = table(*ranker.best(x, y.shape[1], beam), y.shape[1]) > 0
    return float(reached[y.toarray() > 0].mean())


def test_the_tree_finds_more_than_a_random_tree() -> None:
    x, y = topics(600, 64, 4, noise=5)
    new_x, new_y = topics(200, 64, 5, noise=5)
    tree = grown(x, y, 2, 4)
    mixed = LabelTree(np.random.default_rng(0).permutation(tree.order), tree.starts)
    good, bad = (train_ranker(Problem(x, y), one, Ranking(c=0.05)) for one in (tree, mixed))
    assert recall(good, new_x, new_y, 3) > recall(bad, new_x, new_y, 3) + 0.03


def test_matcher_negatives_are_the_documents_wrongly_sent() -> None:
    x, y = topics(200, 32, 6)
    tree = grown(x, y, 2, 4)
    training = TreeTraining(Problem(x, y), tree, Ranking(negatives="matcher", beam=2))
    levels = tree.levels(y)
    for depth in range(1, len(tree.starts)):
        nodes = len(tree.starts[depth]) - 1
        reached = np.random.default_rng(depth).integers(0, nodes, (200, 2)).astype(np.int32)
        indptr, documents = training._documents(depth, reached)
        for p in range(nodes):
            expected = np.flatnonzero((levels[depth - 1].toarray()[:, p] > 0) | (reached == p).any(axis=1))
            assert np.array_equal(documents[indptr[p] : indptr[p + 1]], expected)
    ranker = training.run(lambda depth, make: make())
    assert (ranker.best(x, 1, 2)[0][:, 0] == ranker.best(x, 3, 2)[0][:, 0]).all()
    teacher = train_ranker(Problem(x, y), tree, Ranking())
    assert not np.array_equal(teacher.chunks[-1].bias, ranker.chunks[-1].bias)


def test_weights_of_positives_pull_a_label_up() -> None:
    x, y = topics(200, 16, 7)
    tree = grown(x, y, 2, 4)
    heavy = np.ones(16)
    heavy[3] = 20
    even, uneven = (train_ranker(Problem(x, y), tree, Ranking(half=False), w) for w in (np.ones(16), heavy))
    before, after = (table(*one.best(x, 16, 16), 16) for one in (even, uneven))
    assert after[:, 3].mean() > before[:, 3].mean()
    others = np.setdiff1d(np.arange(16), [3])
    np.testing.assert_allclose(after[:, others], before[:, others], atol=0.05)


@given(st.integers(0, 10_000), st.integers(1, 5_000))
def test_every_thread_gets_as_many_tiles_of_documents_as_the_others(n: int, most: int) -> None:
    size, threads = tile_size(n, most), thread_count()
    tiles = -(-n // size)
    assert 1 <= size <= most
    assert tiles == n if n < threads else tiles <= threads * -(-n // (most * threads))


def test_wide_nodes_and_wide_beams_take_fewer_documents_together() -> None:
    """The margins of a tile stay within bounds, but one document is always taken."""
    ranker = random_ranker(40, 3, 9, 0)
    sizes = [ranker.most_documents(beam) for beam in (1, 10_000, 10**9)]
    assert sizes[0] == rank.TILE > sizes[1] > sizes[2] == 1
