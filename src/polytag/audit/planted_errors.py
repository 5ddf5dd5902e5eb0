"""Wrong labels that the audit plants itself, to learn what wrong labels look like.

Half of them are any label for any document. The other half are confusable: the label's mean text is similar to that of a label
which the document has. Nothing is trained on them; the out-of-fold models score them like the given labels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.kernels.nearest_rows import nearest_rows
from polytag.labels import indicator_of_pairs

_MOST = 100_000  # planted pairs of each kind
_CONFUSABLE, _TERMS = 5, 50  # labels that a label may be confused with; words that represent a label


def planted_errors(features: csr_array, truth: csr_array, seed: int = 0) -> csr_array:
    """Pairs of documents and labels that are not given, about as many as are given of each kind, as a matrix of ones."""
    rng = np.random.default_rng(seed)
    n, n_labels = truth.shape
    count = min(truth.nnz, _MOST)
    used = np.flatnonzero(np.bincount(truth.indices, minlength=n_labels))
    near = similar_labels(features, truth, _CONFUSABLE)
    start = rng.integers(0, truth.nnz, count)
    confused = near[truth.indices[start], rng.integers(0, near.shape[1], count)]
    confused = np.where(confused < 0, rng.choice(used, count), confused)
    documents = np.concatenate([rng.integers(0, n, count), np.searchsorted(truth.indptr, start, side="right") - 1])
    labels = np.concatenate([rng.choice(used, count), confused])
    keys = np.setdiff1d(documents * n_labels + labels, pair_keys(truth))
    return indicator_of_pairs(*np.divmod(keys, n_labels), (n, n_labels))


def pair_keys(matrix: csr_array) -> NDArray[np.int64]:
    """Each entry as one number, document x labels + label, ascending."""
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return np.asarray(rows * matrix.shape[1] + matrix.indices, dtype=np.int64)


def similar_labels(features: csr_array, truth: csr_array, k: int) -> NDArray[np.int32]:
    """For every label the k labels whose mean texts are most similar, best first; -1 pads."""
    by_label = csr_array(truth.T.tocsr())
    means = heaviest(unit_rows_of(csr_array(by_label @ features)), _TERMS)
    return nearest_rows(unit_rows_of(means), k).rows


def unit_rows_of(matrix: csr_array) -> csr_array:
    """The same rows with unit length."""
    matrix.sort_indices()
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    norms = np.sqrt(np.bincount(row, matrix.data.astype(np.float64) ** 2, minlength=matrix.shape[0]))
    data = (matrix.data / np.maximum(norms, 1e-12)[row]).astype(np.float32)
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def heaviest(matrix: csr_array, k: int) -> csr_array:
    """The k largest entries of every row, ties by column."""
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, row))
    place = np.arange(len(row)) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    keep = np.zeros(len(row), dtype=bool)
    keep[order[place < k]] = True
    indptr = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr]
    return csr_array((matrix.data[keep], matrix.indices[keep], indptr), shape=matrix.shape)
