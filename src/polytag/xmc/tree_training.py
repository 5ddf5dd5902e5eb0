"""Training of a label tree, level by level.

Every node has one-versus-all separators of its children (squared hinge, dual coordinate descent). They are trained on the
documents that belong to the node (teacher negatives) and optionally on those that the levels above wrongly assign to it
(matcher negatives).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.groups.solver_settings import SolverSettings
from polytag.config.groups.tree_settings import RankSettings
from polytag.kernels.array_views import unlocked_rows
from polytag.kernels.sparse_rows import without
from polytag.kernels.threads import in_threads, tile_size
from polytag.kernels.vectors import WIDTH
from polytag.linear.class_weights import rarity_weights
from polytag.linear.svm import Problem
from polytag.xmc.index import LabelTree
from polytag.xmc.node_kernels import by_feature, gather, solve_children
from polytag.xmc.rank import SCRATCH, WORTH, Chunks, TreeRanker


@dataclass(frozen=True)
class Ranking:
    """Settings of the separators: training, and the function from margins to probabilities."""

    c: float = 0.5
    negatives: str = "teacher"
    prune: float = 0.1
    beam: int = 10
    worth: str = "l3-hinge"
    tolerance: float = 0.3
    max_passes: int = 20
    half: bool = True
    seed: int = 0

    @classmethod
    def of(cls, solver: SolverSettings, ranking: RankSettings, beam: int, seed: int) -> Ranking:
        """From the setting groups of a model."""
        return cls(
            c=solver.c[0], negatives=ranking.negatives, prune=solver.prune, beam=beam, worth=ranking.worth,
            tolerance=solver.tolerance, half=ranking.half, seed=seed,
        )  # fmt: skip


def tree_weights(problem: Problem, solver: SolverSettings, ranking: RankSettings) -> NDArray[np.float64]:
    """The weights of every label's positives, from a model's settings."""
    n, n_labels = (int(size) for size in problem.truth.shape)
    counts = np.bincount(problem.truth.indices, minlength=n_labels)
    return rarity_weights(counts, n, solver.balance, propensity=ranking.propensity)


class TreeTraining:
    """The training of one tree; each depth may be a checkpoint."""

    def __init__(self, problem: Problem, tree: LabelTree, settings: Ranking, positives: NDArray[Any] | None = None) -> None:
        """Store the documents, the tree, the settings and the weights of each label's positives."""
        self.problem, self.tree, self.settings = problem, tree, settings
        self.truth = tree.levels(problem.truth)
        unknown = [None] * len(self.truth) if problem.unknown is None else tree.levels(problem.unknown)
        self.judged = [_judged(problem, pairs, truth) for pairs, truth in zip(unknown, self.truth, strict=True)]
        self.positives = np.ones(len(tree.order)) if positives is None else positives
        self.arrays, self.squares = unlocked_rows(problem.features), problem.squares

    def run(self, stage: Callable[[int, Callable[[], Chunks]], Chunks]) -> TreeRanker:
        """Train level by level; ``stage(depth, make)`` returns the separators of a depth, from a checkpoint or by ``make()``."""
        s, n = self.settings, int(self.problem.features.shape[0])
        ranker = TreeRanker(self.tree, [], int(self.problem.features.shape[1]))
        reached = np.zeros((n, 1), dtype=np.int32), np.zeros((n, 1), dtype=np.float32)
        for depth in range(len(self.tree.starts)):
            nodes = reached[0] if s.negatives == "matcher" else None
            ranker.chunks.append(stage(depth, partial(self._depth, depth, nodes)))
            if s.negatives == "matcher" and depth + 1 < len(self.tree.starts):
                reached = self._onward(ranker, depth, *reached)
        return ranker

    def leaves(self, reached: NDArray[np.int32] | None) -> Chunks:
        """Train the separators of the last depth only, for a tree whose leaves a network matches.

        ``reached`` (documents, beam), padded with -1, are the leaves that the network matches. Documents that it wrongly assigns
        to a leaf are negatives there, in addition to those that belong to the leaf.
        """
        return self._depth(len(self.tree.starts) - 1, reached)

    def _onward(self, ranker: TreeRanker, depth: int, nodes: Any, scores: Any) -> tuple[Any, Any]:
        """The beam of every training document at the next depth."""
        beam, kind = self.settings.beam, WORTH[self.settings.worth]
        size = tile_size(len(nodes), ranker.most_documents(beam))

        def tile(start: int) -> tuple[Any, Any]:
            stop = start + size
            return ranker.step(self.arrays, start, depth, nodes[start:stop], scores[start:stop], beam, kind)

        parts = list(in_threads(tile, range(0, len(nodes), size)))
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _documents(self, depth: int, reached: NDArray[np.int32] | None) -> tuple[NDArray[Any], NDArray[Any]]:
        """The training documents of every node at a depth below the root: indptr and sorted indices."""
        n = int(self.problem.features.shape[0])
        count = len(self.tree.starts[depth]) - 1
        belongs = self.truth[depth - 1]
        if reached is not None:
            row = np.repeat(np.arange(n), (reached >= 0).sum(axis=1))
            sent = csr_array((np.ones(len(row), np.float32), (row, reached[reached >= 0])), shape=(n, count))
            belongs = csr_array(belongs + sent)
        columns = belongs.tocsc()
        columns.sort_indices()
        return columns.indptr, columns.indices.astype(np.int32, copy=False)

    def _depth(self, depth: int, reached: NDArray[np.int32] | None) -> Chunks:
        """Train the separators of all nodes at one depth, largest nodes first, so that no thread is idle at the end."""
        s, starts, truth = self.settings, self.tree.starts[depth], self.truth[depth]
        last = depth + 1 == len(self.tree.starts)
        strength = (s.c * (self.positives[self.tree.order] if last else np.ones(starts[-1]))).astype(np.float32)
        t_indptr, t_indices = truth.indptr.astype(np.int64), truth.indices.astype(np.int32, copy=False)
        given = (t_indptr, t_indices, *self.judged[depth])
        options = (strength, s.c, s.tolerance, s.max_passes, s.prune, s.seed)
        if depth == 0:
            return Chunks.of([self._packed(self._root(given, int(starts[-1]), options))])
        indptr, documents = self._documents(depth, reached)

        def node(p: int) -> tuple[Any, ...]:
            own = documents[indptr[p] : indptr[p + 1]]
            *rows, names = self._gathered(own)
            found, bias = self._solved(rows, names, own, given, int(starts[p]), int(starts[p + 1]), options)
            return self._packed((*_by_feature(found, names), bias))

        order = np.argsort(-np.diff(indptr), kind="stable")
        trained = list(in_threads(node, order.tolist()))
        back = np.argsort(order)
        return Chunks.of([trained[at] for at in back])

    def _root(self, given: Sequence[NDArray[Any]], children: int, options: Any) -> tuple[Any, ...]:
        """Train the root, which has all documents: threads share its blocks of children."""
        n, n_features = (int(size) for size in self.problem.features.shape)
        documents, names = np.arange(n, dtype=np.int32), np.arange(n_features, dtype=np.int32)
        bias = np.empty(children, dtype=np.float32)

        def block(first: int) -> tuple[Any, ...]:
            stop = min(first + WIDTH, children)
            (features, own, values), bias[first:stop] = self._solved(self.arrays, names, documents, given, first, stop, options)
            return features, own + np.uint16(first), values

        parts = list(in_threads(block, range(0, children, WIDTH)))
        entries = [np.concatenate([part[column] for part in parts]) for column in range(3)]
        return (*_by_feature(entries, names), bias)

    def _gathered(self, documents: NDArray[np.int32]) -> tuple[NDArray[Any], ...]:
        """The rows of some documents, with the features that occur renumbered, and the names of these features."""
        n_features, starts = int(self.problem.features.shape[1]), self.arrays[0]
        size = int((starts[documents + 1] - starts[documents]).sum())
        own, features = np.empty(len(documents) + 1, np.int64), np.empty(min(size, n_features), np.int32)
        columns, values = np.empty(size, np.int32), np.empty(size, np.float32)
        used = gather(*self.arrays, documents, SCRATCH.get(n_features), own, columns, values, features)
        return own, columns, values, features[:used]

    def _solved(
        self, rows: Sequence[NDArray[Any]], names: NDArray[Any], documents: NDArray[Any], given: Sequence[NDArray[Any]],
        first: int, last: int, options: Any,
    ) -> tuple[tuple[NDArray[Any], ...], NDArray[np.float32]]:  # fmt: skip
        """The separators of children first..last: entries (feature, child, weight), and the bias of the children.

        ``given`` are the true pairs, the pairs that nobody judged, and 1 / weight of the documents.
        """
        n, most, bias = len(documents), len(names) * (last - first), np.empty(last - first, dtype=np.float32)
        signs, alpha = np.empty((n, WIDTH), dtype=np.float32), np.empty((n, WIDTH), dtype=np.float32)
        room = np.empty((8, WIDTH), np.float32), np.zeros((0, 0), np.float32)
        found = np.empty(most, np.int32), np.empty(most, np.uint16), np.empty(most, np.float32)  # memory is used when written to
        count = solve_children(
            *rows, self.squares[documents], documents, *given, first, last, *options, bias, np.empty(n, np.int32), signs, alpha,
            np.empty((len(names), WIDTH), dtype=np.float32), *room, *found,
        )  # fmt: skip
        return tuple(part[:count].copy() for part in found), bias

    def _packed(self, node: tuple[Any, ...]) -> tuple[Any, ...]:
        """Convert the weights of a trained node to the stored precision."""
        rows, starts, children, weights, bias = node
        return rows, starts, children, weights.astype(np.float16 if self.settings.half else np.float32), bias


def _by_feature(entries: Sequence[NDArray[Any]], names: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Entries (feature, child, weight) as rows: feature names, offsets, children, weights."""
    size = len(entries[0])
    rows, starts = np.empty(min(len(names), size), np.int32), np.empty(min(len(names), size), np.uint32)
    children, weights = np.empty(size, np.uint16), np.empty(size, np.float32)
    used = by_feature(*entries, names, np.zeros(len(names) + 1, dtype=np.int64), rows, starts, children, weights)
    return rows[:used].copy(), starts[:used].copy(), children, weights


def _judged(problem: Problem, unknown: csr_array | None, truth: csr_array) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """For the kernels: the pairs of a depth that nobody judged, and 1 / weight of the documents; empty if there are none.

    A cluster with a true label is judged, whatever is unknown about its other labels.
    """
    indptr, indices = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    if unknown is not None:
        left = without(unknown, truth)
        indptr, indices = left.indptr.astype(np.int64), left.indices.astype(np.int32)
    easier = np.zeros(0, dtype=np.float32) if problem.weights is None else (1 / problem.weights).astype(np.float32)
    return indptr, indices, easier
