"""Sparse rows with sorted indices: alignment of two matrices, lookup of labels, stacking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.kernels.array_views import unlocked


def places_of(entries: csr_array, matrix: csr_array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For every entry of one matrix, its index among another's entries and whether it exists there; the shapes are equal."""
    if matrix.nnz == matrix.shape[0] * matrix.shape[1]:  # it has every entry, in order
        return _numbers(entries), np.ones(len(entries.indices), dtype=np.bool_)
    at, known = np.zeros(len(entries.indices), dtype=np.int64), np.zeros(len(entries.indices), dtype=np.bool_)
    if entries.nnz == entries.shape[0] * entries.shape[1]:
        places = _numbers(matrix)
        at[places], known[places] = np.arange(len(places)), True
        return at, known
    from polytag.kernels.row_merge import merge_rows  # numba is slow to import

    parts = (entries.indptr, entries.indices, matrix.indptr, matrix.indices)
    merge_rows(*(unlocked(part, np.int64) for part in parts), at, known)
    return at, known


def _numbers(matrix: csr_array) -> NDArray[np.int64]:
    """The number of every entry among all entries of a complete matrix of the same shape."""
    row = np.repeat(np.arange(matrix.shape[0], dtype=np.int64) * matrix.shape[1], np.diff(matrix.indptr))
    return np.asarray(row + matrix.indices)


def without(matrix: csr_array, pairs: csr_array) -> csr_array:
    """The matrix without the entries that another one has, whatever their values."""
    keep = ~places_of(matrix, pairs)[1]
    indptr = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr]
    return csr_array((matrix.data[keep], matrix.indices[keep], indptr), shape=matrix.shape)


def contains(matrix: csr_array, labels: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each row of the matrix has an entry for these labels (rows, any), in any order; False for -1."""
    n, n_labels = matrix.shape
    known = np.repeat(np.arange(n, dtype=np.int64) * n_labels, np.diff(matrix.indptr)) + matrix.indices
    if not len(known):
        return np.zeros(labels.shape, dtype=np.bool_)
    asked = np.arange(n, dtype=np.int64)[:, None] * n_labels + labels
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.asarray((known[place] == asked) & (labels >= 0))


def stack_rows(matrices: Sequence[csr_array]) -> csr_array:
    """Stack the rows of several matrices; explicit zeros are kept."""
    data = np.concatenate([m.data for m in matrices])
    indices = np.concatenate([m.indices for m in matrices])
    counts: NDArray[Any] = np.concatenate([np.diff(m.indptr) for m in matrices])
    indptr = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=indptr[1:])
    return csr_array((data, indices, indptr), shape=(len(counts), matrices[0].shape[1]))


def unit_rows(rows: Any) -> csr_array:
    """Rows of unit length, of the same type; empty ones stay empty."""
    rows = csr_array(rows)
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).reshape(-1, 1)
    return csr_array(rows.multiply(1 / np.where(norms > 0, norms, 1)))
