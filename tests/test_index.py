"""The index of the labels: PIFA, balanced k-means, the shape of the tree, and that alike labels come together."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array, random_array

from polytag.config.groups.tree_settings import TreeSettings
from polytag.labels import LabelSet
from polytag.storage.schema import check
from polytag.xmc import balanced_kmeans as clusters
from polytag.xmc.balanced_kmeans import Vectors
from polytag.xmc.index import (
    TREE,
    LabelTree,
    _at_place,
    build_tree,
    cluster_tree,
    instance_vectors,
    label_index,
    label_vectors,
    tree_shape,
)


def documents(seed: int, n: int = 12, n_features: int = 9, n_labels: int = 7) -> tuple[csr_array, csr_array]:
    generator = np.random.default_rng(seed)
    x = generator.random((n, n_features)) * (generator.random((n, n_features)) < 0.4)
    y = generator.random((n, n_labels)) < 0.25
    return csr_array(x.astype(np.float32)), csr_array(y.astype(np.float32))


def planted(per_topic: int, topics: int, seed: int, width: int = 8) -> tuple[csr_array, NDArray[np.int64]]:
    """Label vectors whose words come from one of several topics, in random order, and the topic of each."""
    generator = np.random.default_rng(seed)
    topic = generator.permutation(np.repeat(np.arange(topics), per_topic))
    dense = np.zeros((len(topic), topics * width), dtype=np.float32)
    for row, t in enumerate(topic):
        dense[row, t * width + generator.choice(width, 4, replace=False)] = generator.random(4) + 0.2
    return csr_array(dense / np.linalg.norm(dense, axis=1, keepdims=True)), topic


# -- PIFA --------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_instance_vectors_are_the_normalised_sums_of_the_documents(seed: int) -> None:
    x, y = documents(seed)
    share = 1 / np.sqrt(np.maximum(y.toarray().sum(axis=1, keepdims=True), 1))
    sums = (y.toarray() * share).T @ x.toarray()
    expected = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-30)
    found = instance_vectors(x, y)
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-5)
    assert found.has_sorted_indices


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_instance_vectors_as_printed_are_plain_sums_of_all_terms(seed: int) -> None:
    """X-BERT, 3.2: no weight of a document, no maximum number of terms."""
    x, y = documents(seed)
    sums = y.toarray().T @ x.toarray()
    expected = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-30)
    settings_ = TreeSettings(document_weight="one", max_terms=0)
    names = LabelSet(str(j) for j in range(y.shape[1]))
    found = label_index(settings_, x, y, names, lambda texts: np.zeros((len(texts), 1), np.float32))
    np.testing.assert_allclose(found.sparse.toarray(), expected, atol=1e-5)


@numba.njit
def _place(values: Any, high: int, n: int) -> Any:
    """What Python can call."""
    return _at_place(values, high, n)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.data())
def test_a_place_among_the_sorted_values_is_found_without_sorting(values: list[int], data: st.DataObject) -> None:
    n = data.draw(st.integers(0, len(values) - 1))
    assert _place(np.array(values, dtype=np.float32), len(values) - 1, n) == sorted(values)[n]


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=30)
def test_instance_vectors_keep_the_largest_entries(seed: int, most: int) -> None:
    x, y = documents(seed)
    whole, cut = instance_vectors(x, y).toarray(), instance_vectors(x, y, most).toarray()
    for full, few in zip(whole, cut, strict=True):
        best = np.sort(full)[::-1][:most]
        assert (few > 0).sum() == (best > 0).sum()
        np.testing.assert_allclose(np.sort(few)[::-1][:most] * np.linalg.norm(best), best, atol=1e-5)


def test_vectors_may_come_from_text_from_instances_or_from_both() -> None:
    sparse = csr_array(np.eye(3, dtype=np.float32))
    given = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    text, both = label_vectors(None, given), label_vectors(sparse, given, 0.5)
    assert text.known.tolist() == [True, False, True]
    np.testing.assert_allclose(text.dense, [[0.6, 0.8], [0, 0], [0, 1]], atol=1e-6)
    assert both.sparse is sparse and np.allclose(both.dense, text.dense / 2) and both.known.all()
    assert label_vectors(sparse, None).dense.shape == (3, 0)
    with pytest.raises(ValueError, match="neither sparse nor dense"):
        label_vectors(None, None)
    with pytest.raises(ValueError, match="3 sparse and 2 dense"):
        Vectors(sparse, given[:2].astype(np.float32))


# -- balanced k-means --------------------------------------------------------------------------------------------------


@given(st.integers(1, 90), st.integers(1, 20), st.integers(0, 5), st.sampled_from(["sparse", "dense", "both"]))
@settings(max_examples=60)
def test_sizes_differ_by_at_most_one_and_nobody_is_lost(n: int, k: int, seed: int, kind: str) -> None:
    generator = np.random.default_rng(seed)
    sparse = csr_array(random_array((n, 30), density=0.08, rng=generator, format="csr", dtype=np.float32))  # some rows are empty
    dense = generator.normal(size=(n, 4)) * (generator.random((n, 1)) < 0.7)
    vectors = label_vectors(None if kind == "dense" else sparse, None if kind == "sparse" else dense)
    found = np.bincount(cluster_tree(vectors, k, seed).leaf_of, minlength=k)
    assert found.sum() == n and len(found) == k and found.max() - found.min() <= 1


@pytest.mark.parametrize("dense", [False, True])
def test_planted_topics_are_recovered(dense: bool) -> None:
    """Random clusters of the same sizes fail this by far."""
    vectors, topic = planted(per_topic=20, topics=6, seed=1)
    given = label_vectors(None, vectors.toarray()) if dense else label_vectors(vectors, None)
    together = cluster_tree(given, 6, seed=0).leaf_of
    same = topic[:, None] == topic[None, :]
    agree = ((together[:, None] == together[None, :]) & same).sum() / same.sum()
    shuffled = np.random.default_rng(0).permutation(together)
    chance = ((shuffled[:, None] == shuffled[None, :]) & same).sum() / same.sum()
    assert agree > 0.75 and chance < 0.3


def test_halving_is_as_good_as_the_best_halves() -> None:
    """On few labels, against every way to halve them: the sum of the similarities to the centres is near the best one."""
    from itertools import combinations

    vectors, _ = planted(per_topic=5, topics=2, seed=3)
    dense = vectors.toarray()

    def worth(left: Any) -> float:
        mask = np.isin(np.arange(10), left)
        return float(np.linalg.norm(dense[mask].sum(axis=0)) + np.linalg.norm(dense[~mask].sum(axis=0)))

    best = max(worth(left) for left in combinations(range(10), 5))
    found = cluster_tree(label_vectors(vectors, None), 2, seed=0).leaf_of
    assert worth(np.flatnonzero(found == 0)) >= 0.97 * best


def test_large_clusters_are_halved_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, topic = planted(per_topic=100, topics=2, seed=4)
    monkeypatch.setattr(clusters, "_SAMPLE", 40)
    found = cluster_tree(label_vectors(vectors, None), 2, seed=0).leaf_of
    assert max((found == topic).mean(), (found != topic).mean()) > 0.95


def test_seeds_give_other_trees_and_the_same_seed_the_same() -> None:
    vectors = label_vectors(planted(per_topic=30, topics=7, seed=5)[0], None)
    trees = [build_tree(vectors, 3, 10, seed).order.tolist() for seed in (0, 0, 1)]
    assert trees[0] == trees[1] != trees[2]


# -- the tree ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 400), st.integers(2, 9), st.integers(2, 30))
@settings(max_examples=60)
def test_every_label_has_one_place_in_a_tree_of_the_shape_asked_for(n: int, branching: int, max_leaf: int) -> None:
    empty = label_vectors(csr_array((n, 3), dtype=np.float32), None)
    tree = build_tree(empty, branching, max_leaf)
    assert np.array_equal(np.sort(tree.order), np.arange(n))
    leaf_sizes = np.diff(tree.starts[-1])
    assert leaf_sizes.max() <= max_leaf and leaf_sizes.max() - leaf_sizes.min() <= 1
    for above, below in zip(tree.starts, tree.starts[1:], strict=False):
        assert above[-1] == len(below) - 1
        assert np.diff(above).min() >= 1 and np.diff(above).max() <= 2 * branching
    again = LabelTree.from_state(tree.state())
    assert np.array_equal(again.leaf_of, tree.leaf_of)


def test_shape_of_the_tree() -> None:
    assert tree_shape(50, 4, 100) == []
    assert [level.tolist() for level in tree_shape(700, 4, 100)] == [[0, 7]]
    assert [len(level) - 1 for level in tree_shape(31_242, 16, 100)] == [1, 20]


def test_labels_without_a_vector_are_spread() -> None:
    sparse = np.zeros((60, 4), dtype=np.float32)
    sparse[:20, :2] = np.random.default_rng(0).random((20, 2))
    found = cluster_tree(label_vectors(csr_array(sparse), None), 10).leaf_of
    assert np.bincount(found[20:], minlength=10).tolist() == [4] * 10


def test_frequent_labels_come_first_within_their_leaf() -> None:
    tree = LabelTree(np.array([3, 1, 0, 2], dtype=np.int32), [np.array([0, 2]), np.array([0, 2, 4])])
    assert tree.by_frequency(np.array([5, 9, 7, 1])).order.tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("broken", [{"order": np.array([0, 0, 1])}, {"starts": [np.array([0, 2])]}, {"starts": []}])
def test_a_damaged_tree_is_refused(broken: dict[str, Any]) -> None:
    tree = build_tree(label_vectors(csr_array(np.eye(3, dtype=np.float32)), None))
    check(TREE, tree.state(), {"labels": 3})
    with pytest.raises(ValueError, match=r"damaged|is not"):
        check(TREE, {**tree.state(), **broken}, {"labels": 3})
