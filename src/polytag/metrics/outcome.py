"""What metrics and analyses need to know about a classifier's view of labelled documents."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.labels import LabelSet
from polytag.scores import Scores


class Outcome(NamedTuple):
    """A classifier's view of labelled documents; all matrices have the columns of ``labels``.

    ``scores`` holds at most 100 labels per document. ``train_counts`` has the training documents of every label,
    ``thresholds`` its threshold (NaN for labels that were not in training), or None if the decision has none.
    ``sureness`` says how sure the decision is of every document, or is None if the classifier does not know. ``weights`` says how
    much every document counts. Pairs that nobody judged (``unknown``) are neither predicted nor scored.
    """

    labels: LabelSet
    truth: csr_array
    predicted: csr_array
    scores: Scores
    train_counts: NDArray[np.int64]
    thresholds: NDArray[np.float32] | None
    sureness: NDArray[np.float64] | None = None
    weights: NDArray[np.float32] | None = None
    unknown: csr_array | None = None

    def over(self, labels: LabelSet) -> Outcome:
        """The same with the columns of another label set, which has all these labels."""
        number = np.array([labels.find(name) for name in self.labels], dtype=np.int64)

        def moved(matrix: csr_array) -> csr_array:
            wide = csr_array((matrix.data, number[matrix.indices], matrix.indptr), shape=(matrix.shape[0], len(labels)))
            wide.sort_indices()
            return csr_array((wide.data, wide.indices.astype(np.int32), wide.indptr), shape=wide.shape)

        counts = np.zeros(len(labels), dtype=np.int64)
        counts[number] = self.train_counts
        thresholds = None
        if self.thresholds is not None:
            thresholds = np.full(len(labels), np.nan, dtype=np.float32)
            thresholds[number] = self.thresholds
        scores = replace(self.scores, matrix=moved(self.scores.matrix), names=labels.names)
        unknown = None if self.unknown is None else moved(self.unknown)
        pairs = moved(self.truth), moved(self.predicted)
        return Outcome(labels, *pairs, scores, counts, thresholds, self.sureness, self.weights, unknown)


def widen(matrix: csr_array, n_labels: int) -> csr_array:
    """The same matrix with more columns, which are empty."""
    return csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], n_labels))
