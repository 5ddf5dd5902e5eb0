"""Training of a label tree, level by level.

Every node has one-versus-all separators of its children (squared hinge, dual coordinate descent). They are trained on the
documents that belong to the node (teacher negatives) and optionally on those that the levels above wrongly assign to it
(matcher negatives).
"""

from __future__ import annotations

from collections.abc import Callable
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
from polytag.work.workplace import HERE, Workplace
from polytag.xmc.index import LabelTree
from polytag.xmc.node_training import joined_root, solve_pieces
from polytag.xmc.rank import WORTH, Chunks, TreeRanker


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


def shared_rows(problem: Problem, place: Workplace) -> Any:
    """Give the features of all documents to the place where nodes are trained."""
    state = {"rows": list(problem.arrays), "squares": problem.squares, "features": int(problem.features.shape[1])}
    return place.share(state)


def tree_weights(problem: Problem, solver: SolverSettings, ranking: RankSettings) -> NDArray[np.float64]:
    """The weights of every label's positives, from a model's settings."""
    n, n_labels = (int(size) for size in problem.truth.shape)
    counts = np.bincount(problem.truth.indices, minlength=n_labels)
    return rarity_weights(counts, n, solver.balance, propensity=ranking.propensity)


class TreeTraining:
    """The training of one tree; each depth may be a checkpoint."""

    def __init__(
        self,
        problem: Problem,
        tree: LabelTree,
        settings: Ranking,
        positives: NDArray[Any] | None = None,
        place: Workplace = HERE,
        rows: Any = None,
    ) -> None:
        """Store the documents, the tree, the settings and the weights of each label's positives.

        ``place`` is where nodes are trained. ``rows`` is what ``shared_rows`` returned, if the place has the documents already.
        """
        self.problem, self.tree, self.settings = problem, tree, settings
        self.place, self.rows = place, shared_rows(problem, place) if rows is None else rows
        self.truth = tree.levels(problem.truth)
        unknown = [None] * len(self.truth) if problem.unknown is None else tree.levels(problem.unknown)
        self.judged = [_judged(problem, pairs, truth) for pairs, truth in zip(unknown, self.truth, strict=True)]
        self.positives = np.ones(len(tree.order)) if positives is None else positives
        self.arrays = unlocked_rows(problem.features)

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
        """Train the separators of all nodes at one depth, wherever pieces of work run."""
        s, starts, truth = self.settings, self.tree.starts[depth], self.truth[depth]
        last = depth + 1 == len(self.tree.starts)
        strength = (s.c * (self.positives[self.tree.order] if last else np.ones(starts[-1]))).astype(np.float32)
        t_indptr, t_indices = truth.indptr.astype(np.int64), truth.indices.astype(np.int32, copy=False)
        options = {name: getattr(s, name) for name in ("c", "tolerance", "max_passes", "prune", "seed", "half")}
        level: dict[str, Any] = {"given": [t_indptr, t_indices, *self.judged[depth]], "strength": strength, "starts": starts}
        level |= {"options": options, "root": depth == 0}
        if depth == 0:
            pieces = np.arange(0, int(starts[-1]), WIDTH)
            return Chunks.of([joined_root(self._solved(level, pieces), half=s.half)])
        indptr, documents = self._documents(depth, reached)
        level |= {"indptr": indptr.astype(np.int64), "documents": documents}
        order = np.argsort(-np.diff(indptr), kind="stable")  # largest nodes first, so that no thread is idle at the end
        trained = self._solved(level, order)
        back = np.argsort(order)
        return Chunks.of([trained[at] for at in back])

    def _solved(self, level: dict[str, Any], pieces: NDArray[Any]) -> list[tuple[Any, ...]]:
        """The trained pieces of a level, in their order; each job does every n-th of them."""
        place = self.place
        shared, count = place.share(level), min(place.pieces, len(pieces))
        jobs = [{"pieces": pieces[at::count]} for at in range(count)]
        futures = [place.submit(solve_pieces, job, self.rows, shared, threads=1) for job in jobs]
        found: list[Any] = [None] * len(pieces)
        for at, future in enumerate(futures):
            found[at::count] = future.result()["solved"]
        return found


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
