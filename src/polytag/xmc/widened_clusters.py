"""Labels that clusters get later: separators from the texts of labels, and their places among those that were trained.

A separator is the direction of the features of text and examples, times a slope, and a bias. Slope and bias are fitted on labels
of training and documents whose matched clusters hold them, by the squared hinge that separators are trained with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.kernels.sparse_rows import unit_rows
from polytag.xmc.index import LabelTree
from polytag.xmc.rank import Chunks, TreeRanker

_STEPS = 100  # of Newton's method; the loss is piecewise quadratic, so that a few are enough
_RIDGE = 1e-3
_EXAMPLES = 4  # documents of a label that are its examples when margins are fitted


class TextMargin(NamedTuple):
    """The margin of a document and the text of a label: ``slope`` times their scalar product, plus ``bias``."""

    slope: float
    bias: float

    @classmethod
    def fit(cls, similar: NDArray[Any], true: NDArray[np.bool_]) -> TextMargin:
        """The least squared hinge over pairs of document and label."""
        x = np.column_stack([np.asarray(similar, dtype=np.float64), np.ones(len(similar))])
        sign = np.where(true, 1.0, -1.0)
        ridge, weights = _RIDGE * np.eye(2), np.zeros(2)
        for _ in range(_STEPS):
            active = x[sign * (x @ weights) < 1]
            target = sign[sign * (x @ weights) < 1]
            again = np.linalg.solve(active.T @ active + ridge, active.T @ target)
            if np.allclose(again, weights, atol=1e-9):
                break
            weights = again
        return cls(float(weights[0]), float(weights[1]))


class TextMargins(NamedTuple):
    """The margins of labels without examples, and with some."""

    alone: TextMargin
    shown: TextMargin

    @classmethod
    def fit(
        cls,
        rows: csr_array,
        clusters: NDArray[np.int32],
        truth: csr_array,
        tree: LabelTree,
        labels: NDArray[Any],
        texts: csr_array,
    ) -> TextMargins | None:
        """Treat labels of training as new: half of the documents have their examples, the others are compared with them."""
        half = len(clusters) // 2
        given = _first(csr_array(truth[:half][:, labels].T), _EXAMPLES)
        rest = csr_array(rows[half:]), clusters[half:], csr_array(truth[half:]), tree, labels
        found = [pairs_of(*rest, directions(texts, one)) for one in (None, csr_array(given @ rows[:half]))]
        if not found[0][1].any():
            return None
        return cls(*(TextMargin.fit(*pairs) for pairs in found))

    def state(self) -> NDArray[np.float64]:
        """The numbers for an artefact."""
        return np.array(self)

    @classmethod
    def from_state(cls, state: Any) -> TextMargins:
        """Rebuild from the numbers."""
        return cls(*(TextMargin(*map(float, row)) for row in np.asarray(state)))


def _first(rows: csr_array, count: int) -> csr_array:
    """The first entries of every row, at most ``count``."""
    place = np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], np.diff(rows.indptr))
    kept = place < count
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[kept]
    return csr_array((rows.data[kept], (row, rows.indices[kept])), shape=rows.shape)


def directions(texts: csr_array, examples: csr_array | None) -> csr_array:
    """The directions of labels by the features of their texts, and the sums of those of their examples."""
    found = unit_rows(texts)
    return found if examples is None else unit_rows(found + unit_rows(examples))


def pairs_of(
    rows: csr_array, clusters: NDArray[np.int32], truth: csr_array, tree: LabelTree, labels: NDArray[Any], directions: csr_array
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The scalar products of documents with the texts of some labels in their matched clusters, and whether labels are true."""
    count = len(tree.starts[-1]) - 1
    places = np.repeat(np.arange(len(rows.indptr) - 1), clusters.shape[1]), clusters.ravel()
    reached = csr_array((np.ones(clusters.size, np.float32), places), shape=(len(clusters), count))
    mine = csr_array(reached[:, tree.leaf_of[labels]])  # (documents, labels)
    products = (rows @ directions.T).toarray()
    document, label = mine.nonzero()
    return products[document, label], np.asarray(truth[:, labels].toarray() > 0)[document, label]


class Read(Protocol):
    """Texts that a model has read: their features, and log P(cluster | text)."""

    rows: csr_array
    logs: NDArray[np.float32]


def placed(texts: Read, shown: tuple[Read, csr_array] | None) -> tuple[csr_array, NDArray[np.int64]]:
    """The directions of labels and their clusters, by their texts and by examples, with whose they are (labels, examples)."""
    if shown is None:
        return directions(texts.rows, None), texts.logs.argmax(axis=1)
    examples, of_label = shown
    logs = texts.logs + of_label @ examples.logs.astype(np.float64)
    return directions(texts.rows, csr_array(of_label @ examples.rows)), logs.argmax(axis=1)


def widened(ranker: TreeRanker, clusters: NDArray[Any], rows: csr_array, margins: Sequence[TextMargin]) -> TreeRanker:
    """The same ranker with more labels, which come last: each in a cluster, with a direction (labels, features) and a margin."""
    slopes, biases = np.array(margins, dtype=np.float32).T
    weights = csr_array(rows.multiply(slopes[:, None]))
    tree, chunks = ranker.tree, ranker.chunks[-1]
    starts, order = tree.starts[-1], tree.order
    number = np.bincount(clusters, minlength=len(starts) - 1)
    grown = starts + np.concatenate([[0], np.cumsum(number)])
    where = np.argsort(clusters, kind="stable")
    names = np.insert(order, starts[1:][clusters[where]], len(order) + where.astype(np.int32))
    nodes = [_node(chunks, node, int(starts[node]), int(starts[node + 1])) for node in range(len(starts) - 1)]
    for node in np.flatnonzero(number).tolist():
        own = np.flatnonzero(clusters == node)
        nodes[node] = _with_children(nodes[node], csr_array(weights[own]), biases[own])
    found = LabelTree(names.astype(np.int32), [*tree.starts[:-1], grown.astype(np.int64)])
    return TreeRanker(found, [*ranker.chunks[:-1], Chunks.of(nodes)], ranker.n_features)


def _node(chunks: Chunks, node: int, first: int, last: int) -> tuple[Any, ...]:
    """The rows, their starts, children, weights and biases of one node."""
    rows = slice(*chunks.row_starts[node : node + 2].tolist())
    entries = slice(*chunks.entry_starts[node : node + 2].tolist())
    return chunks.rows[rows], chunks.starts[rows], chunks.children[entries], chunks.weights[entries], chunks.bias[first:last]


def _with_children(node: tuple[Any, ...], weights: csr_array, bias: NDArray[np.float32]) -> tuple[Any, ...]:
    """The node with more children, whose numbers follow."""
    rows, starts, children, values, known = node
    sizes = np.diff(np.append(starts.astype(np.int64), len(children)))
    new = np.repeat(np.arange(len(bias)), np.diff(weights.indptr)) + len(known)
    feature = np.concatenate([np.repeat(rows, sizes), weights.indices])
    child = np.concatenate([children, new.astype(children.dtype)])
    value = np.concatenate([values, weights.data.astype(values.dtype)])
    order = np.lexsort((child, feature))
    found, first = np.unique(feature[order], return_index=True)
    parts = found.astype(np.int32), first.astype(np.uint32), child[order], value[order]
    return *parts, np.concatenate([known, bias])
