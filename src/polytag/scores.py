"""Scores: what a model says about documents × labels, full or top-k, always sparse rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import ConfigError

_FEW = 32  # labels per document up to which they are looked for one by one; above, all are sorted
Kind = Literal["probability", "margin"]


@dataclass(frozen=True)
class Scores:
    """Documents × labels as sparse rows (labels in ascending order within a row, zeros kept).

    ``absent`` is what an entry that is not stored stands for: 0 for probabilities, minus infinity for margins.
    ``decoded`` holds the label sets a model decided by itself, with ``log_probability`` per document.
    """

    matrix: csr_array
    names: Sequence[str]
    kind: Kind
    absent: float
    decoded: csr_array | None = None
    log_probability: NDArray[np.float32] | None = None

    @classmethod
    def full(cls, values: NDArray[Any], names: Sequence[str], kind: Kind, *, decoded: csr_array | None = None) -> Scores:
        """Every label of every document of a batch, from an array (documents, labels)."""
        n, n_labels = values.shape
        indices = np.tile(np.arange(n_labels, dtype=np.int32), n)
        indptr = np.arange(0, n * n_labels + 1, n_labels, dtype=np.int64) if n_labels else np.zeros(n + 1, dtype=np.int64)
        data = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
        matrix = csr_array((data, indices, indptr), shape=(n, n_labels))
        return cls(matrix, names, kind, _absent(kind), decoded)

    @classmethod
    def candidates(
        cls, labels: NDArray[Any], values: NDArray[Any], names: Sequence[str], kind: Kind, *, decoded: csr_array | None = None
    ) -> Scores:
        """The k candidates of every document: label numbers and values, both (documents, k), -1 where there are fewer."""
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
        """How many documents there are."""
        return int(self.matrix.shape[0])

    @property
    def is_full(self) -> bool:
        """Whether every document has an entry for every label."""
        return bool(self.matrix.nnz == self.matrix.shape[0] * self.matrix.shape[1])

    def ranked(self, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best labels per document, best first (ties by label number): numbers and values, -1 and ``absent`` to fill."""
        n = len(self)
        labels = np.full((n, k), -1, dtype=np.int32)
        values = np.full((n, k), self.absent, dtype=np.float32)
        data, indices, indptr = self.matrix.data, self.matrix.indices, self.matrix.indptr
        if k <= _FEW:
            from polytag.ranking import best_of_sparse_rows  # numba, which takes its time to import

            best_of_sparse_rows(data, indices, indptr, labels, values)
            return labels, values
        if self.is_full and n:
            table = data.reshape(n, -1)
            width = min(k, table.shape[1])
            order = np.argsort(-table, axis=1, kind="stable")[:, :width]
            labels[:, :width], values[:, :width] = order, np.take_along_axis(table, order, 1)
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
        width = int(np.diff(self.matrix.indptr).max(initial=0))
        return [[name for name, value in row if value >= threshold] for row in self.top(width)]

    def best(self, k: int) -> Scores:
        """The same scores with at most k labels per document."""
        if int(np.diff(self.matrix.indptr).max(initial=0)) <= k:
            return self
        labels, values = self.ranked(k)
        return replace(self, matrix=Scores.candidates(labels, values, self.names, self.kind).matrix)

    def only(self, labels: csr_array) -> Scores:
        """The same scores without entries that are not among these labels (documents × labels, ascending)."""
        m = self.matrix
        width = np.int64(m.shape[1])
        mine = np.repeat(np.arange(len(self), dtype=np.int64), np.diff(m.indptr)) * width + m.indices
        theirs = np.repeat(np.arange(len(self), dtype=np.int64), np.diff(labels.indptr)) * width + labels.indices
        keep = np.isin(mine, theirs, assume_unique=True)
        indptr = np.concatenate([[0], np.cumsum(keep)])[m.indptr]
        matrix = csr_array((m.data[keep], m.indices[keep], indptr), shape=m.shape)
        return replace(self, matrix=matrix)

    def rows(self, start: int, stop: int) -> Scores:
        """Some documents' scores."""
        decoded = None if self.decoded is None else self.decoded[start:stop]
        log_probability = None if self.log_probability is None else self.log_probability[start:stop]
        return replace(self, matrix=self.matrix[start:stop], decoded=decoded, log_probability=log_probability)

    def with_values(self, values: NDArray[Any], kind: Kind) -> Scores:
        """The same entries with other values, as calibration makes them."""
        m = self.matrix
        matrix = csr_array((values.astype(np.float32, copy=False), m.indices, m.indptr), shape=m.shape)
        return replace(self, matrix=matrix, kind=kind, absent=_absent(kind))

    @staticmethod
    def stack(parts: Sequence[Scores]) -> Scores:
        """Batches of one model, one below the other."""
        if len(parts) == 1:
            return parts[0]
        decoded = [p.decoded for p in parts if p.decoded is not None]
        logs = [p.log_probability for p in parts if p.log_probability is not None]
        return replace(
            parts[0],
            matrix=_below([p.matrix for p in parts]),
            decoded=_below(decoded) if len(decoded) == len(parts) else None,
            log_probability=np.concatenate(logs) if len(logs) == len(parts) else None,
        )

    @staticmethod
    def mix(parts: Sequence[Scores], weights: Sequence[float]) -> Scores:
        """Weighted sum of several models' probabilities; an entry that one part lacks counts as 0 there."""
        if any(part.kind != "probability" for part in parts):
            raise ConfigError("only probabilities can be mixed; calibrate the margins first")
        if any(tuple(part.names) != tuple(parts[0].names) for part in parts):
            raise ConfigError("the models to mix know different labels; align them first")
        # Summed as triplets, because scipy's addition of sparse matrices drops zeros.
        data = np.concatenate([part.matrix.data * np.float32(weight) for part, weight in zip(parts, weights, strict=True)])
        row = np.concatenate([np.repeat(np.arange(len(part)), np.diff(part.matrix.indptr)) for part in parts])
        matrix = csr_array((data, (row, np.concatenate([part.matrix.indices for part in parts]))), shape=parts[0].matrix.shape)
        matrix.sum_duplicates()
        return Scores(matrix, parts[0].names, "probability", 0.0)

    def state(self) -> dict[str, Any]:
        """As arrays, without the names."""
        return {"matrix": self.matrix, "kind": self.kind, "decoded": self.decoded, "log_probability": self.log_probability}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], names: Sequence[str]) -> Scores:
        """From arrays."""
        return cls(state["matrix"], names, state["kind"], _absent(state["kind"]), state["decoded"], state["log_probability"])

    def __iter__(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Label numbers and values, document by document."""
        m = self.matrix
        for i in range(len(self)):
            yield m.indices[m.indptr[i] : m.indptr[i + 1]], m.data[m.indptr[i] : m.indptr[i + 1]]


def _absent(kind: Kind) -> float:
    return 0.0 if kind == "probability" else float("-inf")


def _below(matrices: Sequence[csr_array]) -> csr_array:
    """Stack sparse rows without losing explicit zeros."""
    data = np.concatenate([m.data for m in matrices])
    indices = np.concatenate([m.indices for m in matrices])
    counts = np.concatenate([np.diff(m.indptr) for m in matrices])
    indptr = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=indptr[1:])
    return csr_array((data, indices, indptr), shape=(len(counts), matrices[0].shape[1]))
