"""Training a label tree, one depth after the other.

At every node the children are told apart by one-versus-all separators (squared hinge, dual coordinate descent), trained on the
documents that belong to the node (the teacher's negatives) and, if asked, on those that the levels above wrongly send there
(the matcher's).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.linear.parallel import in_threads, tile_size
from polytag.linear.simd import WIDTH
from polytag.linear.svm import Problem
from polytag.metrics_ranking import propensities
from polytag.xmc.index import LabelTree
from polytag.xmc.kernels import by_feature, solve_children, train_node
from polytag.xmc.rank import SCRATCH, WORTH, Chunks, TreeRanker
from polytag.xmc.views import unlocked_rows

NEGATIVES = ("teacher", "matcher")


@dataclass(frozen=True)
class Ranking:
    """How the separators of a tree are trained and how their margins are used."""

    c: float = 0.5
    negatives: str = "teacher"
    prune: float = 0.1
    beam: int = 10
    worth: str = "l3-hinge"
    tolerance: float = 0.3
    max_passes: int = 20
    half: bool = True
    seed: int = 0


def positive_weights(counts: NDArray[Any], documents: int, balance: float, propensity: bool) -> NDArray[np.float64]:
    """How much the positive documents of every label count: (documents / positives)^balance, over the label's propensity."""
    weights = (documents / np.maximum(counts, 1)) ** balance
    return np.asarray(weights / propensities(counts, documents) if propensity else weights)


def train_ranker(problem: Problem, tree: LabelTree, settings: Ranking, positives: NDArray[Any] | None = None) -> TreeRanker:
    """Train every depth of the tree, one after the other; ``positives`` weighs the positive documents of each label."""
    return TreeTraining(problem, tree, settings, positives).run(lambda depth, make: make())


class TreeTraining:
    """The training of one tree; each depth is made by a function that may keep it as a checkpoint."""

    def __init__(self, problem: Problem, tree: LabelTree, settings: Ranking, positives: NDArray[Any] | None = None) -> None:
        """Take the documents, the tree and the settings."""
        self.problem, self.tree, self.settings = problem, tree, settings
        self.truth = tree.levels(problem.truth)
        self.positives = np.ones(len(tree.order)) if positives is None else positives
        self.arrays, self.squares = unlocked_rows(problem.features), problem.squares

    def run(self, stage: Callable[[int, Callable[[], Chunks]], Chunks]) -> TreeRanker:
        """Train depth by depth; ``stage(depth, make)`` gives the separators of a depth, by calling make or from a checkpoint."""
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
        """The separators of the last depth alone, where another matcher leads documents to the leaves.

        ``reached`` (documents, beam), -1 to fill, are the leaves that it finds: documents that it wrongly sends to a leaf are
        negatives there, beside those that belong to the leaf.
        """
        return self._depth(len(self.tree.starts) - 1, reached)

    def _onward(self, ranker: TreeRanker, depth: int, nodes: Any, scores: Any) -> tuple[Any, Any]:
        """Where the beam of every training document gets to."""
        beam, kind = self.settings.beam, WORTH[self.settings.worth]
        size = tile_size(len(nodes), ranker.most_documents(beam))

        def tile(start: int) -> tuple[Any, Any]:
            stop = start + size
            return ranker.step(self.arrays, start, depth, nodes[start:stop], scores[start:stop], beam, kind)

        parts = list(in_threads(tile, range(0, len(nodes), size)))
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _documents(self, depth: int, reached: NDArray[np.int32] | None) -> tuple[NDArray[Any], NDArray[Any]]:
        """For every node of a depth below the root the documents to train its children on: indptr and sorted indices."""
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
        """The separators of all nodes of one depth, the largest nodes first so that no thread waits at the end."""
        s, starts, truth = self.settings, self.tree.starts[depth], self.truth[depth]
        last = depth + 1 == len(self.tree.starts)
        strength = (s.c * (self.positives[self.tree.order] if last else np.ones(starts[-1]))).astype(np.float32)
        t_indptr, t_indices = truth.indptr.astype(np.int64), truth.indices.astype(np.int32, copy=False)
        options = (strength, s.c, s.tolerance, s.max_passes, s.prune, s.seed)
        if depth == 0:
            return Chunks.of([self._packed(self._root(t_indptr, t_indices, int(starts[-1]), options))])
        indptr, documents = self._documents(depth, reached)

        def node(p: int) -> tuple[Any, ...]:
            own = documents[indptr[p] : indptr[p + 1]]
            trained = train_node(
                *self.arrays, self.squares, own, t_indptr, t_indices, starts[p], starts[p + 1], *options,
                SCRATCH.get(int(self.problem.features.shape[1])),
            )  # fmt: skip
            return self._packed(trained)

        order = np.argsort(-np.diff(indptr), kind="stable")
        trained = list(in_threads(node, order.tolist()))
        back = np.argsort(order)
        return Chunks.of([trained[at] for at in back])

    def _root(self, t_indptr: Any, t_indices: Any, children: int, options: Any) -> tuple[Any, ...]:
        """The root has all documents: its blocks of children share the threads."""
        n, n_features = (int(size) for size in self.problem.features.shape)
        documents = np.arange(n, dtype=np.int32)
        bias = np.empty(children, dtype=np.float32)

        def block(first: int) -> tuple[Any, ...]:
            stop = min(first + WIDTH, children)
            found = solve_children(
                *self.arrays, n_features, self.squares, documents, t_indptr, t_indices, first, stop, *options,
                bias[first:stop],
            )  # fmt: skip
            return found[0], found[1] + np.uint16(first), found[2]

        parts = list(in_threads(block, range(0, children, WIDTH)))
        entries = [np.concatenate([part[column] for part in parts]) for column in range(3)]
        return (*by_feature(n_features, *entries, np.arange(n_features, dtype=np.int32)), bias)

    def _packed(self, node: tuple[Any, ...]) -> tuple[Any, ...]:
        """Narrow the types of a trained node."""
        rows, starts, children, weights, bias = node
        return rows, starts, children, weights.astype(np.float16 if self.settings.half else np.float32), bias
