"""Linear separators over a label tree, and the beam that finds a way through them (X-BERT, section 3.4).

P(label | x) is the product of what the margins on the way to the label are worth. Every label stands in one cluster of a tree,
so the sum over clusters of equation 1 has one term per tree; several trees are averaged.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.linear.parallel import in_threads, thread_count
from polytag.xmc.beam import beam_step, entries_fit, merge_trees
from polytag.xmc.index import LabelTree
from polytag.xmc.views import unlocked, unlocked_rows

WORTH = {"sigmoid": 0, "l1-hinge": 1, "l2-hinge": 2, "l3-hinge": 3, "l4-hinge": 4}
TILE = 1024  # documents that go down the tree together in one thread


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
    """One array of -1 per thread and number of features, which kernels leave as they found it."""

    def __init__(self) -> None:
        """Begin with none."""
        self.place = np.empty(0, dtype=np.int32)

    def get(self, n_features: int) -> NDArray[np.int32]:
        """An array of -1, one for each feature."""
        if len(self.place) != n_features:
            self.place = np.full(n_features, -1, dtype=np.int32)
        return self.place


SCRATCH = Scratch()


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
        labels, values = np.empty((n, k), dtype=np.int32), np.empty((n, k), dtype=np.float32)
        size = max(1, min(TILE, -(-n // thread_count())))

        def tile(start: int) -> None:
            stop = min(start + size, n)
            labels[start:stop], values[start:stop] = self._descend(arrays, start, stop, k, beam, WORTH[worth])

        for _ in in_threads(tile, range(0, n, size)):
            pass
        return labels, values

    def _descend(self, arrays: Any, start: int, stop: int, k: int, beam: int, kind: int) -> tuple[Any, Any]:
        nodes, scores = np.zeros((stop - start, 1), dtype=np.int32), np.zeros((stop - start, 1), dtype=np.float32)
        for depth in range(len(self.chunks)):
            wanted = k if depth + 1 == len(self.tree.starts) else beam
            nodes, scores = self.step(arrays, start, depth, nodes, scores, wanted, kind)
        return nodes, scores

    def step(self, arrays: Any, start: int, depth: int, nodes: Any, scores: Any, wanted: int, kind: int) -> tuple[Any, Any]:
        """One depth further: the ``wanted`` best children of the nodes that documents start, start + 1, ... have reached."""
        starts = self.tree.starts[depth]
        last = depth + 1 == len(self.tree.starts)
        names = self.tree.order if last else np.arange(starts[-1], dtype=np.int32)
        found = np.empty((len(nodes), wanted), dtype=np.int32)
        values = np.empty((len(nodes), wanted), dtype=np.float32)
        place = SCRATCH.get(self.n_features)
        beam_step(*arrays, start, nodes, scores, starts, *self.chunks[depth].arrays, kind, names, place, found, values)
        return found, values


@dataclass(frozen=True)
class Forest:
    """Several trees over the same labels; their probabilities are averaged."""

    rankers: list[TreeRanker]

    def best(self, features: csr_array, k: int, beam: int, worth: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best labels of every document, -1 to fill, and the logs of their probabilities (equation 1)."""
        if len(self.rankers) == 1:
            return self.rankers[0].best(features, k, beam, worth)
        n = int(features.shape[0])
        found = [ranker.best(features, k, beam, worth) for ranker in self.rankers]
        labels, values = np.empty((n, k), dtype=np.int32), np.empty((n, k), dtype=np.float32)
        names, logs = np.stack([f[0] for f in found]), np.stack([f[1] for f in found])  # (trees, documents, k)
        size = max(1, min(TILE, -(-n // thread_count())))

        def tile(start: int) -> None:
            part = slice(start, start + size)
            merge_trees(names[:, part], logs[:, part], labels[part], values[part])

        for _ in in_threads(tile, range(0, n, size)):
            pass
        return labels, values

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
