"""Linear separators over a label tree, and the beam that finds a way through them (X-BERT, section 3.4).

P(label | x) is the product of what the margins on the way to the label are worth. Every label stands in one cluster of a tree,
so the sum over clusters of equation 1 has one term per tree; several trees are averaged. Where something else than the tree's own
separators finds the clusters (a network), its log P(cluster | x) takes the place of the way from the root to them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.linear.parallel import in_threads, tile_size
from polytag.linear.simd import WIDTH, aligned_zeros
from polytag.xmc.beam import ROOM, beam_step, entries_fit, given_step, mean_of_searches
from polytag.xmc.index import LabelTree
from polytag.xmc.views import unlocked, unlocked_rows

WORTH = {"sigmoid": 0, "l1-hinge": 1, "l2-hinge": 2, "l3-hinge": 3, "l4-hinge": 4}
TILE = 4096  # most documents that go down the tree together in one thread
_MARGINS = 3 << 20  # about how many margins they may have at a time


@dataclass(frozen=True)
class Chunks:
    """The separators of all nodes of one depth: per node sorted rows, one for each feature that has weights.

    Node p has the rows ``row_starts[p]`` to ``row_starts[p + 1]``, each naming its feature; the entries (child within the
    node, weight) of row r begin at ``entry_starts[p] + starts[r]``. ``weights`` are float16 or float32.
    """

    row_starts: NDArray[np.int64]
    entry_starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    starts: NDArray[np.uint32]
    children: NDArray[Any]
    weights: NDArray[Any]
    bias: NDArray[np.float32]

    @cached_property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """As the kernels take them."""
        half = self.weights.dtype == np.float16
        weights, kind = (self.weights.view(np.uint16), np.uint16) if half else (self.weights, np.float32)
        parts = (self.row_starts, self.entry_starts, self.rows, self.starts, self.children, weights, self.bias)
        kinds = (np.int64, np.int64, np.int32, np.uint32, np.uint16, kind, np.float32)
        return tuple(unlocked(part, kind) for part, kind in zip(parts, kinds, strict=True))

    @classmethod
    def of(cls, nodes: list[tuple[Any, ...]]) -> Chunks:
        """Put the nodes of one depth together, emptying the list on the way."""
        row_starts = np.concatenate([[0], np.cumsum([len(node[0]) for node in nodes])]).astype(np.int64)
        entry_starts = np.concatenate([[0], np.cumsum([len(node[2]) for node in nodes])]).astype(np.int64)
        columns = [np.concatenate([node[part] for node in nodes]) for part in range(5)]
        nodes.clear()
        return cls(row_starts, entry_starts, *columns)

    @classmethod
    def none(cls, children: int) -> Chunks:
        """A root without weights, for a tree whose first level is found by something else."""
        bounds, nothing = np.zeros(2, dtype=np.int64), np.empty(0, dtype=np.uint16)
        rows, starts, bias = np.empty(0, np.int32), np.empty(0, np.uint32), np.zeros(children, np.float32)
        return cls(bounds, bounds, rows, starts, nothing, nothing.view(np.float16), bias)

    def state(self) -> dict[str, Any]:
        """As arrays."""
        names = ("row_starts", "entry_starts", "rows", "starts", "children", "weights", "bias")
        return {name: getattr(self, name) for name in names}

    def check(self, child_starts: NDArray[Any], n_features: int) -> None:
        """Raise unless everything fits the tree: compiled code trusts it, and an artefact may come from a stranger."""
        sound = len(self.row_starts) == len(self.entry_starts) == len(child_starts) and len(self.bias) == child_starts[-1]
        sound = sound and self.row_starts[-1] == len(self.rows) == len(self.starts)
        sound = sound and self.entry_starts[-1] == len(self.children) == len(self.weights)
        for starts in (self.row_starts, self.entry_starts):
            sound = sound and starts[0] == 0 and bool((np.diff(starts) >= 0).all())
        if not sound or not entries_fit(unlocked(child_starts, np.int64), *self.arrays[:5], n_features):
            raise ValueError("the weights of a level do not fit its tree")

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Chunks:
        """From arrays, which may be mapped."""
        return cls(**{name: np.asarray(value) for name, value in state.items()})


class Scratch(threading.local):
    """One array of -1 per thread and number of features, which kernels leave as they found it, and room for some rows."""

    def __init__(self) -> None:
        """Begin with none."""
        self.place = np.empty(0, dtype=np.int32)
        self.room = aligned_zeros((ROOM,))

    def get(self, n_features: int) -> NDArray[np.int32]:
        """An array of -1, one for each feature."""
        if len(self.place) != n_features:
            self.place = np.full(n_features, -1, dtype=np.int32)
        return self.place


SCRATCH = Scratch()


def _tiled(
    n: int, k: int, most: int, find: Callable[[int, int], tuple[Any, Any]]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Names and values (documents, k) by ``find(start, stop)``, a tile of at most so many documents at a time in every thread."""
    if n == 1:  # asking for threads takes as long as a step down the tree
        found: tuple[NDArray[np.int32], NDArray[np.float32]] = find(0, 1)
        return found
    labels, values = np.empty((n, k), dtype=np.int32), np.empty((n, k), dtype=np.float32)
    size = tile_size(n, most)

    def tile(start: int) -> None:
        labels[start : start + size], values[start : start + size] = find(start, min(start + size, n))

    for _ in in_threads(tile, range(0, n, size)):
        pass
    return labels, values


@dataclass(frozen=True)
class TreeRanker:
    """A label tree with the separators of every depth."""

    tree: LabelTree
    chunks: list[Chunks]
    n_features: int

    def best(
        self, features: csr_array, k: int, beam: int = 10, worth: str = "l3-hinge"
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best labels that a beam reaches in every document, -1 to fill, and the log of what the way there is worth."""
        n, arrays = int(features.shape[0]), unlocked_rows(features)
        most = self.most_documents(beam)
        return _tiled(n, k, most, lambda start, stop: self._descend(arrays, start, stop, k, beam, WORTH[worth]))

    def clusters(self, features: csr_array, beam: int, worth: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The best leaves of every document, at most ``beam``, -1 to fill, and the logs of what the ways there are worth."""
        beam = min(beam, len(self.tree.starts[-1]) - 1)
        return TreeRanker(self.tree, self.chunks[:-1], self.n_features).best(features, beam, beam, worth)

    def best_below(
        self, features: csr_array, leaves: NDArray[np.int32], logs: NDArray[np.float32], k: int, worth: str
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best labels in leaves (documents, beam), -1 to fill, that something else found; ``logs`` is theirs."""
        n, arrays, last = len(leaves), unlocked_rows(features), len(self.tree.starts) - 1

        def tile(start: int, stop: int) -> tuple[Any, Any]:
            return self.step(arrays, start, last, leaves[start:stop], logs[start:stop], k, WORTH[worth])

        return _tiled(n, k, self.most_documents(leaves.shape[1]), tile)

    def given(self, features: csr_array, labels: csr_array, worth: str, first: NDArray[np.float32] | None = None) -> csr_array:
        """The log of P(label | x) of just these labels, whether a beam would reach them or not.

        ``first`` (documents, nodes below the root) holds the logs of the first level where something else finds it.
        """
        levels, n, arrays = self.tree.levels(labels), int(labels.shape[0]), unlocked_rows(features)
        above = csr_array((np.zeros(n, np.float32), np.zeros(n, np.int32), np.arange(n + 1)), shape=(n, 1))
        if first is not None:
            above, levels = levels[0], levels[1:]
            above.data = first[np.repeat(np.arange(n), np.diff(above.indptr)), above.indices]
        for depth, level in enumerate(levels, start=len(self.tree.starts) - len(levels)):
            level.data = self._given_below(arrays, depth, above, level, WORTH[worth])
            above = level
        found = csr_array((above.data, self.tree.order[above.indices], above.indptr), shape=labels.shape)
        found.sort_indices()
        return found

    def _given_below(self, arrays: Any, depth: int, above: csr_array, level: csr_array, kind: int) -> NDArray[np.float32]:
        """One depth further for nodes that are given."""
        values, n = np.empty(level.nnz, dtype=np.float32), int(level.shape[0])
        wanted_starts, wanted, _ = unlocked_rows(level)
        known, starts, size = unlocked_rows(above), self.tree.starts[depth], tile_size(n, TILE)

        def tile(start: int) -> None:
            given_step(
                *arrays, start, min(start + size, n), *known, wanted_starts, wanted, starts, *self.chunks[depth].arrays, kind,
                SCRATCH.get(self.n_features), SCRATCH.room, self._margins(depth, 1), values,
            )  # fmt: skip

        for _ in in_threads(tile, range(0, n, size)):
            pass
        return values

    def _descend(self, arrays: Any, start: int, stop: int, k: int, beam: int, kind: int) -> tuple[Any, Any]:
        nodes, scores = np.zeros((stop - start, 1), dtype=np.int32), np.zeros((stop - start, 1), dtype=np.float32)
        for depth in range(len(self.chunks)):
            wanted = k if depth + 1 == len(self.chunks) else beam
            nodes, scores = self.step(arrays, start, depth, nodes, scores, wanted, kind)
        return nodes, scores

    def step(self, arrays: Any, start: int, depth: int, nodes: Any, scores: Any, wanted: int, kind: int) -> tuple[Any, Any]:
        """One depth further: the ``wanted`` best children of the nodes that documents start, start + 1, ... have reached."""
        starts, names = self.tree.starts[depth], self._names[depth]
        found = np.empty((len(nodes), wanted), dtype=np.int32)
        values = np.empty((len(nodes), wanted), dtype=np.float32)
        place, margins = SCRATCH.get(self.n_features), self._margins(depth, nodes.size)
        beam_step(
            *arrays, start, nodes, scores, starts, *self.chunks[depth].arrays, kind, names, place, SCRATCH.room, margins, found,
            values,
        )  # fmt: skip
        return found, values

    def most_documents(self, beam: int) -> int:
        """How many documents may go down the tree together, by the room that their margins take."""
        first, widest = self._widest
        return min(TILE, max(1, _MARGINS // max(first, beam * widest, 1)))

    def _margins(self, depth: int, count: int) -> NDArray[np.float32]:
        """Room for the margins of so many nodes; numpy asks the system for large pages, compiled code does not."""
        return np.empty((count, self._widths[depth]), dtype=np.float32)

    @cached_property
    def _widths(self) -> list[int]:
        """For every depth the most children that a node has, rounded up to whole vectors."""
        return [-(-int(np.diff(starts).max(initial=0)) // WIDTH) * WIDTH for starts in self.tree.starts]

    @cached_property
    def _widest(self) -> tuple[int, int]:
        """The width at the root and the largest below it."""
        return self._widths[0], max(self._widths[1:], default=0)

    @cached_property
    def _names(self) -> list[NDArray[np.int32]]:
        """For every depth what the children are called: inner nodes by their numbers."""
        return [*(np.arange(starts[-1], dtype=np.int32) for starts in self.tree.starts[:-1]), self.tree.order]


@dataclass(frozen=True)
class Forest:
    """Several trees over the same labels; their probabilities are averaged."""

    rankers: list[TreeRanker]

    def best(self, features: csr_array, k: int, beam: int, worth: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best labels of every document, -1 to fill, and the logs of their probabilities (equation 1).

        A label counts as 0 in a tree that has it not among its k best: to ask every tree about what the others have found costs
        several times the search itself, and ranks no better. ``given`` does ask.
        """
        if len(self.rankers) == 1:
            return self.rankers[0].best(features, k, beam, worth)
        parts = [ranker.best(features, k, beam, worth) for ranker in self.rankers]
        labels, logs = (np.concatenate([part[side] for part in parts], axis=1) for side in (0, 1))

        def tile(start: int, stop: int) -> tuple[Any, Any]:
            found, values = np.empty((stop - start, k), dtype=np.int32), np.empty((stop - start, k), dtype=np.float32)
            mean_of_searches(labels[start:stop], logs[start:stop], len(parts), found, values)
            return found, values

        return _tiled(len(labels), k, TILE, tile)

    def given(self, features: csr_array, labels: csr_array, worth: str) -> csr_array:
        """The logs of the probabilities of just these labels, by the mean over all trees."""
        parts = [ranker.given(features, labels, worth) for ranker in self.rankers]
        if len(parts) > 1:
            mean = np.mean([np.exp(part.data.astype(np.float64)) for part in parts], axis=0)
            parts[0].data = np.log(np.maximum(mean, 1e-37)).astype(np.float32)
        return parts[0]

    def state(self) -> dict[str, Any]:
        """As arrays."""
        return {
            "n_features": self.rankers[0].n_features,
            "trees": [{"tree": one.tree.state(), "chunks": [c.state() for c in one.chunks]} for one in self.rankers],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Forest:
        """From arrays, which may be mapped; compiled code trusts that they fit together."""
        n_features = int(state["n_features"])
        rankers = []
        for part in state["trees"]:
            tree = LabelTree.from_state(part["tree"])
            chunks = [Chunks.from_state(chunk) for chunk in part["chunks"]]
            if len(chunks) != len(tree.starts):
                raise ValueError("a tree has weights for another number of levels")
            for chunk, starts in zip(chunks, tree.starts, strict=True):
                chunk.check(starts, n_features)
            rankers.append(TreeRanker(tree, chunks, n_features))
        if not rankers or any(len(one.tree.order) != len(rankers[0].tree.order) for one in rankers):
            raise ValueError("its trees are about different labels")
        return cls(rankers)
