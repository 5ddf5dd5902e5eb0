"""How well the other labels of a document predict a label.

Each label is predicted from the other given labels by ridge regression, in closed form for all labels at once (Steck 2019, EASE):
with G = Y'Y + λI and P = G⁻¹, the weights are -P / diag(P) per column, and 0 on the diagonal. With too many labels for an
inverse, the strongest conditional frequency P(label | other label) takes its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.kernels.compiler import njit

RIDGE = 200.0  # λ; chosen on spoiled draws
_INVERTED = 4000  # maximum number of labels whose Gram matrix is inverted


def label_context(truth: csr_array, entries: csr_array) -> NDArray[np.float32]:
    """For every entry (document, label), how far the document's other labels imply the label; about 0 to 1."""
    used = np.flatnonzero(np.bincount(truth.indices, minlength=truth.shape[1]))
    out = np.zeros(entries.nnz, dtype=np.float32)
    if len(used) <= _INVERTED:
        weights = np.zeros((truth.shape[1], len(used)), dtype=np.float32)
        weights[used] = ridge_weights(csr_array(truth[:, used]))
        place = np.full(truth.shape[1], -1, dtype=np.int64)
        place[used] = np.arange(len(used))
        _summed(truth.indptr, truth.indices, entries.indptr, entries.indices, weights, place, out)
    else:
        together = csr_array(truth.T @ truth)
        together.sort_indices()
        counts = np.bincount(truth.indices, minlength=truth.shape[1]).astype(np.float64)
        _strongest(
            truth.indptr, truth.indices, entries.indptr, entries.indices,
            together.indptr, together.indices, together.data, counts, out,
        )  # fmt: skip
    return out


def ridge_weights(truth: csr_array, ridge: float = RIDGE) -> NDArray[np.float32]:
    """The weights (label, predicted label) of the regression of every label on all others."""
    gram = np.asarray((truth.T @ truth).toarray(), dtype=np.float64)
    gram[np.diag_indices_from(gram)] += ridge
    inverse = np.linalg.inv(gram)
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    return np.asarray(weights, dtype=np.float32)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _summed(indptr: Any, indices: Any, entry_ptr: Any, entry_labels: Any, weights: Any, place: Any, out: Any) -> None:
    for i in range(len(indptr) - 1):
        for e in range(entry_ptr[i], entry_ptr[i + 1]):
            column = place[entry_labels[e]]
            if column < 0:
                continue
            total = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                total += weights[indices[p], column]
            out[e] = total


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _strongest(
    indptr: Any,
    indices: Any,
    entry_ptr: Any,
    entry_labels: Any,
    co_ptr: Any,
    co_labels: Any,
    co_counts: Any,
    counts: Any,
    out: Any,
) -> None:
    """The maximum over the other labels m of (documents with both - this one) / (documents with m - this one + 2)."""
    for i in range(len(indptr) - 1):
        for e in range(entry_ptr[i], entry_ptr[i + 1]):
            label, own = entry_labels[e], 0.0
            for p in range(indptr[i], indptr[i + 1]):
                if indices[p] == label:
                    own = 1.0
            best = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                other = indices[p]
                if other == label:
                    continue
                at = co_ptr[other] + np.searchsorted(co_labels[co_ptr[other] : co_ptr[other + 1]], label)
                if at < co_ptr[other + 1] and co_labels[at] == label:
                    best = max(best, (co_counts[at] - own) / (counts[other] + 1.0))
            out[e] = best
