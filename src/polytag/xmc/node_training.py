"""Training of the nodes of one level of a label tree: pieces of work that do not depend on each other.

A job has some nodes of a level, or some blocks of children of the root. Features and level are shared and never written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polytag.kernels.array_views import unlocked
from polytag.kernels.threads import in_threads
from polytag.kernels.vectors import WIDTH
from polytag.storage.state_json import State
from polytag.xmc.node_kernels import by_feature, gather, solve_children
from polytag.xmc.rank import SCRATCH

_ROWS = np.int64, np.int32, np.float32
_GIVEN = np.int64, np.int32, np.int64, np.int32, np.float32  # true pairs, pairs that nobody judged, 1 / weight of documents


def solve_pieces(job: State, features: State, level: State) -> State:
    """Train the pieces of a job in threads; the results keep the order."""
    training = _Level(features, level)
    solve = training.block if level["root"] else training.node
    return {"solved": list(in_threads(solve, [int(piece) for piece in job["pieces"]]))}


def joined_root(blocks: Sequence[tuple[Any, ...]], *, half: bool) -> tuple[Any, ...]:
    """The root of all blocks of its children."""
    entries = [np.concatenate([block[column] for block in blocks]) for column in range(3)]
    names = np.arange(int(entries[0].max(initial=-1)) + 1, dtype=np.int32)
    return _packed((*_by_feature(entries, names), np.concatenate([block[3] for block in blocks])), half=half)


class _Level:
    """One level with the documents of its nodes."""

    def __init__(self, features: State, level: State) -> None:
        """Views of shared arrays that compiled code accepts; nothing writes to them."""
        self.rows = [unlocked(array, kind) for array, kind in zip(features["rows"], _ROWS, strict=True)]
        self.squares, self.n_features = unlocked(features["squares"], np.float32), int(features["features"])
        self.given = [unlocked(array, kind) for array, kind in zip(level["given"], _GIVEN, strict=True)]
        told = level["options"]
        strength = unlocked(level["strength"], np.float32)
        self.options = (strength, *(told[name] for name in ("c", "tolerance", "max_passes", "prune", "seed")))
        self.half, self.starts = bool(told["half"]), level["starts"]
        if level["root"]:
            self.documents = np.arange(len(self.rows[0]) - 1, dtype=np.int32)
            self.names = np.arange(self.n_features, dtype=np.int32)
        else:
            self.indptr, self.documents = level["indptr"], unlocked(level["documents"], np.int32)

    def node(self, p: int) -> tuple[Any, ...]:
        """Train the children of a node on the documents of the node."""
        own = self.documents[self.indptr[p] : self.indptr[p + 1]]
        *rows, names = self._gathered(own)
        found, bias = self._solved(rows, names, own, int(self.starts[p]), int(self.starts[p + 1]))
        return _packed((*_by_feature(found, names), bias), half=self.half)

    def block(self, first: int) -> tuple[Any, ...]:
        """Train some children of the root, which has all documents: entries (feature, child, weight), and their bias."""
        stop = min(first + WIDTH, int(self.starts[-1]))
        (features, own, values), bias = self._solved(self.rows, self.names, self.documents, first, stop)
        return features, own + np.uint16(first), values, bias

    def _gathered(self, documents: NDArray[np.int32]) -> tuple[NDArray[Any], ...]:
        """The rows of some documents, with the features that occur renumbered, and the names of these features."""
        starts = self.rows[0]
        size = int((starts[documents + 1] - starts[documents]).sum())
        own, features = np.empty(len(documents) + 1, np.int64), np.empty(min(size, self.n_features), np.int32)
        columns, values = np.empty(size, np.int32), np.empty(size, np.float32)
        used = gather(*self.rows, documents, SCRATCH.get(self.n_features), own, columns, values, features)
        return own, columns, values, features[:used]

    def _solved(
        self, rows: Sequence[NDArray[Any]], names: NDArray[Any], documents: NDArray[Any], first: int, last: int
    ) -> tuple[tuple[NDArray[Any], ...], NDArray[np.float32]]:
        """The separators of children first..last: entries (feature, child, weight), and the bias of the children."""
        n, most, bias = len(documents), len(names) * (last - first), np.empty(last - first, dtype=np.float32)
        signs, alpha = np.empty((n, WIDTH), dtype=np.float32), np.empty((n, WIDTH), dtype=np.float32)
        room = np.empty((8, WIDTH), np.float32), np.zeros((0, 0), np.float32)
        found = np.empty(most, np.int32), np.empty(most, np.uint16), np.empty(most, np.float32)  # memory is used when written to
        count = solve_children(
            *rows, self.squares[documents], documents, *self.given, first, last, *self.options, bias, np.empty(n, np.int32),
            signs, alpha, np.empty((len(names), WIDTH), dtype=np.float32), *room, *found,
        )  # fmt: skip
        return tuple(part[:count].copy() for part in found), bias


def _packed(node: tuple[Any, ...], *, half: bool) -> tuple[Any, ...]:
    """Convert the weights of a trained node to the stored precision."""
    rows, starts, children, weights, bias = node
    return rows, starts, children, weights.astype(np.float16 if half else np.float32), bias


def _by_feature(entries: Sequence[NDArray[Any]], names: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Entries (feature, child, weight) as rows: feature names, offsets, children, weights."""
    size = len(entries[0])
    rows, starts = np.empty(min(len(names), size), np.int32), np.empty(min(len(names), size), np.uint32)
    children, weights = np.empty(size, np.uint16), np.empty(size, np.float32)
    used = by_feature(*entries, names, np.zeros(len(names) + 1, dtype=np.int64), rows, starts, children, weights)
    return rows[:used].copy(), starts[:used].copy(), children, weights
