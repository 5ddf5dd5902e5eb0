"""Scores: a model's scores of documents × labels, full or top-k, as sparse rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import ConfigError, brief
from polytag.formats.inputs import checked_count
from polytag.kernels.array_views import unlocked
from polytag.kernels.sparse_rows import places_of, stack_rows, without

_FEW = 32  # up to this k a kernel selects the best labels; above, all are sorted
Kind = Literal["probability", "margin"]


@dataclass(frozen=True)
class Scores:
    """Documents × labels as sparse rows (labels in ascending order within a row, zeros kept).

    ``absent`` is the value of entries that are not stored: 0 for probabilities, minus infinity for margins.
    ``decoded`` has the label sets that a model generates itself, with ``log_probability`` per document.
    """

    matrix: csr_array
    names: Sequence[str]
    kind: Kind
    absent: float
    decoded: csr_array | None = None
    log_probability: NDArray[np.float32] | None = None

    @classmethod
    def full(cls, values: NDArray[Any], names: Sequence[str], kind: Kind, *, decoded: csr_array | None = None) -> Scores:
        """Scores of all labels, from an array (documents, labels)."""
        n, n_labels = values.shape
        indices = np.tile(np.arange(n_labels, dtype=np.int64), n)  # as the offsets are: scipy would copy them
        indptr = np.arange(0, n * n_labels + 1, n_labels, dtype=np.int64) if n_labels else np.zeros(n + 1, dtype=np.int64)
        data = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
        matrix = csr_array((data, indices, indptr), shape=(n, n_labels))
        return cls(matrix, names, kind, _absent(kind), decoded)

    @classmethod
    def candidates(
        cls, labels: NDArray[Any], values: NDArray[Any], names: Sequence[str], kind: Kind, *, decoded: csr_array | None = None
    ) -> Scores:
        """Scores of k candidates per document: label numbers and values, both (documents, k); label -1 = padding."""
        order = np.argsort(np.where(labels < 0, np.iinfo(np.int32).max, labels), axis=1, kind="stable")
        labels, values = np.take_along_axis(labels, order, 1), np.take_along_axis(values, order, 1)
        keep = labels >= 0
        indptr = np.zeros(len(labels) + 1, dtype=np.int64)
        np.cumsum(keep.sum(axis=1), out=indptr[1:])
        matrix = csr_array(
            (values[keep].astype(np.float32), labels[keep].astype(np.int32), indptr), shape=(len(labels), len(names))
        )
        return cls(matrix, names, kind, _absent(kind), decoded)

    def __len__(self) -> int:
        """The number of documents."""
        return int(self.matrix.shape[0])

    @property
    def is_full(self) -> bool:
        """Whether every document has an entry for every label."""
        return bool(self.matrix.nnz == self.matrix.shape[0] * self.matrix.shape[1])

    def ranked(self, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best labels per document, best first (ties by number): numbers and values, padded with -1 and ``absent``.

        There are at most as many columns as labels.
        """
        n, k = len(self), checked_count(k, self.matrix.shape[1], least=0)
        labels = np.full((n, k), -1, dtype=np.int32)
        values = np.full((n, k), self.absent, dtype=np.float32)
        data, indices, indptr = self.matrix.data, self.matrix.indices, self.matrix.indptr
        if k <= _FEW:
            from polytag.kernels.top_k import best_of_sparse_rows  # imports numba, which is slow

            best_of_sparse_rows(
                unlocked(data, np.float32), unlocked(indices, np.int64), unlocked(indptr, np.int64), labels, values
            )
            return labels, values
        if self.is_full and n:
            table = data.reshape(n, -1)
            order = np.argsort(-table, axis=1, kind="stable")[:, :k]
            labels[:], values[:] = order, np.take_along_axis(table, order, 1)
            return labels, values
        row = np.repeat(np.arange(n), np.diff(indptr))
        order = np.lexsort((indices, -data, row))
        place = np.arange(len(row)) - np.repeat(indptr[:-1], np.diff(indptr))
        keep = place < k
        labels[row[keep], place[keep]] = indices[order][keep]
        values[row[keep], place[keep]] = data[order][keep]
        return labels, values

    def top(self, k: int) -> list[list[tuple[str, float]]]:
        """The k best labels of every document with their scores, best first."""
        labels, values = self.ranked(k)
        pairs = zip(labels.tolist(), values.tolist(), strict=True)
        return [[(self.names[j], value) for j, value in zip(*row, strict=True) if j >= 0] for row in pairs]

    def above(self, threshold: float) -> list[list[str]]:
        """The names that score at least the threshold, per document, best first."""
        if isinstance(threshold, bool) or not isinstance(threshold, int | float | np.integer | np.floating):
            raise ConfigError(f"the threshold is {brief(threshold)}; it must be a number")
        width = int(np.diff(self.matrix.indptr).max(initial=0))
        return [[name for name, value in row if value >= threshold] for row in self.top(width)]

    def best(self, k: int) -> Scores:
        """The same scores with at most k labels per document."""
        k = checked_count(k, self.matrix.shape[1], least=0)
        if int(np.diff(self.matrix.indptr).max(initial=0)) <= k:
            return self
        labels, values = self.ranked(k)
        return replace(self, matrix=Scores.candidates(labels, values, self.names, self.kind).matrix)

    def only(self, labels: csr_array) -> Scores:
        """The same scores, only of these labels (documents × labels, ascending)."""
        m = self.matrix
        keep = self.hits(labels)
        indptr = np.concatenate([[0], np.cumsum(keep)])[m.indptr]
        matrix = csr_array((m.data[keep], m.indices[keep], indptr), shape=m.shape)
        return replace(self, matrix=matrix)

    def without(self, pairs: csr_array) -> Scores:
        """The same scores, and decoded sets, without these pairs (documents × labels, ascending)."""
        decoded = None if self.decoded is None else without(self.decoded, pairs)
        return replace(self, matrix=without(self.matrix, pairs), decoded=decoded)

    def hits(self, truth: csr_array) -> NDArray[np.bool_]:
        """For every stored entry, whether the label is true for the document."""
        return places_of(self.matrix, truth)[1]

    def rows(self, start: int, stop: int) -> Scores:
        """The scores of the documents from ``start`` to ``stop``."""
        decoded = None if self.decoded is None else self.decoded[start:stop]
        log_probability = None if self.log_probability is None else self.log_probability[start:stop]
        return replace(self, matrix=self.matrix[start:stop], decoded=decoded, log_probability=log_probability)

    def with_values(self, values: NDArray[Any], kind: Kind) -> Scores:
        """The same entries with other values, such as calibrated ones."""
        m = self.matrix
        matrix = csr_array((values.astype(np.float32, copy=False), m.indices, m.indptr), shape=m.shape)
        return replace(self, matrix=matrix, kind=kind, absent=_absent(kind))

    @staticmethod
    def stack(parts: Sequence[Scores]) -> Scores:
        """The scores of several batches as one."""
        if len(parts) == 1:
            return parts[0]
        decoded = [p.decoded for p in parts if p.decoded is not None]
        logs = [p.log_probability for p in parts if p.log_probability is not None]
        return replace(
            parts[0],
            matrix=stack_rows([p.matrix for p in parts]),
            decoded=stack_rows(decoded) if len(decoded) == len(parts) else None,
            log_probability=np.concatenate(logs) if len(logs) == len(parts) else None,
        )

    @staticmethod
    def mix(parts: Sequence[Scores], weights: Sequence[float]) -> Scores:
        """Weighted sum of several models' probabilities; missing entries count as 0."""
        if any(part.kind != "probability" for part in parts):
            raise ConfigError("only probabilities can be mixed; calibrate the margins first")
        if any(tuple(part.names) != tuple(parts[0].names) for part in parts):
            raise ConfigError("the models to mix have different labels; align them first")
        # Summed as triplets, because scipy's addition of sparse matrices drops zeros.
        data = np.concatenate([part.matrix.data * np.float32(weight) for part, weight in zip(parts, weights, strict=True)])
        row = np.concatenate([np.repeat(np.arange(len(part)), np.diff(part.matrix.indptr)) for part in parts])
        matrix = csr_array((data, (row, np.concatenate([part.matrix.indices for part in parts]))), shape=parts[0].matrix.shape)
        matrix.sum_duplicates()
        return Scores(matrix, parts[0].names, "probability", 0.0)

    def state(self) -> dict[str, Any]:
        """The arrays, without the names."""
        return {"matrix": self.matrix, "kind": self.kind, "decoded": self.decoded, "log_probability": self.log_probability}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], names: Sequence[str]) -> Scores:
        """Restore what ``state`` returned."""
        return cls(state["matrix"], names, state["kind"], _absent(state["kind"]), state["decoded"], state["log_probability"])

    def __iter__(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Yield label numbers and values of each document."""
        m = self.matrix
        for i in range(len(self)):
            yield m.indices[m.indptr[i] : m.indptr[i + 1]], m.data[m.indptr[i] : m.indptr[i + 1]]


def _absent(kind: Kind) -> float:
    return 0.0 if kind == "probability" else float("-inf")
