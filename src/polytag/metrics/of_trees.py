"""Metrics along a tree of labels: a wrong label that is near the true one costs less than one that is far away."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.labels import LabelSet
from polytag.metrics.of_sets import Counts, per_document

Floats = NDArray[Any]


def tree_metrics(truth: csr_array, predicted: csr_array, labels: LabelSet, weights: Floats | None = None) -> dict[str, float]:
    """Hierarchical precision, recall and F1 (Kiritchenko, Matwin and Famili 2005); nothing for labels without parents.

    Both sets are closed: they get all ancestors of their labels. Then pairs of documents and labels are counted, as in micro-F1.
    """
    if not labels.has_tree:
        return {}
    counts = per_document(labels.close(truth), labels.close(predicted))
    each = np.ones(len(counts.true)) if weights is None else np.asarray(weights, dtype=np.float64)
    both = Counts(*((part * each).sum(keepdims=True) for part in counts))
    return both.averages("hierarchical")
