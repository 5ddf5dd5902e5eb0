"""What changes from one system to another: documents that gain or lose a label, and which side the truth takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from polytag.analysis.result import Result
from polytag.kernels.sparse_rows import places_of
from polytag.metrics.of_rankings import require_same_shape
from polytag.scores import Scores


@dataclass(frozen=True)
class Reason(Result):
    """A word, and what it contributes to the label's score in the system that gives the label."""

    text: str
    contribution: float


@dataclass(frozen=True)
class Change(Result):
    """A document that gains or loses a label; ``true`` says whether the label belongs to it, None if that is unknown.

    ``better`` is ``new``, ``old``, or None without truth. A score is None where the system has none for the label.
    """

    id: str
    row: int
    change: str
    true: bool | None
    better: str | None
    old_score: float | None
    new_score: float | None
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class LabelChange(Result):
    """All changes of one label."""

    label: str
    gained: int
    lost: int
    new_is_right: int
    old_is_right: int
    documents: tuple[Change, ...]


@dataclass(frozen=True)
class LabelChanges(Result):
    """The changes of all labels, those with most changes first."""

    documents: int
    changed_documents: int
    changes: int
    new_is_right: int | None
    old_is_right: int | None
    rows: tuple[LabelChange, ...]


def label_changes(
    old: csr_array,
    new: csr_array,
    names: Sequence[str],
    ids: Sequence[str],
    *,
    truth: csr_array | None = None,
    old_scores: Scores | None = None,
    new_scores: Scores | None = None,
) -> LabelChanges:
    """Which documents gain or lose which labels between two predictions for the same documents and labels."""
    require_same_shape(old, new, "the new prediction")
    change = coo_array(csr_array(new) - csr_array(old))
    change.eliminate_zeros()
    order = np.lexsort((change.row, change.col))
    rows, labels, sign = change.row[order], change.col[order], np.sign(change.data[order]).astype(int)
    true = None if truth is None else _values(truth, rows, labels, missing=0.0) > 0
    right = None if true is None else true == (sign > 0)
    before, after = (_scores(one, rows, labels) for one in (old_scores, new_scores))
    each = [
        Change(
            ids[i],
            i,
            "gained" if s > 0 else "lost",
            None if true is None else bool(true[at]),
            None if right is None else "new" if right[at] else "old",
            before[at],
            after[at],
        )
        for at, (i, s) in enumerate(zip(rows.tolist(), sign.tolist(), strict=True))
    ]
    starts = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]]) if len(labels) else np.zeros(0, dtype=int)
    grouped = [_grouped(names[labels[start]], each[start:end]) for start, end in _spans(starts, len(labels))]
    grouped.sort(key=lambda row: (-len(row.documents), row.label))
    new_right, old_right = (None, None) if right is None else (int(right.sum()), int((~right).sum()))
    return LabelChanges(len(ids), len(np.unique(rows)), len(each), new_right, old_right, tuple(grouped))


def _spans(starts: NDArray[np.int64], end: int) -> list[tuple[int, int]]:
    return list(zip(starts.tolist(), [*starts[1:].tolist(), end], strict=True)) if len(starts) else []


def _grouped(label: str, changes: list[Change]) -> LabelChange:
    gained = sum(one.change == "gained" for one in changes)
    right = sum(one.better == "new" for one in changes), sum(one.better == "old" for one in changes)
    return LabelChange(label, gained, len(changes) - gained, *right, tuple(changes))


def _values(matrix: csr_array, rows: NDArray[np.int32], labels: NDArray[np.int32], missing: float) -> NDArray[np.float64]:
    """The values of these entries; ``missing`` where there is none."""
    order = np.lexsort((labels, rows))
    indptr = np.searchsorted(rows[order], np.arange(matrix.shape[0] + 1))
    asked = csr_array((np.ones(len(order)), labels[order], indptr), shape=matrix.shape)
    at, known = places_of(asked, matrix)
    found = np.full(len(order), missing)
    found[order[known]] = matrix.data[at[known]]
    return found


def _scores(scores: Scores | None, rows: NDArray[np.int32], labels: NDArray[np.int32]) -> list[float | None]:
    if scores is None:
        return [None] * len(rows)
    found = _values(scores.matrix, rows, labels, missing=np.nan)
    return [None if np.isnan(value) else value for value in found.tolist()]
