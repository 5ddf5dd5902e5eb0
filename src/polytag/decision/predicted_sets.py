"""Predictions: the labels of a document with their scores, best first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.kernels.sparse_rows import places_of
from polytag.scores import Scores


class _Labelled(NamedTuple):
    labels: list[str]
    scores: list[float]


class Prediction(_Labelled):
    """The predicted labels of one document, best first, and their scores.

    ``ask`` says whether to leave the document to a person; None if that was not asked.
    """

    ask: bool | None = None


def predictions(
    scores: Scores, decided: csr_array | None, top: int | None, asked: NDArray[np.bool_] | None = None
) -> Iterator[Prediction]:
    """One prediction per document: the ``top`` best labels, or the decided ones; ``asked`` says which to leave to a person."""
    rows: Iterator[list[list[Any]]]
    if top is not None:
        rows = ([list(column) for column in zip(*row, strict=True)] or [[], []] for row in scores.top(top))
    else:
        assert decided is not None
        rows = _sets(scores, decided)
    for (labels, values), unsure in zip(rows, repeat(None, len(scores)) if asked is None else asked.tolist(), strict=True):
        prediction = Prediction(labels, values)
        prediction.ask = unsure
        yield prediction


def _sets(scores: Scores, decided: csr_array) -> Iterator[list[list[Any]]]:
    """The decided labels of every document and their scores, best first."""
    at, known = places_of(decided, scores.matrix)
    found = np.full(len(at), scores.absent)
    found[known] = scores.matrix.data[at[known]]
    rows = np.repeat(np.arange(len(scores)), np.diff(decided.indptr))
    order = np.lexsort((-found, rows))  # stable: equal scores keep the order of the labels
    labels, values = decided.indices[order].tolist(), found[order].tolist()
    for start, stop in pairwise(decided.indptr.tolist()):
        yield [[scores.names[label] for label in labels[start:stop]], values[start:stop]]
