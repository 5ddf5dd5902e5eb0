"""Linear separators over a label tree, and beam search through it (X-BERT, section 3.4).

P(label | x) is the product of the node probabilities on the path from the root to the label; ``worth`` maps a margin to a
probability. Every label is in one cluster of a tree, so the sum over clusters in equation 1 has one term per tree. Several trees
are averaged. If a network is the matcher, its log P(cluster | x) replaces the path from the root to the cluster.
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

from polytag.kernels.array_views import unlocked, unlocked_rows
from polytag.kernels.threads import in_threads, tile_size
from polytag.kernels.vectors import WIDTH, aligned_zeros
from polytag.storage.schema import Array, Count, Items, Sizes, Table
from polytag.storage.state_json import State
from polytag.xmc.index import TREE, LabelTree
from polytag.xmc.search import ROOM, beam_margins, entries_fit, given_step, mean_of_searches
from polytag.xmc.select import choose

WORTH = {"sigmoid": 0, "l1-hinge": 1, "l2-hinge": 2, "l3-hinge": 3, "l4-hinge": 4}
TILE = 4096  # maximum number of documents that a thread searches at once
_MARGINS = 3 << 20  # approximate maximum number of their margins at a time


def chunks_schema(*, half: bool) -> Table:
    """What the separators of one level look like when they are saved; ``chunks_fit`` checks them against the tree."""
    return Table(
        {
            "row_starts": Array(("int64",), ("nodes+1",), order="offsets", total="rows"),
            "entry_starts": Array(("int64",), ("nodes+1",), order="offsets", total="entries"),
            "rows": Array(("int32",), ("rows",), low=0),
            "starts": Array(("uint32",), ("rows",)),
            "children": Array(("uint16",), ("entries",)),
            "weights": Array(("float16",) if half else ("float32",), ("entries",)),
            "bias": Array(("float32",), ("children",)),
        },
        own=frozenset({"nodes", "rows", "entries", "children"}),
    )


def chunks_fit(chunks: State, child_starts: NDArray[Any], n_features: int) -> None:
    """Raise unless the separators of a level fit the nodes of their tree: kernels follow these numbers without a check."""
    starts = unlocked(child_starts, np.int64)
    sound = len(chunks["row_starts"]) == len(starts) and len(chunks["bias"]) == starts[-1]
    arrays = Chunks.from_state(chunks).arrays[:5] if sound else ()
    if not sound or not entries_fit(starts, *arrays, n_features):
        raise ValueError("the weights of a level do not fit its tree")


def clusters_fit(state: State, sizes: Sizes) -> None:
    """Raise unless there is one level of clusters, with separators that use the words, then the numbers of a vector."""
    if len(state["tree"]["starts"]) != 2:
        raise ValueError("its clusters are no clusters of labels")
    chunks_fit(state["chunks"], state["tree"]["starts"][1], sizes["words"] + sizes.get("dense", 0))


def _trees_fit(state: State, sizes: Sizes) -> None:
    for one in state["trees"]:
        if len(one["chunks"]) != len(one["tree"]["starts"]):
            raise ValueError("a tree has weights for another number of levels")
        for chunks, starts in zip(one["chunks"], one["tree"]["starts"], strict=True):
            chunks_fit(chunks, starts, sizes["features"])


def forest_schema(*, half: bool) -> Table:
    """What several trees of separators look like when they are saved."""
    one = Table({"tree": TREE, "chunks": Items(chunks_schema(half=half), least=1)})
    return Table({"n_features": Count("features"), "trees": Items(one, least=1)}, rules=(_trees_fit,))


@dataclass(frozen=True)
class Chunks:
    """The separators of all nodes at one depth: for each node, sorted rows of the features with non-zero weights.

    Node p has the rows ``row_starts[p]`` to ``row_starts[p + 1]``; ``rows`` has their feature ids. The entries (child within the
    node, weight) of row r start at ``entry_starts[p] + starts[r]``. ``weights`` are float16 or float32.
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
        """The arrays in the types that the kernels are compiled for."""
        half = self.weights.dtype == np.float16
        weights, kind = (self.weights.view(np.uint16), np.uint16) if half else (self.weights, np.float32)
        parts = (self.row_starts, self.entry_starts, self.rows, self.starts, self.children, weights, self.bias)
        kinds = (np.int64, np.int64, np.int32, np.uint32, np.uint16, kind, np.float32)
        return tuple(unlocked(part, kind) for part, kind in zip(parts, kinds, strict=True))

    @classmethod
    def of(cls, nodes: list[tuple[Any, ...]]) -> Chunks:
        """Concatenate the nodes of one depth; the list is emptied to save memory."""
        row_starts = np.concatenate([[0], np.cumsum([len(node[0]) for node in nodes])]).astype(np.int64)
        entry_starts = np.concatenate([[0], np.cumsum([len(node[2]) for node in nodes])]).astype(np.int64)
        columns = [np.concatenate([node[part] for node in nodes]) for part in range(5)]
        nodes.clear()
        return cls(row_starts, entry_starts, *columns)

    @classmethod
    def none(cls, children: int) -> Chunks:
        """A root without weights, for a tree whose clusters a network finds."""
        bounds, nothing = np.zeros(2, dtype=np.int64), np.empty(0, dtype=np.uint16)
        rows, starts, bias = np.empty(0, np.int32), np.empty(0, np.uint32), np.zeros(children, np.float32)
        return cls(bounds, bounds, rows, starts, nothing, nothing.view(np.float16), bias)

    def state(self) -> dict[str, Any]:
        """The arrays for an artefact."""
        names = ("row_starts", "entry_starts", "rows", "starts", "children", "weights", "bias")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Chunks:
        """Rebuild from the arrays, which may be memory-mapped."""
        return cls(**{name: np.asarray(value) for name, value in state.items()})


class Scratch(threading.local):
    """Buffers of a thread: an array of -1 with one element per feature, which kernels restore, and what grows on demand."""

    def __init__(self) -> None:
        """Allocate the memory of dense rows; the rest is allocated on demand."""
        self.place = np.empty(0, dtype=np.int32)
        self.room = aligned_zeros((ROOM,))
        self.buffers: dict[tuple[str, Any], NDArray[Any]] = {}

    def get(self, n_features: int) -> NDArray[np.int32]:
        """An array of -1, one element per feature."""
        if len(self.place) != n_features:
            self.place = np.full(n_features, -1, dtype=np.int32)
        return self.place

    def wide(self, width: int) -> NDArray[np.float32]:
        """Dense rows of this width, as many as there is memory for."""
        count = len(self.room) // max(width, 1)
        return self.room[: count * width].reshape(count, width)

    def buffer(self, name: str, kind: Any, size: int) -> NDArray[Any]:
        """At least ``size`` values, whatever they are."""
        known = self.buffers.get((name, kind))
        if known is None or len(known) < size:
            known = self.buffers[name, kind] = np.empty(size + size // 4, dtype=kind)
        return known

    def words(self, indptr: NDArray[np.int64], start: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Slots and factors of the longest of the documents start..stop."""
        longest = int(np.diff(indptr[start : stop + 1]).max(initial=1)) if stop - start > 1 else int(indptr[stop] - indptr[start])
        return self.buffer("slots", np.int32, longest), self.buffer("factors", np.float32, longest)


SCRATCH = Scratch()


def _tiled(
    n: int, k: int, most: int, find: Callable[[int, int], tuple[Any, Any]]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Names and values (documents, k) by ``find(start, stop)``, in parallel tiles of at most ``most`` documents."""
    if n == 1:  # starting a thread takes as long as one step of the search
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
        """The k best labels of every document within the beam, padded with -1, and their log-probabilities."""
        n, arrays = int(features.shape[0]), unlocked_rows(features)
        most = self.most_documents(beam)
        return _tiled(n, k, most, lambda start, stop: self._descend(arrays, start, stop, k, beam, WORTH[worth]))

    def clusters(self, features: csr_array, beam: int, worth: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The best leaves of every document, at most ``beam``, padded with -1, and their log-probabilities."""
        beam = min(beam, len(self.tree.starts[-1]) - 1)
        return TreeRanker(self.tree, self.chunks[:-1], self.n_features).best(features, beam, beam, worth)

    def best_below(
        self, features: csr_array, leaves: NDArray[np.int32], logs: NDArray[np.float32], k: int, worth: str
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best labels in given leaves (documents, beam), padded with -1; ``logs`` are their log-probabilities."""
        n, arrays, last = len(leaves), unlocked_rows(features), len(self.tree.starts) - 1

        def tile(start: int, stop: int) -> tuple[Any, Any]:
            return self.step(arrays, start, last, leaves[start:stop], logs[start:stop], k, WORTH[worth])

        return _tiled(n, k, self.most_documents(leaves.shape[1]), tile)

    def given(self, features: csr_array, labels: csr_array, worth: str, first: NDArray[np.float32] | None = None) -> csr_array:
        """Log P(label | x) of exactly these labels, within the beam or not.

        ``first`` (documents, nodes below the root) has the log-probabilities of the first level, if a network scores it.
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
        """The scores of given nodes at one depth."""
        values, n = np.empty(level.nnz, dtype=np.float32), int(level.shape[0])
        wanted_starts, wanted, _ = unlocked_rows(level)
        known, starts, size = unlocked_rows(above), self.tree.starts[depth], tile_size(n, TILE)

        def tile(start: int) -> None:
            stop, margins = min(start + size, n), self._margins(depth, 1)
            count = int(known[0][stop] - known[0][start])
            sorting = np.zeros(len(starts) + 1, np.int64), *(SCRATCH.buffer(name, np.int64, count + 1) for name in "abc")
            given_step(
                *arrays, start, stop, *known, wanted_starts, wanted, starts, *self.chunks[depth].arrays, kind,
                SCRATCH.get(self.n_features), SCRATCH.wide(margins.shape[1]), *SCRATCH.words(arrays[0], start, stop), *sorting,
                margins, values,
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
        """One step of beam search: the ``wanted`` best children of the nodes in the beams of documents start, start + 1, ..."""
        starts, names = self.tree.starts[depth], self._names[depth]
        found = np.empty((len(nodes), wanted), dtype=np.int32)
        values = np.empty((len(nodes), wanted), dtype=np.float32)
        margins = self._margins(depth, nodes.size)
        beam_margins(
            *arrays, start, nodes, starts, *self.chunks[depth].arrays, SCRATCH.get(self.n_features),
            SCRATCH.wide(margins.shape[1]), *SCRATCH.words(arrays[0], start, start + len(nodes)),
            np.zeros(len(starts) + 1, dtype=np.int64), SCRATCH.buffer("order", np.int64, nodes.size), margins,
        )  # fmt: skip
        room = nodes.shape[1] * margins.shape[1]
        orders, keys = SCRATCH.buffer("orders", np.int32, room), SCRATCH.buffer("keys", np.int64, 2 * room)
        choose(
            nodes, scores, margins, margins.view(np.int32), starts, kind, names, orders, keys[: 2 * room].reshape(2, room), found,
            values, values.view(np.int32),
        )  # fmt: skip
        return found, values

    def most_documents(self, beam: int) -> int:
        """The maximum number of documents to search at once, limited by the memory of their margins."""
        first, widest = self._widest
        return min(TILE, max(1, _MARGINS // max(first, beam * widest, 1)))

    def _margins(self, depth: int, count: int) -> NDArray[np.float32]:
        """A buffer for the margins of ``count`` nodes; numpy requests huge pages for it, compiled code does not."""
        return np.empty((count, self._widths[depth]), dtype=np.float32)

    @cached_property
    def _widths(self) -> list[int]:
        """The maximum number of children of a node at every depth, rounded up to whole vectors."""
        return [-(-int(np.diff(starts).max(initial=0)) // WIDTH) * WIDTH for starts in self.tree.starts]

    @cached_property
    def _widest(self) -> tuple[int, int]:
        """The width at the root and the largest below it."""
        return self._widths[0], max(self._widths[1:], default=0)

    @cached_property
    def _names(self) -> list[NDArray[np.int32]]:
        """The ids of the children at every depth: node numbers, and labels at the last."""
        return [*(np.arange(starts[-1], dtype=np.int32) for starts in self.tree.starts[:-1]), self.tree.order]


@dataclass(frozen=True)
class Forest:
    """Several trees over the same labels; their probabilities are averaged."""

    rankers: list[TreeRanker]

    def best(self, features: csr_array, k: int, beam: int, worth: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best labels of every document, padded with -1, and their log-probabilities (equation 1).

        A label has probability 0 in a tree that does not rank it among its k best. To score it in every tree would cost several
        times as much as the search and does not rank better; ``given`` does score it.
        """
        if len(self.rankers) == 1:
            return self.rankers[0].best(features, k, beam, worth)
        parts = [ranker.best(features, k, beam, worth) for ranker in self.rankers]
        labels, logs = (np.concatenate([part[side] for part in parts], axis=1) for side in (0, 1))

        def tile(start: int, stop: int) -> tuple[Any, Any]:
            found, values = np.empty((stop - start, k), dtype=np.int32), np.empty((stop - start, k), dtype=np.float32)
            order = np.argsort(labels[start:stop], axis=1, kind="stable")
            mean_of_searches(labels[start:stop], logs[start:stop], order, len(parts), found, values)
            return found, values

        return _tiled(len(labels), k, TILE, tile)

    def given(self, features: csr_array, labels: csr_array, worth: str) -> csr_array:
        """The log-probabilities of exactly these labels, averaged over all trees."""
        parts = [ranker.given(features, labels, worth) for ranker in self.rankers]
        if len(parts) > 1:
            mean = np.mean([np.exp(part.data.astype(np.float64)) for part in parts], axis=0)
            parts[0].data = np.log(np.maximum(mean, 1e-37)).astype(np.float32)
        return parts[0]

    def state(self) -> dict[str, Any]:
        """The arrays for an artefact."""
        return {
            "n_features": self.rankers[0].n_features,
            "trees": [{"tree": one.tree.state(), "chunks": [c.state() for c in one.chunks]} for one in self.rankers],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Forest:
        """Rebuild from the arrays, which may be memory-mapped."""
        trees = [
            (LabelTree.from_state(one["tree"]), [Chunks.from_state(chunk) for chunk in one["chunks"]]) for one in state["trees"]
        ]
        return cls([TreeRanker(tree, chunks, int(state["n_features"])) for tree, chunks in trees])
