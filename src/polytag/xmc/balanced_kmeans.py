"""Balanced spherical k-means by recursive bisection of sparse rows, dense rows or both; one thread per bisection."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.kernels.array_views import unlocked, unlocked_rows
from polytag.kernels.compiler import kernel
from polytag.kernels.threads import in_threads

_SAMPLE = 20_000  # rows sampled to find the two centres of a larger cluster; all of its rows are then assigned
_TRIED = 10  # rows from which the two initial centres are chosen
_ROUNDS = 20
_PRECISION = 1e-4  # k-means stops when the mean similarity increases by less


@dataclass(frozen=True)
class Vectors:
    """One vector per label: a sparse part, a dense part, or both concatenated; zeros if nothing is known."""

    sparse: csr_array
    dense: NDArray[np.float32]

    def __post_init__(self) -> None:
        """Check that both parts have the same number of rows."""
        if self.sparse.shape[0] != self.dense.shape[0]:
            raise ValueError(f"{self.sparse.shape[0]} sparse and {self.dense.shape[0]} dense rows")

    def __len__(self) -> int:
        """The number of labels."""
        return int(self.sparse.shape[0])

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which labels have a non-zero vector."""
        return np.asarray((np.diff(self.sparse.indptr) > 0) | self.dense.any(axis=1))


@kernel(
    "void(int64[::1],int32[::1],float32[::1],float32[:,::1],int32[::1],float32[::1],float32[::1],float32[::1])", fastmath=True
)
def _similarities(indptr: Any, indices: Any, data: Any, dense: Any, rows: Any, direction: Any, flat: Any, out: Any) -> None:
    """The dot product of each row with the difference of the two centres: positive if the left centre is nearer."""
    for i in range(len(rows)):
        r = rows[i]
        total = np.float32(0.0)
        for p in range(indptr[r], indptr[r + 1]):
            total += data[p] * direction[indices[p]]
        for d in range(dense.shape[1]):
            total += dense[r, d] * flat[d]
        out[i] = total


@kernel("void(int64[::1],int32[::1],float32[::1],float32[:,::1],int32[::1],float32,float32[::1],float32[::1])", fastmath=True)
def _add_rows(indptr: Any, indices: Any, data: Any, dense: Any, rows: Any, times: Any, total: Any, flat: Any) -> None:
    """Add rows, ``times`` 1 or -1, to the sum of a cluster."""
    for i in range(len(rows)):
        r = rows[i]
        for p in range(indptr[r], indptr[r + 1]):
            total[indices[p]] += times * data[p]
        for d in range(dense.shape[1]):
            flat[d] += times * dense[r, d]


@kernel("float64(float32[::1],float32[::1],int32[::1],float32[::1],float32[::1],float32[::1],float32[::1])", fastmath=True)
def _between(total: Any, left: Any, touched: Any, whole: Any, part: Any, direction: Any, flat: Any) -> Any:
    """Write the difference of the two unit centres, clear the left sums, and return the sum of all similarities."""
    a = b = 0.0
    for q in range(len(touched)):
        f = touched[q]
        a += left[f] * left[f]
        b += (total[f] - left[f]) ** 2
    for d in range(len(whole)):
        a += part[d] * part[d]
        b += (whole[d] - part[d]) ** 2
    a, b = np.sqrt(a), np.sqrt(b)
    x, y = np.float32(1 / max(a, 1e-12)), np.float32(1 / max(b, 1e-12))
    for q in range(len(touched)):
        f = touched[q]
        direction[f] = left[f] * x - (total[f] - left[f]) * y
        left[f] = 0
    for d in range(len(whole)):
        flat[d] = part[d] * x - (whole[d] - part[d]) * y
        part[d] = 0
    return a + b


@kernel("int64(int64[::1],int32[::1],int32[::1],float32[::1],int32[::1])")
def _touched(indptr: Any, indices: Any, rows: Any, total: Any, found: Any) -> int:
    """Write the distinct columns of the rows, and return their number; ``total`` is zero on entry and on return."""
    count = 0
    for i in range(len(rows)):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            if total[indices[p]] == 0:
                total[indices[p]] = 1
                found[count] = indices[p]
                count += 1
    for q in range(count):
        total[found[q]] = 0
    return count


def _halve(
    arrays: tuple[Any, ...], rows: NDArray[np.int32], n_left: int, some: NDArray[np.int32], tried: NDArray[np.int32],
    scratch: NDArray[np.float32], found: NDArray[np.int32],
) -> None:  # fmt: skip
    """Order the rows of a cluster so that the first ``n_left`` are its left half.

    The centres are fitted on the rows ``some``. They start at the first of the rows ``tried`` and the other one with the lowest
    similarity to it. ``scratch`` (3, columns) is zero on entry and on return; ``found`` (columns) is a buffer.
    """
    n, one = len(rows), np.float32(1)
    share = n_left if n == len(some) else min(max(round(n_left * len(some) / n), 1), len(some) - 1)
    direction, total, left = scratch[0], scratch[1], scratch[2]
    flat, whole, part = np.zeros((3, arrays[3].shape[1]), dtype=np.float32)
    touched = found[: _touched(*arrays[:2], some, total, found)]
    _add_rows(*arrays, some, one, total, whole)
    _add_rows(*arrays, tried[:1], one, direction, flat)
    likeness = np.empty(max(n, len(tried)), dtype=np.float32)
    _similarities(*arrays, tried[1:], direction, flat, likeness)
    second = 1 + int(np.argmin(likeness[: len(tried) - 1]))
    _add_rows(*arrays, tried[second : second + 1], -one, direction, flat)
    before = -1.0
    for _ in range(_ROUNDS):
        some = some[_by_likeness(arrays, some, direction, flat, likeness)]
        _add_rows(*arrays, some[:share], one, left, part)
        now = _between(total, left, touched, whole, part, direction, flat) / len(some)
        if now - before < _PRECISION:
            break
        before = now
    rows[:] = rows[_by_likeness(arrays, rows, direction, flat, likeness)]
    direction[touched] = 0
    total[touched] = 0


def _by_likeness(arrays: tuple[Any, ...], rows: Any, direction: Any, flat: Any, likeness: Any) -> NDArray[np.int64]:
    """The order of the rows, those that are nearest to the left centre first."""
    _similarities(*arrays, rows, direction, flat, likeness)
    return np.argsort(-likeness[: len(rows)], kind="stable")


def sizes(n: int, k: int) -> NDArray[np.int64]:
    """The sizes of k parts of n items; they differ by at most one."""
    return np.full(k, n // k, dtype=np.int64) + (np.arange(k) < n % k)


def balanced_order(vectors: Vectors, levels: list[NDArray[np.int64]], seed: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The labels ordered by leaf, and the offset of each leaf; leaf sizes differ by at most one.

    ``levels`` has, for each depth above the leaves, the offsets of each node's children. Labels without a vector are spread
    over all leaves.
    """
    leaves = int(levels[-1][-1]) if levels else 1
    known = vectors.known
    rows = np.flatnonzero(known).astype(np.int32)
    bounds = np.concatenate([[0], np.cumsum(sizes(len(rows), leaves))])
    arrays = (*unlocked_rows(vectors.sparse), unlocked(vectors.dense, np.float32))
    scratch = threading.local()

    def halve(piece: tuple[int, int, int, int]) -> None:
        lo, middle, hi, number = piece
        if bounds[lo] == bounds[middle] or bounds[middle] == bounds[hi]:
            return
        if not hasattr(scratch, "zeros"):
            scratch.zeros = np.zeros((3, max(vectors.sparse.shape[1], 1)), dtype=np.float32)
            scratch.found = np.empty(scratch.zeros.shape[1], dtype=np.int32)
        part = rows[bounds[lo] : bounds[hi]]
        generator = np.random.default_rng([seed, number])
        some = part.copy() if len(part) <= _SAMPLE else part[generator.choice(len(part), _SAMPLE, replace=False)]
        tried = some[generator.choice(len(some), min(_TRIED, len(some)), replace=False)]
        _halve(arrays, part, int(bounds[middle] - bounds[lo]), some, tried, scratch.zeros, scratch.found)

    for generation in _generations(levels):
        for _ in in_threads(halve, generation):
            pass
    return _with_unknown(rows, bounds, np.flatnonzero(~known).astype(np.int32))


def _generations(levels: list[NDArray[np.int64]]) -> list[list[tuple[int, int, int, int]]]:
    """The bisections from the root, grouped into those that can run in parallel: first, middle and last leaf, and a number."""
    below: list[Any] = [np.arange(int(levels[-1][-1]) + 1)] if levels else []
    for starts in reversed(levels[1:]):  # for each depth, the offsets of the leaves under each of its nodes
        below.insert(0, below[0][starts])
    work = [(0, 0, int(levels[0][-1]))] if levels else []
    generations, number = [], 0
    while work:
        generation, following = [], []
        for depth, a, b in work:
            while b - a == 1 and depth + 1 < len(levels):
                depth, a, b = depth + 1, int(levels[depth + 1][a]), int(levels[depth + 1][b])
            if b - a > 1:
                middle = (a + b) // 2
                generation.append((int(below[depth][a]), int(below[depth][middle]), int(below[depth][b]), number))
                number += 1
                following += [(depth, a, middle), (depth, middle, b)]
        generations.append(generation)
        work = following
    return generations


def _with_unknown(
    rows: NDArray[np.int32], bounds: NDArray[np.int64], unknown: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Distribute the labels without a vector over the leaves, smaller leaves first."""
    leaves = len(bounds) - 1
    leaf = np.concatenate([np.repeat(np.arange(leaves), np.diff(bounds)), (len(rows) + np.arange(len(unknown))) % leaves])
    order = np.argsort(leaf, kind="stable")
    return np.concatenate([rows, unknown])[order], np.concatenate([[0], np.cumsum(np.bincount(leaf, minlength=leaves))])
