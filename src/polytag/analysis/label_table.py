"""The table of labels: precision, recall and F1 with an interval, support, threshold and training documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.analysis.result import Result
from polytag.metrics.bootstrap import f1_interval
from polytag.metrics.of_rankings import ratio
from polytag.metrics.of_sets import per_label


@dataclass(frozen=True)
class LabelRow(Result):
    """One label; ``support`` counts its true documents, ``low`` and ``high`` bound the 95% interval of F1."""

    label: str
    precision: float
    recall: float
    f1: float
    low: float
    high: float
    support: int
    predicted: int
    right: int
    threshold: float | None
    train_documents: int | None


@dataclass(frozen=True)
class LabelTable(Result):
    """A row for every label that is true or predicted anywhere, those with most true documents first."""

    rows: tuple[LabelRow, ...]
    documents: int
    silent: int


def label_table(
    truth: csr_array,
    predicted: csr_array,
    names: Sequence[str],
    *,
    thresholds: NDArray[Any] | None = None,
    train_counts: NDArray[Any] | None = None,
    rounds: int = 1000,
    seed: int = 0,
) -> LabelTable:
    """Quality of every label; ``silent`` counts the labels that are neither true nor predicted, which have no row."""
    counts = per_label(truth, predicted)
    used = np.flatnonzero(counts.true + counts.predicted)
    order = used[np.lexsort((used, -counts.true[used]))]
    chosen = counts.only(order)
    low, high = f1_interval(chosen, truth.shape[0], rounds, seed)
    columns = (ratio(chosen.hits, chosen.predicted), ratio(chosen.hits, chosen.true), chosen.f1, low, high)
    numbers = (chosen.true, chosen.predicted, chosen.hits)
    limits = [None] * len(order) if thresholds is None else np.broadcast_to(thresholds, truth.shape[1])[order].tolist()
    train = [None] * len(order) if train_counts is None else np.asarray(train_counts)[order].astype(int).tolist()
    rows = zip(
        (names[j] for j in order.tolist()), *(c.tolist() for c in columns), *(c.astype(int).tolist() for c in numbers),
        limits, train, strict=True,
    )  # fmt: skip
    return LabelTable(tuple(LabelRow(*row) for row in rows), truth.shape[0], truth.shape[1] - len(used))
