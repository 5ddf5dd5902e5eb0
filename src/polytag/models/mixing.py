"""How scores of several models become one: on the same labels, about the same documents, with weights that are searched for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.calibration import places_of
from polytag.decision import METRICS, NOISE
from polytag.errors import ConfigError
from polytag.labels import LabelSet, indicator_of_pairs
from polytag.models.model import HeldOut, Model, model_name
from polytag.scores import Scores
from polytag.thresholds import apply, common

if TYPE_CHECKING:
    from polytag.corpus import Corpus

UNITS = 20  # the weights that are compared are multiples of one in so many
_SHOWN = 3  # labels that an error names
_Units: TypeAlias = tuple[int, ...]


# -- the same labels ---------------------------------------------------------------------------------------------------


def columns_of(part: LabelSet, labels: LabelSet, name: str) -> NDArray[np.int32] | None:
    """For every label of a part its number here, None where all are the same; an error names the labels that differ."""
    if part.names == labels.names:
        return None
    lacking = [label for label in labels if label not in part]
    unknown = [label for label in part if label not in labels]
    if lacking or unknown:
        told = [f"it lacks {_listed(lacking)}"] if lacking else []
        told += [f"only it has {_listed(unknown)}"] if unknown else []
        raise ConfigError(f"the part {name!r} has other labels: {', and '.join(told)}; mix models that know the same labels")
    number = {label: j for j, label in enumerate(labels)}
    return np.array([number[label] for label in part], dtype=np.int32)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def aligned(scores: Scores, columns: NDArray[np.int32] | None, names: Sequence[str]) -> Scores:
    """The same scores with each label at its number here; the sets that a part decoded itself are left behind."""
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


def on_valid(model: Model, held: HeldOut, train: Corpus, valid: Corpus) -> Scores:
    """The rows of a model's held-out scores that are about the validation documents, in their order.

    Networks hold out just these. Linear models train on them too, and return scores out of fold for the training documents
    and these, fold after fold: the validation documents among them are found by dividing the documents once more.
    """
    if _same(held.truth, valid.truth):
        return held.scores
    folds, whole = getattr(model, "folds", 0), train.concat(valid)
    if folds and held.truth.shape[0] == len(whole):
        order = np.concatenate([rows for _, rows in whole.folds(folds, seed=model.seed)])
        rows = np.argsort(order)[len(train) :]  # where each validation document stands among the held-out ones
        if _same(held.truth[rows], valid.truth):
            return replace(held.scores, matrix=held.scores.matrix[rows], decoded=None, log_probability=None)
    raise ConfigError(
        f"the model {model_name(model)!r} does not say which of its held-out scores are about the validation documents; "
        "it cannot be mixed with others"
    )


def _same(one: csr_array, other: csr_array) -> bool:
    if one.shape != other.shape:
        return False
    return np.array_equal(one.indptr, other.indptr) and np.array_equal(one.indices, other.indices)


# -- the same candidates -----------------------------------------------------------------------------------------------


def candidates_of(parts: Sequence[Scores]) -> csr_array:
    """All labels that any of these scores names, as sparse rows of ones."""
    row = np.concatenate([np.repeat(np.arange(len(part)), np.diff(part.matrix.indptr)) for part in parts])
    column = np.concatenate([part.matrix.indices for part in parts])
    return indicator_of_pairs(row, column, parts[0].matrix.shape)


def with_entries(scores: Scores, labels: csr_array) -> Scores:
    """The same probabilities with an entry for each of these labels, 0 where there was none, and no others."""
    at, known = places_of(labels, scores.matrix)
    values = np.where(known, scores.matrix.data[at] if len(scores.matrix.data) else 0, 0)
    return Scores(labels, scores.names, scores.kind, scores.absent).with_values(values, scores.kind)


# -- weights -----------------------------------------------------------------------------------------------------------


def mix(parts: Sequence[Scores], weights: Sequence[float]) -> Scores:
    """The weighted sum; a part without weight has no say, not even about which labels are there."""
    used = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight > 0]
    scores, shares = [part for part, _ in used], [weight for _, weight in used]
    first = scores[0].matrix
    alike = all(np.array_equal(part.matrix.indptr, first.indptr) for part in scores)
    alike = alike and all(np.array_equal(part.matrix.indices, first.indices) for part in scores)
    if not alike or any(part.kind != "probability" for part in scores):
        mixed = Scores.mix(scores, shares)
        return mixed.with_values(np.minimum(mixed.matrix.data, 1), "probability")
    # all have the same entries: much faster than to join sparse rows
    total = np.zeros_like(scores[0].matrix.data)
    for part, weight in used:
        total += part.matrix.data * np.float32(weight)
    return scores[0].with_values(np.minimum(total, 1, out=total), "probability")  # above 1 by rounding alone


class Weighed(NamedTuple):
    """The weights that were chosen, what they reached, and all that were tried, each with what it reached."""

    weights: list[float]
    value: float
    tried: list[tuple[list[float], float]]

    def log(self, metric: str) -> dict[str, Any]:
        """As the log of a run has it; of two parts the first weight is the paper's alpha, from 0 to 1."""
        tried, values = [list(weights) for weights, _ in self.tried], [value for _, value in self.tried]
        return {"weights": self.weights, "value": self.value, "tried": tried, metric: values}


def fit_weights(parts: Sequence[Scores], truth: csr_array, metric: str, least: int) -> Weighed:
    """The weights with which one threshold for all labels does best, from a grid of 1/20.

    Two parts: all 21 mixtures are compared. More: from even weights, and from the best part alone, weight moves between two
    parts for as long as that helps. On a few hundred documents the very best of them is so by luck: the mean of all that are as
    good within the noise is taken, unless the mean itself is not as good.
    """
    values: dict[_Units, float] = {}
    if not all(part.is_full for part in parts):  # hundreds of mixtures are compared: they have the same entries
        wanted = candidates_of(parts)
        parts = [with_entries(part, wanted) for part in parts]

    def reached_with(shares: Sequence[float]) -> float:
        scores = mix(parts, shares)
        return METRICS[metric](truth, apply(scores, common(scores, truth, metric, least), least))

    def rank(units: _Units) -> tuple[float, int]:
        if units not in values:
            values[units] = round(reached_with(_shares(units)), 9)  # as good is as good, whatever the last digit
        return values[units], -sum(unit * unit for unit in units)  # of equally good ones the most even

    n = len(parts)
    alone = [tuple(UNITS if i == j else 0 for i in range(n)) for j in range(n)]
    for units in (_even(n), max(alone, key=rank)):
        while rank(better := max(_neighbours(units), key=rank)) > rank(units):
            units = better
    best = max(values, key=rank)
    while rank(better := max(_neighbours(best), key=rank)) > rank(best):  # one that was only passed by may lead on
        best = better
    tried = [(_shares(units), value) for units, value in sorted(values.items())]
    bar = values[best] - NOISE
    mean = [float(share) for share in np.mean([shares for shares, value in tried if value >= bar], axis=0)]
    value = reached_with(mean)
    return Weighed(mean, value, tried) if value >= bar else Weighed(_shares(best), values[best], tried)


def even_weights(n: int) -> list[float]:
    """The same weight for every part."""
    return [1 / n] * n


def _shares(units: _Units) -> list[float]:
    return [unit / UNITS for unit in units]


def _even(n: int) -> _Units:
    return tuple(UNITS * (i + 1) // n - UNITS * i // n for i in range(n))


def _neighbours(units: _Units) -> Iterator[_Units]:
    """All mixtures in which two parts share what they have together in another way."""
    for i, j in combinations(range(len(units)), 2):
        both = units[i] + units[j]
        for first in range(both + 1):
            yield tuple(first if at == i else both - first if at == j else unit for at, unit in enumerate(units))
