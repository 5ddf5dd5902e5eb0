"""Metrics of label sets, computed on sparse rows; docs/metrics.md defines every key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import ConfigError
from polytag.kernels.sparse_rows import without
from polytag.linear.class_weights import propensities
from polytag.metrics.of_rankings import calibration_error, ranking_metrics, ratio, require_same_shape
from polytag.scores import Scores

__all__ = [
    "calibration_error",
    "evaluate",
    "frequency_groups",
    "macro_f1",
    "main_metrics",
    "micro_f1",
    "propensities",
    "ranking_metrics",
    "set_metrics",
    "subset_accuracy",
]

Floats: TypeAlias = NDArray[np.float64]

GROUPS = ("head", "middle", "tail")
# A label is head, or middle, while the more frequent labels have less than this share of the training assignments.
HEAD_SHARE, MIDDLE_SHARE = 0.5, 0.9


def evaluate(
    truth: csr_array,
    predicted: csr_array | None,
    scores: Scores | None,
    *,
    train_counts: NDArray[Any] | None = None,
    train_documents: int | None = None,
    ks: Sequence[int] = (1, 3, 5),
    propensity_a: float = 0.55,
    propensity_b: float = 1.5,
    weights: NDArray[Any] | None = None,
    unknown: csr_array | None = None,
) -> dict[str, float]:
    """All metrics that apply: label sets need ``predicted``, rankings ``scores``, propensities ``train_counts``.

    ``weights`` says how much every document counts. Pairs that nobody judged (``unknown``) count neither as right nor as wrong.
    """
    if train_counts is not None and len(train_counts) != truth.shape[1]:
        raise ConfigError(f"train_counts has {len(train_counts)} entries for {truth.shape[1]} labels; give one count per label")
    if unknown is not None:
        predicted = None if predicted is None else without(predicted, unknown)
        scores = None if scores is None else scores.without(unknown)
    result: dict[str, float] = {}
    if predicted is not None:
        result |= set_metrics(truth, predicted, train_counts, weights, unknown)
    if scores is not None:
        inverse = None
        if train_counts is not None:
            if train_documents is None:
                raise ConfigError("train_counts needs train_documents, the number of training documents, for the propensities")
            inverse = 1 / propensities(train_counts, train_documents, propensity_a, propensity_b)
        result |= ranking_metrics(truth, scores, ks, inverse, weights)
    documents = truth.shape[0]
    return result | {"true_labels_per_document": truth.nnz / max(documents, 1), "documents": float(documents)}


# -- label sets --------------------------------------------------------------------------------------------------------


def micro_f1(truth: csr_array, predicted: csr_array) -> float:
    """F1 over all document-label pairs; 0 if nothing is true or predicted."""
    size = truth.nnz + predicted.nnz
    return 2 * common(truth, predicted).nnz / size if size else 0.0


def macro_f1(truth: csr_array, predicted: csr_array) -> float:
    """Mean F1 of the labels with true documents."""
    counts = per_label(truth, predicted)
    return mean(counts.f1[counts.true > 0])


def subset_accuracy(truth: csr_array, predicted: csr_array) -> float:
    """The share of documents whose predicted set equals the true set."""
    return mean(per_document(truth, predicted).exact)


def set_metrics(
    truth: csr_array,
    predicted: csr_array,
    train_counts: NDArray[Any] | None = None,
    weights: NDArray[Any] | None = None,
    unknown: csr_array | None = None,
) -> dict[str, float]:
    """Micro, macro and samples averages, subset accuracy, Hamming loss, and macro-F1 by training frequency.

    ``weights`` says how much every document counts; ``unknown`` pairs, which are not predicted, are no part of the Hamming loss.
    """
    labels, documents = per_label(truth, predicted, weights), per_document(truth, predicted)
    both = Counts(labels.hits.sum(keepdims=True), labels.predicted.sum(keepdims=True), labels.true.sum(keepdims=True))
    occurs = labels.true > 0
    wrong = both.predicted[0] + both.true[0] - 2 * both.hits[0]
    hamming = wrong / max(_pairs(truth.shape, weights, unknown), 1e-30)
    result = both.averages("micro") | labels.only(occurs).averages("macro") | {"macro_f1_all": mean(labels.f1)}
    result |= documents.averages("samples", weights) | {"subset_accuracy": mean(documents.exact, weights)}
    result |= {"hamming_loss": float(hamming), "hamming_accuracy": float(1 - hamming)}
    group = frequency_groups(labels.true if train_counts is None else train_counts)
    for number, name in enumerate(GROUPS):
        member = occurs & (group == number)
        result |= {f"{name}_macro_f1": mean(labels.f1[member]), f"{name}_labels": float(member.sum())}
    return result | {"predicted_labels_per_document": predicted.nnz / max(predicted.shape[0], 1)}


def _pairs(shape: tuple[int, ...], weights: NDArray[Any] | None, unknown: csr_array | None) -> float:
    """The pairs of documents and labels that were judged, each with the weight of its document."""
    each = np.full(shape[0], shape[1], dtype=np.float64)
    if unknown is not None:
        each -= np.diff(unknown.indptr)
    return float(each.sum() if weights is None else each @ weights)


def main_metrics(truth: csr_array, predicted: csr_array) -> dict[str, float]:
    """The metrics of label sets that a summary needs."""
    found = set_metrics(truth, predicted)
    names = ("micro_f1", "micro_precision", "micro_recall", "macro_f1", "subset_accuracy", "predicted_labels_per_document")
    return {name: found[name] for name in names}


def frequency_groups(counts: NDArray[Any], shares: Sequence[float] = (HEAD_SHARE, MIDDLE_SHARE)) -> NDArray[np.int8]:
    """0 (head), 1 (middle) or 2 (tail) per label, by the share of assignments of the more frequent labels.

    Head: the more frequent labels have less than half of all assignments. Tail: they have nine tenths or more. Equally frequent
    labels are in the same group, and a label without training documents is in the tail. Other ``shares`` give other groups.
    """
    frequency, which = np.unique(np.asarray(counts, dtype=np.float64), return_inverse=True)
    mass = frequency * np.bincount(which, minlength=len(frequency))
    before = (mass.sum() - np.cumsum(mass))[which]
    bounds = np.array(shares) * mass.sum()
    return np.asarray(np.searchsorted(bounds, before, side="right"), dtype=np.int8)


class Counts(NamedTuple):
    """Numbers of correct, predicted and true assignments, per label or per document."""

    hits: Floats
    predicted: Floats
    true: Floats

    @property
    def f1(self) -> Floats:
        """F1 of each; 0 where nothing is true or predicted."""
        return ratio(2 * self.hits, self.predicted + self.true)

    @property
    def exact(self) -> Floats:
        """1 where the predicted set equals the true set, else 0."""
        return np.asarray((self.hits == self.predicted) & (self.hits == self.true), dtype=np.float64)

    def only(self, mask: NDArray[np.bool_] | NDArray[np.int64]) -> Counts:
        """The counts of the selected labels or documents."""
        return Counts(self.hits[mask], self.predicted[mask], self.true[mask])

    def averages(self, name: str, weights: NDArray[Any] | None = None) -> dict[str, float]:
        """Mean precision, recall and F1; ``name`` is the prefix of the keys."""
        precision, recall = mean(ratio(self.hits, self.predicted), weights), mean(ratio(self.hits, self.true), weights)
        return {f"{name}_precision": precision, f"{name}_recall": recall, f"{name}_f1": mean(self.f1, weights)}


def common(truth: csr_array, predicted: csr_array) -> csr_array:
    """The assignments that are both true and predicted; scipy merges the sorted rows in one linear pass."""
    require_same_shape(truth, predicted, "predicted")
    return csr_array(truth.multiply(predicted))


def per_label(truth: csr_array, predicted: csr_array, weights: NDArray[Any] | None = None) -> Counts:
    """The counts of every label; each document counts with its weight."""
    parts = (common(truth, predicted), predicted, truth)
    each = [None if weights is None else np.repeat(weights, np.diff(m.indptr)) for m in parts]
    counts = (np.bincount(m.indices, w, minlength=truth.shape[1]) for m, w in zip(parts, each, strict=True))
    return Counts(*(count.astype(np.float64) for count in counts))


def per_document(truth: csr_array, predicted: csr_array) -> Counts:
    """The counts of every document."""
    parts = (common(truth, predicted), predicted, truth)
    return Counts(*(np.diff(m.indptr).astype(np.float64) for m in parts))


def mean(values: Floats, weights: NDArray[Any] | None = None) -> float:
    """The mean, weighted or not; 0 of nothing."""
    if weights is not None and len(values):
        return float(values @ weights / weights.sum(dtype=np.float64))
    return float(values.mean()) if len(values) else 0.0
