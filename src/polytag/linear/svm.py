"""One linear separator per label: training and scoring on sparse rows.

Each minimises ``½(|w|² + b²) + C Σ weight · max(0, 1 - y (w·x + b))²`` in its dual (Hsieh et al. 2008). Blocks of sixteen labels,
most frequent first, are solved together, so that a document is loaded once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, csr_array, hstack

from polytag.kernels.array_views import unlocked, unlocked_rows
from polytag.kernels.sparse_rows import stack_rows
from polytag.kernels.threads import in_threads, tile_size
from polytag.kernels.vectors import WIDTH, aligned_zeros
from polytag.linear.block_kernels import best_of_rows, fill_blocks, score_blocks, score_sparse, solve_block
from polytag.linear.class_weights import imbalance_weights
from polytag.storage.schema import Array, Sparse, Table

Rows: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]
"""indptr, indices and data of sparse rows, in the types that the kernels are compiled for."""
_DENSE_BYTES = 1 << 29  # weights up to this size are scored as dense blocks
_TILE = 256  # documents that a thread scores at once if only their best labels are kept
_FILLED = 1 << 16  # rows of weights that a thread writes into dense blocks at once
_WHOLE_TILE = 2048  # documents that a thread scores at once if all margins are kept: fewer loads of each block of weights


@dataclass(frozen=True)
class Problem:
    """Sparse features and true labels of documents, in the form that the kernels need."""

    features: csr_array
    truth: csr_array
    weights: NDArray[np.float32] | None = None  # of the documents; None = 1
    unknown: csr_array | None = None  # pairs that nobody judged; None = all are judged
    soft: csr_array | None = None  # probabilities to learn in place of the true labels; None = none

    @classmethod
    def of(cls, features: csr_array, corpus: Any) -> Problem:
        """The problem of a corpus: its true labels, weights and pairs that nobody judged."""
        return cls(features, corpus.truth, corpus.weights, corpus.unknown, corpus.soft)

    def rows(self, chosen: NDArray[Any]) -> Problem:
        """The problem of some documents."""
        weights = None if self.weights is None else self.weights[chosen]
        unknown = None if self.unknown is None else csr_array(self.unknown[chosen])
        soft = None if self.soft is None else csr_array(self.soft[chosen])
        return Problem(csr_array(self.features[chosen]), csr_array(self.truth[chosen]), weights, unknown, soft)

    def signs(self, labels: NDArray[Any]) -> NDArray[np.float32]:
        """Per document and label of a block: 1 / weight where the label is true, minus that where not, 0 if nobody judged.

        With soft targets, every document is there twice (``both_sides``): as a positive with the weight p, then as a negative
        with 1 - p.
        """
        if self.soft is not None:
            return self._soft_signs(labels)
        found = np.full((self.features.shape[0], WIDTH), -1, dtype=np.float32)
        for pairs, sign in ((self.documents_of, 1), (self.unjudged, 0)):
            if pairs is not None:
                indptr, documents = pairs
                for j, label in enumerate(labels):
                    found[documents[indptr[label] : indptr[label + 1]], j] = sign
        return found if self.weights is None else found / self.weights[:, None]

    def _soft_signs(self, labels: NDArray[Any]) -> NDArray[np.float32]:
        assert self.soft is not None
        chosen = self.soft[:, labels].toarray()  # (documents, labels)
        share = np.zeros((len(chosen), WIDTH), dtype=np.float32)
        share[:, : len(labels)] = chosen
        with np.errstate(divide="ignore"):
            found = np.concatenate([np.where(share > 0, 1 / share, 0), np.where(share < 1, -1 / (1 - share), 0)])
        if self.unjudged is not None:
            indptr, documents = self.unjudged
            for j, label in enumerate(labels):
                unjudged = documents[indptr[label] : indptr[label + 1]]
                found[unjudged, j] = found[unjudged + len(share), j] = 0
        weights = 1 if self.weights is None else np.tile(self.weights, 2)[:, None]
        return np.asarray(found / weights, dtype=np.float32)

    def both_sides(self) -> Problem:
        """The problem with every row twice, for soft targets."""
        return replace(self, features=stack_rows([self.features, self.features]))

    @cached_property
    def unjudged(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The documents for which nobody judged a label: indptr and indices by label."""
        if self.unknown is None:
            return None
        columns = self.unknown.tocsc()
        return columns.indptr, columns.indices

    @cached_property
    def arrays(self) -> Rows:
        """indptr, indices and data of the features."""
        return rows_of(self.features)

    @cached_property
    def squares(self) -> NDArray[np.float32]:
        """Squared norm of every row, including the bias term."""
        indptr, _, data = self.arrays
        return row_squares(indptr, data)

    @cached_property
    def documents_of(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The documents of every label: indptr and indices."""
        columns = self.truth.tocsc()
        return columns.indptr, columns.indices


def row_squares(indptr: NDArray[Any], data: NDArray[Any]) -> NDArray[np.float32]:
    """Squared norm of every row, including the bias term."""
    sums = np.add.reduceat(np.append(data.astype(np.float64) ** 2, 0.0), indptr[:-1])
    return np.asarray(np.where(np.diff(indptr) > 0, sums, 0.0) + 1.0, dtype=np.float32)


def rows_of(matrix: csr_array) -> Rows:
    """The three arrays of a sparse matrix, in the types that the kernels are compiled for."""
    return unlocked_rows(matrix)


def separators_schema(features: str = "features", labels: str = "labels") -> Table:
    """What separators look like when they are saved; the kernels use one row per feature and one column per label."""
    return Table({"weights": Sparse((features, labels)), "bias": Array(("float32",), (labels,))})


@dataclass(frozen=True)
class Separators:
    """Weights (features, labels) and a bias per label; small weights are scored as dense blocks, large ones sparse."""

    weights: csr_array
    bias: NDArray[np.float32]
    active: NDArray[np.float32] = field(repr=False, compare=False, default_factory=lambda: np.zeros(0, dtype=np.float32))
    """After training: the sum of 2C · weight over the documents inside the margin of each label, the curvature of its loss."""

    @property
    def shape(self) -> tuple[int, int]:
        """Features and labels."""
        return int(self.weights.shape[0]), int(self.weights.shape[1])

    @cached_property
    def blocks(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]] | None:
        """Dense blocks, their bias and their columns; None if they would need too much memory."""
        n_features, n_labels = self.shape
        count = -(-n_labels // WIDTH)
        if count * WIDTH * n_features * 4 > _DENSE_BYTES:
            return None
        dense, rows, size = aligned_zeros((count, n_features, WIDTH)), self.rows, tile_size(n_features, _FILLED)

        def tile(start: int) -> None:
            fill_blocks(*rows, start, min(start + size, n_features), dense)

        for _ in in_threads(tile, range(0, n_features, size)):
            pass
        bias = np.zeros(count * WIDTH, dtype=np.float32)
        bias[:n_labels] = self.bias
        columns = np.arange(count * WIDTH, dtype=np.int32)
        columns[n_labels:] = -1
        return dense, bias.reshape(count, WIDTH), columns.reshape(count, WIDTH)

    @cached_property
    def rows(self) -> Rows:
        """The weights in the form that the kernels need."""
        return rows_of(self.weights)

    def _margins(self, documents: Rows, start: int, stop: int) -> NDArray[np.float32]:
        """Margins (documents, labels) of documents start..stop."""
        out = np.empty((stop - start, self.shape[1]), dtype=np.float32)
        self._fill(documents, start, stop, out)
        return out

    def _fill(self, documents: Rows, start: int, stop: int, out: NDArray[np.float32]) -> None:
        """Write the margins of documents start..stop."""
        if self.blocks is not None:
            score_blocks(*documents, start, stop, *self.blocks, np.empty(WIDTH, dtype=np.float32), out)
        else:
            score_sparse(*documents, start, stop, *self.rows, unlocked(self.bias, np.float32), out)

    def best(self, features: csr_array, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best labels of every document and their margins; computed in tiles, which bounds the memory."""
        n, documents = int(features.shape[0]), rows_of(features)
        labels, values = np.empty((n, k), dtype=np.int32), np.empty((n, k), dtype=np.float32)
        _ = self.blocks or self.rows  # computed once, before the threads use it

        def tile(start: int) -> None:
            stop = min(start + _TILE, n)
            best_of_rows(self._margins(documents, start, stop), k, labels[start:stop], values[start:stop])

        for _ in in_threads(tile, range(0, n, _TILE)):
            pass
        return labels, values

    def all(self, features: csr_array) -> NDArray[np.float32]:
        """The margins of all labels for all documents."""
        n, documents = int(features.shape[0]), rows_of(features)
        out, size = np.empty((n, self.shape[1]), dtype=np.float32), tile_size(n, _WHOLE_TILE)
        _ = self.blocks or self.rows

        def tile(start: int) -> None:
            self._fill(documents, start, min(start + size, n), out[start : start + size])

        for _ in in_threads(tile, range(0, n, size)):
            pass
        return out

    def margins(self, documents: Rows) -> NDArray[np.float32]:
        """What ``all`` returns, in one thread: quick for a few documents."""
        return self._margins(documents, 0, len(documents[0]) - 1)

    def state(self) -> dict[str, Any]:
        """The arrays for an artefact."""
        return {"weights": self.weights, "bias": self.bias}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Separators:
        """Rebuild from the arrays."""
        return cls(state["weights"], np.asarray(state["bias"]))


@dataclass(frozen=True)
class Solver:
    """The settings of the solver, the same for every label."""

    balance: float = 0.0
    tolerance: float = 0.1
    max_passes: int = 100
    prune: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Around:
    """Weights that training starts from and stays near: feature f of label l moves at the cost ``1 + activity_l spread_f``.

    The bias is a feature that is 1 in all earlier ``documents``, of which ``counts`` have each label.
    """

    weights: csr_array
    bias: NDArray[np.float32]
    spread: NDArray[np.float32]
    activity: NDArray[np.float32]
    documents: int
    counts: NDArray[np.int64]

    def block(self, labels: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
        """For a block of labels: their weights (features, labels), the factor of every feature, and that of C.

        In units of ``1 / factor`` all weights cost the same, and the bias 1; labels of a block share the mean of their activity.
        """
        activity = float(self.activity[labels].mean())
        bias = 1 + activity * self.documents
        factors = np.sqrt(bias / (1 + activity * self.spread)).astype(np.float32)
        return self._columns[:, labels].toarray(), factors, 1 / bias

    @cached_property
    def _columns(self) -> csc_array:
        return csc_array(self.weights)


def train_separators(
    problem: Problem,
    strengths: Sequence[float],
    solver: Solver,
    *,
    rows: NDArray[Any] | None = None,
    chain: NDArray[Any] | None = None,
    around: Around | None = None,
) -> list[Separators]:
    """Train all labels on the documents ``rows``, for each C in ``strengths``; each C starts from the previous solution.

    With ``chain``, an order of the labels, the true labels that precede a label are features too. The weights then have one
    more row per label: row ``features + a`` has the weights of label a as a feature of the others. With ``around``, training
    starts from earlier weights and stays near them.
    """
    n_documents, n_features = problem.features.shape
    n_labels = int(problem.truth.shape[1])
    used = np.arange(n_documents, dtype=np.int32) if rows is None else np.asarray(rows, dtype=np.int32)
    inside = np.zeros(n_documents, dtype=np.float64)
    inside[used] = 1.0
    taught = problem.truth if problem.soft is None else problem.soft
    counts = np.bincount(taught.indices, np.repeat(inside, np.diff(taught.indptr)) * taught.data, minlength=n_labels)
    before = 0
    if around is not None:
        counts, before = counts + around.counts, around.documents
    order = np.argsort(-counts, kind="stable") if chain is None else np.asarray(chain)
    heavier = imbalance_weights(counts, len(used) + before, solver.balance)
    data = problem if chain is None else _with_label_features(problem, order)
    if problem.soft is not None:
        data, used = problem.both_sides(), np.concatenate([used, used + np.int32(n_documents)])
    _ = data.arrays, data.squares, data.documents_of, data.unjudged  # computed once, before the threads use them

    def solve(start: int) -> list[_Solved]:
        chained = n_features if chain is not None else 0
        return _solve_labels(data, used, order, start, heavier, strengths, solver, chained, around)

    solved = list(in_threads(solve, range(0, n_labels, WIDTH)))
    return [_assemble([part[c] for part in solved], data, n_labels) for c in range(len(strengths))]


class _Solved(NamedTuple):
    """The non-zero weights of one block of labels."""

    features: NDArray[np.int32]
    labels: NDArray[np.int32]
    values: NDArray[np.float32]
    order: NDArray[Any]
    bias: NDArray[np.float32]
    active: NDArray[np.float32]


def _with_label_features(problem: Problem, order: NDArray[Any]) -> Problem:
    """Append the labels of every document to its features, in the order of the chain."""
    reordered = problem.truth[:, order]
    reordered.sort_indices()
    return replace(problem, features=csr_array(hstack([problem.features, reordered], format="csr", dtype=np.float32)))


def _solve_labels(
    problem: Problem, used: NDArray[Any], order: NDArray[Any], start: int, heavier: NDArray[Any],
    strengths: Sequence[float], solver: Solver, chained_after: int, around: Around | None,
) -> list[_Solved]:  # fmt: skip
    """Solve the labels ``order[start : start + WIDTH]`` for every C."""
    indptr, indices, data = problem.arrays
    labels = order[start : start + WIDTH]
    n_documents, n_features = problem.features.shape
    signs = problem.signs(labels)
    if problem.soft is not None:  # most documents are no positives of these labels
        used = used[(signs[used] != 0).any(axis=1)]
    weights, bias, factors, scale = np.zeros((n_features, WIDTH), np.float32), np.zeros(WIDTH, np.float32), None, 1.0
    squares = problem.squares
    if around is not None:
        known, factors, scale = around.block(labels)
        if chained_after:  # links inside of a block move like the bias
            factors[chained_after + start :] = 1
        weights[:, : len(labels)], bias[: len(labels)] = known / factors[:, None], around.bias[labels]
        data = data * factors[indices]
        squares = row_squares(indptr, data)
    ends, links = indptr[1:], np.zeros((0, 0), dtype=np.float32)
    if chained_after:
        ends, squares, links = _chained(chained_after + start, indptr, indices, data, squares, weights)
    alpha, positive = np.zeros((n_documents, WIDTH), dtype=np.float32), np.ones(WIDTH, dtype=np.float32)
    positive[: len(labels)] = heavier[labels]
    solved = []
    for c in strengths:
        costs = np.stack([np.full(WIDTH, c), c * positive]).astype(np.float32)
        solve_block(
            indptr, indices, data, np.ascontiguousarray(ends), squares, used.copy(), signs,
            (0.5 / (scale * costs)).astype(np.float32), weights, bias, alpha, links, np.empty((5, WIDTH), dtype=np.float32),
            solver.tolerance, solver.max_passes, solver.seed,
        )  # fmt: skip
        found = weights if factors is None else weights * factors[:, None]
        if chained_after:
            found[chained_after + start : chained_after + start + len(labels)] = links[: len(labels)]
        kept, column = np.nonzero(np.abs(found[:, : len(labels)]) > solver.prune)
        own = labels.astype(np.int32)[column]
        active = 2 * (np.where(signs[used] > 0, costs[1], costs[0]) * (alpha[used] > 0)).sum(axis=0)
        values = found[kept, column], labels, bias[: len(labels)].copy(), active[: len(labels)].astype(np.float32)
        solved.append(_Solved(kept.astype(np.int32), own, *values))
    return solved


def _chained(
    first: int, indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any], squares: NDArray[Any], weights: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The ends and norms of the rows without the label features from ``first`` on, and the links inside of the block."""
    later = indices >= first
    filled = np.diff(indptr) > 0
    hidden = np.add.reduceat(np.append(later, False).astype(np.int64), indptr[:-1]) * filled
    lost = np.add.reduceat(np.append(later * data**2, 0), indptr[:-1]) * filled
    links = np.zeros((WIDTH, WIDTH), dtype=np.float32)
    links[: len(weights) - first] = weights[first : first + WIDTH]
    return indptr[1:] - hidden, (squares - lost).astype(np.float32), np.triu(links, 1)


def _assemble(parts: Sequence[_Solved], problem: Problem, n_labels: int) -> Separators:
    """Assemble the blocks into sparse weights (features, labels)."""
    features = np.concatenate([part.features for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    values = np.concatenate([part.values for part in parts])
    weights = csr_array(coo_array((values, (features, labels)), shape=(problem.features.shape[1], n_labels)))
    weights.sort_indices()
    bias, active = np.zeros(n_labels, dtype=np.float32), np.zeros(n_labels, dtype=np.float32)
    for part in parts:
        bias[part.order], active[part.order] = part.bias, part.active
    return Separators(weights, bias, active)
