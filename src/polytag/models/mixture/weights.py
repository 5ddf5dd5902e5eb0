"""Ensemble scores: alignment of labels, documents and candidates, and the choice of weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision.decision import METRICS, NOISE
from polytag.decision.thresholds import apply, common
from polytag.errors import ConfigError
from polytag.kernels.sparse_rows import places_of
from polytag.labels import LabelSet, indicator_of_pairs
from polytag.metrics.of_rankings import precisions
from polytag.models.model import HeldOut, Model, model_name
from polytag.scores import Scores

UNITS = 20  # the compared weights are multiples of 1 / 20
_SHOWN = 3  # maximum number of labels in an error message
_Units: TypeAlias = tuple[int, ...]


# -- the same labels ---------------------------------------------------------------------------------------------------


def columns_of(part: LabelSet, labels: LabelSet, name: str) -> NDArray[np.int32] | None:
    """The ensemble's index of every label of a member, None if they are identical; raise if the label sets differ."""
    if part.names == labels.names:
        return None
    lacking = [label for label in labels if label not in part]
    unknown = [label for label in part if label not in labels]
    if lacking or unknown:
        reasons = [f"it lacks {_listed(lacking)}"] if lacking else []
        reasons += [f"only it has {_listed(unknown)}"] if unknown else []
        raise ConfigError(f"the part {name!r} has other labels: {', and '.join(reasons)}; combine models with the same labels")
    number = {label: j for j, label in enumerate(labels)}
    return np.array([number[label] for label in part], dtype=np.int32)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def aligned(scores: Scores, columns: NDArray[np.int32] | None, names: Sequence[str]) -> Scores:
    """The same scores with the ensemble's label indices; decoded sets are dropped."""
    m = scores.matrix
    if columns is None:
        return replace(scores, names=names, decoded=None, log_probability=None)
    if scores.is_full:
        table = np.empty(m.shape, dtype=np.float32)
        table[:, columns] = m.data.reshape(m.shape)
        return Scores.full(table, names, scores.kind)
    matrix = csr_array((m.data.copy(), columns[m.indices], m.indptr.copy()), shape=m.shape)
    matrix.sort_indices()
    return Scores(matrix, names, scores.kind, scores.absent)


# -- the same documents ------------------------------------------------------------------------------------------------


def on_valid(model: Model, held: HeldOut, n_train: int, truth: csr_array) -> Scores:
    """The rows of a model's held-out scores that belong to the validation documents, in their order.

    Networks hold out exactly these. Linear models also train on them and return out-of-fold scores of all documents;
    ``HeldOut.rows`` has their indices.
    """
    n = int(truth.shape[0])
    place = np.full(n_train + n, -1)
    if held.rows is not None:
        place[held.rows] = np.arange(len(held.rows))
    elif held.truth.shape[0] == n:
        place[n_train:] = np.arange(n)
    rows = place[n_train:]
    if (rows >= 0).all() and _same(held.truth[rows], truth):
        if np.array_equal(rows, np.arange(len(held.scores))):
            return held.scores
        return replace(held.scores, matrix=held.scores.matrix[rows], decoded=None, log_probability=None)
    raise ConfigError(
        f"the model {model_name(model)!r} does not return the rows of its held-out scores; set HeldOut.rows in its fit, "
        "or leave it out of the ensemble"
    )


def _same(one: csr_array, other: csr_array) -> bool:
    if one.shape != other.shape:
        return False
    return np.array_equal(one.indptr, other.indptr) and np.array_equal(one.indices, other.indices)


# -- the same candidates -----------------------------------------------------------------------------------------------


def candidates_of(parts: Sequence[Scores]) -> csr_array:
    """The union of the labels that have a score, as sparse rows of ones."""
    row = np.concatenate([np.repeat(np.arange(len(part)), np.diff(part.matrix.indptr)) for part in parts])
    column = np.concatenate([part.matrix.indices for part in parts])
    return indicator_of_pairs(row, column, parts[0].matrix.shape)


def with_entries(scores: Scores, labels: csr_array) -> Scores:
    """The same probabilities with exactly these labels as entries, 0 where there was none."""
    at, known = places_of(labels, scores.matrix)
    values = np.where(known, scores.matrix.data[at] if len(scores.matrix.data) else 0, 0)
    return Scores(labels, scores.names, scores.kind, scores.absent).with_values(values, scores.kind)


# -- weights -----------------------------------------------------------------------------------------------------------


def mix(parts: Sequence[Scores], weights: Sequence[float]) -> Scores:
    """The weighted sum; the entries of a member with weight 0 are ignored."""
    used = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight > 0]
    scores, shares = [part for part, _ in used], [weight for _, weight in used]
    first = scores[0].matrix
    alike = all(np.array_equal(part.matrix.indptr, first.indptr) for part in scores)
    alike = alike and all(np.array_equal(part.matrix.indices, first.indices) for part in scores)
    if not alike or any(part.kind != "probability" for part in scores):
        mixed = Scores.mix(scores, shares)
        return mixed.with_values(np.minimum(mixed.matrix.data, 1), "probability")
    # all have the same entries: much faster than merging sparse rows
    total = np.zeros_like(scores[0].matrix.data)
    for part, weight in used:
        total += part.matrix.data * np.float32(weight)
    return scores[0].with_values(np.minimum(total, 1, out=total), "probability")  # rounding can exceed 1


class Weighed(NamedTuple):
    """The chosen weights, their metric, and all compared weights with their metrics."""

    weights: list[float]
    value: float
    tried: list[tuple[list[float], float]]

    def log(self, metric: str) -> dict[str, Any]:
        """The values for the run's log; with two members, the first weight is the paper's alpha."""
        tried, values = [list(weights) for weights, _ in self.tried], [value for _, value in self.tried]
        return {"weights": self.weights, "value": self.value, "tried": tried, metric: values}


PRECISION = "precision"
"""The mean of P@1, P@3 and P@5, as a metric of weights."""


def fit_weights(parts: Sequence[Scores], truth: csr_array, metric: str, least: int) -> Weighed:
    """The weights on a grid of 1/20 that maximise the metric with one global threshold, or with ``PRECISION`` that of rankings.

    With two members, all 21 weights are compared. With more, a local search starts from even weights and from the best single
    member. It moves weight between two members while that improves the metric. On a few hundred documents the maximum is noisy.
    So the mean of all weights within the noise of the best is chosen, unless the mean itself is worse.
    """
    values: dict[_Units, float] = {}
    if not all(part.is_full for part in parts):  # align the entries once, because hundreds of sums are compared
        wanted = candidates_of(parts)
        parts = [with_entries(part, wanted) for part in parts]

    def reached_with(shares: Sequence[float]) -> float:
        scores = mix(parts, shares)
        if metric == PRECISION:
            return float(precisions(truth, scores).mean())
        return METRICS[metric](truth, apply(scores, common(scores, truth, metric, least), least))

    def rank(units: _Units) -> tuple[float, int]:
        if units not in values:
            values[units] = round(reached_with(_shares(units)), 9)  # so that rounding errors do not break ties
        return values[units], -sum(unit * unit for unit in units)  # ties: the most even weights

    n = len(parts)
    alone = [tuple(UNITS if i == j else 0 for i in range(n)) for j in range(n)]
    for units in (_even(n), max(alone, key=rank)):
        while rank(better := max(_neighbours(units), key=rank)) > rank(units):
            units = better
    best = max(values, key=rank)
    while rank(better := max(_neighbours(best), key=rank)) > rank(best):  # the best may not be an end point
        best = better
    tried = [(_shares(units), value) for units, value in sorted(values.items())]
    bar = values[best] - NOISE
    mean = [float(share) for share in np.mean([shares for shares, value in tried if value >= bar], axis=0)]
    value = reached_with(mean)
    return Weighed(mean, value, tried) if value >= bar else Weighed(_shares(best), values[best], tried)


def even_weights(n: int) -> list[float]:
    """The same weight for every member."""
    return [1 / n] * n


def _shares(units: _Units) -> list[float]:
    return [unit / UNITS for unit in units]


def _even(n: int) -> _Units:
    return tuple(UNITS * (i + 1) // n - UNITS * i // n for i in range(n))


def _neighbours(units: _Units) -> Iterator[_Units]:
    """All weights that differ in how two members divide their sum."""
    for i, j in combinations(range(len(units)), 2):
        both = units[i] + units[j]
        for first in range(both + 1):
            yield tuple(first if at == i else both - first if at == j else unit for at, unit in enumerate(units))
