"""Quality by number of true labels (SGM, figure 3) and by training frequency (LACO, figure 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.analysis.result import Result
from polytag.errors import ConfigError
from polytag.metrics.bootstrap import bootstrap_interval
from polytag.metrics.of_sets import frequency_groups, per_label, set_metrics

FREQUENCY_NAMES = ("big head", "high", "middle", "low")
FREQUENCY_SHARES = (0.5, 0.75, 0.9)  # shares of the training assignments that the more frequent labels have


@dataclass(frozen=True)
class LabelCountRow(Result):
    """Documents with ``least`` to ``most`` true labels; ``low`` and ``high`` bound the 95% interval of micro-F1."""

    name: str
    least: int
    most: int
    documents: int
    micro_f1: float
    low: float
    high: float
    micro_precision: float
    micro_recall: float
    subset_accuracy: float
    hamming_loss: float
    predicted_per_document: float


@dataclass(frozen=True)
class ByLabelCount(Result):
    """One row per number of true labels, ascending; neighbouring numbers with few documents share a row."""

    rows: tuple[LabelCountRow, ...]


@dataclass(frozen=True)
class FrequencyRow(Result):
    """Labels of one frequency group; ``low`` and ``high`` bound the 95% interval of macro-F1.

    ``labels`` counts the labels of the group, ``tested`` those with true documents, over which macro-F1 is the mean.
    """

    name: str
    labels: int
    tested: int
    least_documents: int
    most_documents: int
    share: float
    macro_f1: float
    low: float
    high: float
    micro_f1: float


@dataclass(frozen=True)
class ByFrequency(Result):
    """The four groups, most frequent first, and the training documents of every label in descending order."""

    rows: tuple[FrequencyRow, ...]
    frequencies: tuple[int, ...]


def by_label_count(truth: csr_array, predicted: csr_array, *, least: int = 20, rounds: int = 1000, seed: int = 0) -> ByLabelCount:
    """Quality by the number of true labels; a row has at least ``least`` documents, if the corpus has."""
    number = np.diff(truth.indptr)
    rows = []
    for low, high in _merged(np.bincount(number), least):
        chosen = np.flatnonzero((number >= low) & (number <= high))
        true, guessed = truth[chosen], predicted[chosen]
        found, interval = set_metrics(true, guessed), bootstrap_interval(true, guessed, "micro_f1", rounds, seed)
        rows.append(
            LabelCountRow(
                name=str(low) if low == high else f"{low}-{high}",
                least=low,
                most=high,
                documents=len(chosen),
                low=interval.low,
                high=interval.high,
                predicted_per_document=found["predicted_labels_per_document"],
                **{key: found[key] for key in _COUNT_METRICS},
            )
        )
    return ByLabelCount(tuple(rows))


_COUNT_METRICS = ("micro_f1", "micro_precision", "micro_recall", "subset_accuracy", "hamming_loss")


def _merged(documents: NDArray[Any], least: int) -> list[tuple[int, int]]:
    """Ranges of counts, each with at least ``least`` documents; a last range that has fewer joins the one before."""
    ranges: list[tuple[int, int]] = []
    start, total = -1, 0
    for count in np.flatnonzero(documents).tolist():
        start = count if start < 0 else start
        total += int(documents[count])
        if total >= least:
            ranges.append((start, count))
            start, total = -1, 0
    if start >= 0:
        end = int(np.flatnonzero(documents)[-1])
        ranges = [*ranges[:-1], (ranges[-1][0], end)] if ranges else [(start, end)]
    return ranges


def by_frequency(
    truth: csr_array, predicted: csr_array, train_counts: NDArray[Any], *, rounds: int = 1000, seed: int = 0
) -> ByFrequency:
    """Macro-F1 in four groups of labels by their training documents.

    The groups end where the more frequent labels have 50%, 75% and 90% of the training assignments. So ``big head`` is the head
    and ``low`` the tail of ``polytag evaluate``.
    """
    counts = np.asarray(train_counts)
    if len(counts) != truth.shape[1]:
        raise ConfigError(f"train_counts has {len(counts)} entries for {truth.shape[1]} labels; give one count per label")
    group = frequency_groups(counts, FREQUENCY_SHARES)
    rows = [_frequency_row(truth, predicted, counts, group == at, name, rounds, seed) for at, name in enumerate(FREQUENCY_NAMES)]
    return ByFrequency(tuple(rows), tuple(np.sort(counts)[::-1].astype(int).tolist()))


def _frequency_row(
    truth: csr_array, predicted: csr_array, counts: NDArray[Any], member: NDArray[np.bool_], name: str, rounds: int, seed: int
) -> FrequencyRow:
    labels = np.flatnonzero(member)
    true, guessed = csr_array(truth[:, labels]), csr_array(predicted[:, labels])
    found = set_metrics(true, guessed)
    interval = bootstrap_interval(true, guessed, "macro_f1", rounds, seed)
    return FrequencyRow(
        name, len(labels), int((per_label(true, guessed).true > 0).sum()), int(counts[labels].min(initial=counts.max(initial=0))),
        int(counts[labels].max(initial=0)), float(counts[labels].sum() / max(counts.sum(), 1)),
        found["macro_f1"], interval.low, interval.high, found["micro_f1"],
    )  # fmt: skip
