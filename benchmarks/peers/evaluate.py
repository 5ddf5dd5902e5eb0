"""The one evaluator: label sets in, the figures of the table out."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array


def evaluate(truth: csr_array, predicted: csr_array) -> dict[str, float]:
    """Micro-F1, macro-F1 over the labels that occur in the truth, and subset accuracy."""
    hit = truth.multiply(predicted).tocsr()
    n_labels = truth.shape[1]
    tp, true, said = (np.bincount(m.indices, minlength=n_labels) for m in (hit, truth, predicted))
    seen = true > 0
    rows = [np.diff(m.indptr) for m in (hit, truth, predicted)]
    exact = (rows[0] == rows[1]) & (rows[0] == rows[2])
    return {
        "micro_f1": float(2 * tp.sum() / max(1, true.sum() + said.sum())),
        "macro_f1": float((2 * tp[seen] / (true[seen] + said[seen])).mean()),
        "subset_accuracy": float(exact.mean()),
    }


def label_sets(indices: np.ndarray, indptr: np.ndarray, label_numbers: np.ndarray, n_labels: int) -> csr_array:
    """Decided label sets of a worker, in the numbering of the whole label set, checked to be sets."""
    indices = label_numbers[indices].astype(np.int32)
    matrix = csr_array((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(indptr) - 1, n_labels))
    matrix.sum_duplicates()
    if matrix.nnz and matrix.data.max() > 1:
        raise ValueError("a worker returned the same label twice for one document")
    return matrix
