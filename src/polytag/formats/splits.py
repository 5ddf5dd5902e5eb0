"""Splits of documents: random, by group, by time, or stratified by label; pure functions with a seed."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import ConfigError, DataError, brief
from polytag.formats.inputs import checked_count, checked_seed

By: TypeAlias = Literal["random", "group", "stratified", "time"]
Rows: TypeAlias = NDArray[np.int64]


def split_rows(
    by: By, fractions: Sequence[float], n: int, truth: csr_array, groups: Sequence[str] | None, seed: int = 0
) -> list[Rows]:
    """The rows of every part, ascending; every document is in exactly one part."""
    _check(fractions)
    rng = np.random.default_rng(checked_seed(seed))
    if by == "random":
        part = random_parts(n, fractions, rng)
    elif by == "stratified":
        part = stratified_parts(truth, fractions, rng)
    elif by in ("group", "time"):
        if groups is None:
            raise DataError(f"these documents have no {by} to split by; name its column when the corpus is read (group=)")
        part = group_parts(groups, fractions, rng) if by == "group" else time_parts(groups, fractions)
    else:
        raise ConfigError(f"cannot split by {by!r}; known: random, group, stratified, time")
    return [np.flatnonzero(part == number) for number in range(len(fractions))]


def fold_rows(by: By, k: int, n: int, truth: csr_array, groups: Sequence[str] | None, seed: int = 0) -> list[tuple[Rows, Rows]]:
    """The k pairs of training rows and held-out rows; every document is held out exactly once."""
    k = checked_count(k, n + 1, least=0, name="the number of folds")
    if not 2 <= k <= n:
        raise ConfigError(
            f"cannot make {k} folds of {n} documents; the number of folds must be from 2 to the number of documents"
        )
    parts = split_rows(by, [1 / k] * k, n, truth, groups, seed)
    return [(np.setdiff1d(np.arange(n), held, assume_unique=True), held) for held in parts]


def _check(fractions: Sequence[float]) -> None:
    numbers = all(isinstance(fraction, int | float | np.integer | np.floating) for fraction in fractions)
    if not fractions or not numbers or any(not 0 < part <= 1 for part in fractions) or abs(sum(fractions) - 1) > 1e-6:
        raise ConfigError(f"the fractions {brief(tuple(fractions))} must be positive and sum to 1, as in 0.8, 0.1, 0.1")


def random_parts(n: int, fractions: Sequence[float], rng: np.random.Generator) -> Rows:
    """The part of every document, at random; sizes are the rounded fractions."""
    ends = np.rint(np.cumsum(fractions) * n).astype(np.int64)
    ends[-1] = n
    part = np.empty(n, dtype=np.int64)
    part[rng.permutation(n)] = np.searchsorted(ends, np.arange(n), side="right")
    return part


def group_parts(groups: Sequence[str], fractions: Sequence[float], rng: np.random.Generator) -> Rows:
    """The part of every document; documents of one group stay together, and an empty group name means no group.

    Groups are assigned in random order. Each goes to a random part with enough room, weighted by that room, so that large groups
    may be in any part. If no part has enough room, the group goes to the part with the most room.
    """
    members: dict[str | int, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group or row, []).append(row)
    rows_of = list(members.values())
    part = np.empty(len(groups), dtype=np.int64)
    room = np.asarray(fractions, dtype=np.float64) * len(groups)
    chance = rng.random(len(rows_of))
    for number, at in enumerate(rng.permutation(len(rows_of))):
        rows = rows_of[at]
        weights = np.cumsum(np.where(room >= len(rows), room, 0))
        total = float(weights[-1])
        chosen = int(np.searchsorted(weights, chance[number] * total, side="right")) if total > 0 else int(np.argmax(room))
        part[rows] = chosen
        room[chosen] -= len(rows)
    return part


def time_parts(times: Sequence[str], fractions: Sequence[float]) -> Rows:
    """The part of every document, the oldest documents in the first part; documents of one time stay together.

    Times are numbers, or text that sorts by time, such as 2026-11-16. A document without a time is an error.
    """
    if missing := [row for row, time in enumerate(times) if not time.strip()]:
        raise DataError(f"document {missing[0] + 1} has no time; fill in the column, or split another way")
    try:
        values = np.array([float(time) for time in times])
    except ValueError:
        values = np.unique(np.array(times), return_inverse=True)[1].astype(np.float64)
    order = np.argsort(values, kind="stable")
    ends = np.rint(np.cumsum(fractions) * len(times)).astype(np.int64)
    part = np.empty(len(times), dtype=np.int64)
    part[order] = np.searchsorted(ends[:-1], np.arange(len(times)), side="right")
    for time in np.unique(values[order][np.clip(ends[:-1], 0, len(times) - 1)]):  # only times at a boundary may be divided
        same = values == time
        part[same] = part[same].min()
    return part


def stratified_parts(truth: csr_array, fractions: Sequence[float], rng: np.random.Generator) -> Rows:
    """The part of every document by iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011).

    The label with the fewest remaining documents comes first. Each of its documents goes to the part that lacks most documents of
    this label; ties go to the part that lacks most documents, then to a random one. Documents without labels come last.
    """
    n, n_labels = truth.shape
    order = rng.permutation(n)
    turn = rng.integers(len(fractions), size=n).tolist()
    labels_of = [row.tolist() for row in np.split(truth.indices, truth.indptr[1:-1])] if n else []
    documents_of: list[list[int]] = [[] for _ in range(n_labels)]
    for row in order.tolist():
        for label in labels_of[row]:
            documents_of[label].append(row)
    left = [len(rows) for rows in documents_of]
    wanted = [[fraction * count for count in left] for fraction in fractions]
    size = [fraction * n for fraction in fractions]
    part = [-1] * n

    heap = [(count, label) for label, count in enumerate(left) if count]
    heapq.heapify(heap)
    while heap:
        count, label = heapq.heappop(heap)
        if count != left[label] or not count:
            continue  # an outdated entry: another label has taken some of its documents
        touched: set[int] = set()
        for row in documents_of[label]:
            if part[row] >= 0:
                continue
            part[row] = chosen = _most_lacking([want[label] for want in wanted], size, turn[row])
            size[chosen] -= 1
            for other in labels_of[row]:
                wanted[chosen][other] -= 1
                left[other] -= 1
            touched.update(labels_of[row])
        for other in touched:
            heapq.heappush(heap, (left[other], other))
    for row in order.tolist():
        if part[row] < 0:
            part[row] = chosen = _most_lacking(size, size, turn[row])
            size[chosen] -= 1
    return np.array(part, dtype=np.int64)


def _most_lacking(want: list[float], size: list[float], turn: int) -> int:
    """The part with the largest ``want``; ties go to the one that lacks most documents, then to the first from ``turn`` on."""
    k = len(want)
    best = turn
    for step in range(1, k):
        at = (turn + step) % k
        if want[at] > want[best] or (want[at] == want[best] and size[at] > size[best]):
            best = at
    return best
