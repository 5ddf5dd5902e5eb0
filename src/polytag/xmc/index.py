"""The index: label embeddings, and the balanced tree that groups similar labels (X-BERT, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.groups.tree_settings import TreeSettings
from polytag.kernels.array_views import unlocked, unlocked_rows
from polytag.kernels.compiler import kernel, njit
from polytag.kernels.sorting import parted, sort_part
from polytag.kernels.threads import in_threads
from polytag.labels import LabelSet
from polytag.storage.schema import Array, Items, Sizes, Table
from polytag.storage.state_json import State
from polytag.xmc.balanced_kmeans import Vectors, balanced_order

_LABELS = 2048  # labels whose embeddings a thread computes at a time


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _at_place(values: Any, high: int, n: int) -> Any:
    """The n-th smallest of the values up to ``high``, by Hoare's selection in place; numba takes long to compile numpy's."""
    low = 0
    while low < high:
        i, j = parted(values, low, high, values[(low + high) // 2])
        if j < n < i:
            break
        if n <= j:
            high = j
        else:
            low = i
    return values[n]


@kernel(
    "int64(int64[::1],int32[::1],float32[::1],int64[::1],int32[::1],float32[::1],int64,int64,int64,"
    "float32[::1],int32[::1],float32[::1],int64[::1],int32[::1],float32[::1])",
    fastmath=True,
)
def _sum_instances(
    indptr: Any, indices: Any, data: Any, by_label: Any, documents: Any, share: Any, first: int, last: int, most: int,
    sums: Any, found: Any, spare: Any, out_indptr: Any, out_indices: Any, out_data: Any,
) -> int:  # fmt: skip
    """Normalised sums of the rows of labels first..last, ``most`` largest entries; ``sums`` is zero on entry and on return.

    ``found`` and ``spare`` are buffers, as long as ``sums``.
    """
    none = np.int64(0)
    end = none
    for label in range(first, last):
        count = none
        for q in range(by_label[label], by_label[label + 1]):
            for p in range(indptr[documents[q]], indptr[documents[q] + 1]):
                f = indices[p]
                if sums[f] == 0:
                    found[count] = f
                    count += 1
                sums[f] += data[p] * share[documents[q]]
        limit = np.float32(0.0)
        if count > most:
            for q in range(count):
                spare[q] = sums[found[q]]
            limit = _at_place(spare, count - 1, count - most)
        sort_part(found, none, count)
        begin, squares = end, 0.0
        for q in range(count):
            f = found[q]
            if sums[f] >= limit and end - begin < most:
                out_indices[end] = f
                out_data[end] = sums[f]
                squares += sums[f] * sums[f]
                end += 1
            sums[f] = 0
        norm = np.sqrt(squares)
        for q in range(begin, end):
            out_data[q] /= norm
        out_indptr[label - first + 1] = end
    return int(end)


def instance_vectors(features: csr_array, truth: csr_array, most: int = 0, weight: str = "root") -> csr_array:
    """PIFA label embeddings: the normalised sum of a label's documents, with at most ``most`` entries (0 for all).

    A document with n labels has weight ``1 / sqrt(n)``, because it says less about each of them; with ``weight`` = ``one`` it has
    weight 1, as in the paper. Features must not be negative.
    """
    rows = unlocked_rows(features)
    columns = truth.tocsc()
    by_label, documents = columns.indptr.astype(np.int64), columns.indices.astype(np.int32)
    labels_each = np.maximum(np.diff(truth.indptr), 1) if weight == "root" else np.ones(int(truth.shape[0]))
    share = (1 / np.sqrt(labels_each)).astype(np.float32)
    n_labels, n_features = int(truth.shape[1]), int(features.shape[1])
    most = most or n_features
    lengths = np.concatenate([[0], np.cumsum(np.diff(rows[0])[documents])])
    bound = np.minimum(np.diff(lengths[by_label]), most)  # maximum number of entries of each label

    def block(first: int) -> tuple[Any, Any, Any]:
        last = min(first + _LABELS, n_labels)
        room = int(bound[first:last].sum())
        indptr, indices, data = np.zeros(last - first + 1, np.int64), np.empty(room, np.int32), np.empty(room, np.float32)
        sums, found, spare = np.zeros(n_features, np.float32), np.empty(n_features, np.int32), np.empty(n_features, np.float32)
        end = _sum_instances(*rows, by_label, documents, share, first, last, most, sums, found, spare, indptr, indices, data)
        return indptr, indices[:end].copy(), data[:end].copy()

    parts = list(in_threads(block, range(0, n_labels, _LABELS)))
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(p[0]) for p in parts]))])
    indices, data = np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts])
    return csr_array((data, indices, indptr), shape=(n_labels, n_features))


def label_texts(labels: LabelSet) -> list[str]:
    """The name and the description of every label."""
    return [f"{name} {labels.descriptions.get(name, '')}".strip() for name in labels.names]


def label_vectors(sparse: csr_array | None, dense: NDArray[Any] | None, weight: float = 1.0) -> Vectors:
    """The label embeddings to cluster: sparse, dense with norm ``weight``, or both concatenated."""
    if sparse is None and dense is None:
        raise ValueError("neither sparse nor dense label embeddings were given")
    if dense is None:
        assert sparse is not None
        return Vectors(sparse, np.zeros((sparse.shape[0], 0), dtype=np.float32))
    norm = np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-12)
    given = (dense * (weight / norm)).astype(np.float32)
    return Vectors(csr_array(np.zeros((len(given), 1), dtype=np.float32)) if sparse is None else sparse, given)


def _levels_fit(state: State, sizes: Sizes) -> None:
    """Every level has one group of children per node of the level above; the last one holds all labels."""
    nodes = 1
    for level in state["starts"]:
        if len(level) != nodes + 1:
            raise ValueError("its tree of labels is damaged")
        nodes = int(level[-1])
    if nodes != len(state["order"]):
        raise ValueError("its tree of labels is damaged")


TREE = Table(
    {
        "order": Array(("int32",), ("labels",), low=0, below="labels", order="distinct"),
        "starts": Items(
            Array(("int64",), ("nodes+1",), order="offsets", total="children"), least=1, own=frozenset({"nodes", "children"})
        ),
    },
    rules=(_levels_fit,),
)
"""What a tree of labels looks like when it is saved; kernels follow its offsets without a check."""


@dataclass(frozen=True)
class LabelTree:
    """A tree over labels: ``order`` lists the labels by leaf, and the last of ``starts`` has the offsets of the leaves in it.

    ``starts[d][p]`` is the offset of the children of node p at depth d among the nodes at depth d + 1; depth 0 is the root.
    """

    order: NDArray[np.int32]
    starts: list[NDArray[np.int64]]

    @property
    def leaf_of(self) -> NDArray[np.int64]:
        """The leaf of every label."""
        leaf = np.empty(len(self.order), dtype=np.int64)
        leaf[self.order] = np.repeat(np.arange(len(self.starts[-1]) - 1), np.diff(self.starts[-1]))
        return leaf

    def parents(self, depth: int) -> NDArray[np.int64]:
        """The parent of every node at depth + 1."""
        return np.repeat(np.arange(len(self.starts[depth]) - 1), np.diff(self.starts[depth]))

    def levels(self, entries: csr_array) -> list[csr_array]:
        """Documents × labels as documents × nodes for every depth below the root; columns of the last follow ``order``."""
        place = np.empty(len(self.order), dtype=np.int32)
        place[self.order] = np.arange(len(self.order), dtype=np.int32)
        found = [_renamed(entries, place, len(place))]
        for depth in range(len(self.starts) - 1, 0, -1):
            found.insert(0, _renamed(found[0], self.parents(depth).astype(np.int32), len(self.starts[depth]) - 1))
        return found

    def by_frequency(self, counts: NDArray[Any]) -> LabelTree:
        """The same tree with the labels of each leaf sorted by descending count."""
        leaf = self.parents(len(self.starts) - 1)
        order = self.order[np.lexsort((self.order, -counts[self.order], leaf))]
        return LabelTree(order, self.starts)

    def state(self) -> dict[str, Any]:
        """The arrays for an artefact."""
        return {"order": self.order, "starts": list(self.starts)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> LabelTree:
        """Rebuild from the arrays."""
        return cls(unlocked(state["order"], np.int32), [unlocked(level, np.int64) for level in state["starts"]])


def _renamed(entries: csr_array, names: NDArray[np.int32], count: int) -> csr_array:
    """The same documents with renumbered columns; duplicates are merged."""
    moved = csr_array(
        (np.ones(len(entries.indices), np.float32), names[entries.indices], entries.indptr.copy()),
        shape=(entries.shape[0], count),
    )
    moved.sum_duplicates()
    moved.data[:] = 1
    return moved


def tree_shape(n_labels: int, branching: int, max_leaf: int) -> list[NDArray[np.int64]]:
    """The offsets of each node's children, from the root to the parents of the leaves; the root may have 2 * ``branching``."""
    counts = [-(-n_labels // max_leaf)]
    while counts[0] > 2 * branching:
        counts.insert(0, -(-counts[0] // branching))
    if counts == [1]:
        return []
    return [_even(below, above) for above, below in zip([1, *counts], counts, strict=False)]


def _even(things: int, parts: int) -> NDArray[np.int64]:
    return np.arange(parts + 1, dtype=np.int64) * things // parts


def build_tree(vectors: Vectors, branching: int = 64, max_leaf: int = 100, seed: int = 0) -> LabelTree:
    """A balanced label tree by k-means: ``branching`` children per node, at most ``max_leaf`` labels per leaf."""
    levels = tree_shape(len(vectors), branching, max_leaf)
    order, leaves = balanced_order(vectors, levels, seed)
    return LabelTree(order, [*levels, leaves.astype(np.int64)])


def instance_tree(job: State, rows: State, truth: State) -> State:
    """A piece of work: the tree of labels whose vectors come from their documents; ``job`` has the settings."""
    indptr, indices, data = rows["rows"]
    features = csr_array((data, indices, indptr), shape=(len(indptr) - 1, int(rows["features"])))
    vectors = label_vectors(instance_vectors(features, truth["truth"], job["max_terms"], job["document_weight"]), None)
    return build_tree(vectors, job["branching"], job["max_leaf"], job["seed"]).state()


def cluster_tree(vectors: Vectors, count: int, seed: int = 0) -> LabelTree:
    """A tree with one level of clusters: a root with ``count`` leaves whose sizes differ by at most one."""
    root = np.array([0, count], dtype=np.int64)
    order, bounds = balanced_order(vectors, [root] if count > 1 else [], seed)
    return LabelTree(order, [root, bounds.astype(np.int64)])


def label_index(
    settings: TreeSettings,
    features: csr_array,
    truth: csr_array,
    labels: LabelSet,
    encode: Callable[[list[str]], NDArray[np.float32]],
) -> Vectors:
    """The label embeddings to cluster: from the labels' documents (pifa), from their texts by ``encode``, or both."""
    sparse = dense = None
    if settings.index != "text":
        sparse = instance_vectors(features, truth, settings.max_terms, settings.document_weight)
    if settings.index != "pifa":
        dense = encode(label_texts(labels))
    return label_vectors(sparse, dense)
