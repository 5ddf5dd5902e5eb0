"""The most similar rows of a sparse matrix, by the products of rows of unit length, through an index of the columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.kernels.array_views import unlocked_rows
from polytag.kernels.compiler import kernel
from polytag.kernels.threads import in_threads, tile_size

_TILE = 1024  # rows that a thread handles at once
_LEAST, _MOST, _SHARE = 100, 2000, 20  # a column in more rows than a twentieth, within these limits, is not compared


class Nearest(NamedTuple):
    """The k most similar rows, best first: numbers padded with -1, and products (rows, k)."""

    rows: NDArray[np.int32]
    similarity: NDArray[np.float32]


@kernel(
    "void(int64[::1],int32[::1],float32[::1],int64[::1],int32[::1],float32[::1],int64,int64,int64,int64,"
    "int32[:,::1],float32[:,::1])"
)
def nearest_of_tile(
    indptr: Any, indices: Any, data: Any, by_column: Any, members: Any, values: Any, start: int, stop: int, n: int, itself: int,
    found: Any, best: Any,
) -> None:  # fmt: skip
    """Add the products of rows start..stop with all of n rows that share a column, and keep the largest.

    A row is not compared with the row of the number ``itself`` + its own; below 0 there is none.
    """
    k = found.shape[1]
    sums, touched = np.zeros(n, dtype=np.float32), np.empty(n, dtype=np.int32)
    for row in range(start, stop):
        count = 0
        for p in range(indptr[row], indptr[row + 1]):
            column, value = indices[p], data[p]
            for q in range(by_column[column], by_column[column + 1]):
                other = members[q]
                if sums[other] == 0.0:
                    touched[count] = other
                    count += 1
                sums[other] += value * values[q]
        kept = 0
        for t in range(count):
            other = touched[t]
            value = sums[other]
            sums[other] = 0.0
            if (itself >= 0 and other == itself + row) or value <= 0.0:
                continue
            if kept == k and (value < best[row, k - 1] or (value == best[row, k - 1] and other > found[row, k - 1])):
                continue
            place = min(kept, k - 1)
            while place and (value > best[row, place - 1] or (value == best[row, place - 1] and other < found[row, place - 1])):
                best[row, place], found[row, place] = best[row, place - 1], found[row, place - 1]
                place -= 1
            best[row, place], found[row, place] = value, other
            kept = min(kept + 1, k)


def nearest_rows(matrix: csr_array, k: int) -> Nearest:
    """The k most similar other rows of each row; columns that most rows have are ignored, which bounds the work."""
    frequent = np.bincount(matrix.indices, minlength=matrix.shape[1]) > max(_LEAST, min(matrix.shape[0] // _SHARE, _MOST))
    keep = ~frequent[matrix.indices]
    indptr = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr]
    kept = csr_array((matrix.data[keep], matrix.indices[keep], indptr), shape=matrix.shape)
    return nearest_by_columns(kept, csr_array(kept.T.tocsr()), k, itself=0)


def nearest_by_columns(rows: csr_array, columns: csr_array, k: int, itself: int = -1) -> Nearest:
    """The k rows of another matrix that are most similar to each of these rows; ``columns`` is that matrix transposed.

    With ``itself``, the first of these rows has this number in the other matrix, the next ones follow, and none is compared with
    itself.
    """
    n, others = int(rows.shape[0]), int(columns.shape[1])
    found, best = np.full((n, k), -1, dtype=np.int32), np.zeros((n, k), dtype=np.float32)
    given = *unlocked_rows(rows), *unlocked_rows(columns)
    size = tile_size(n, _TILE)

    def tile(start: int) -> None:
        nearest_of_tile(*given, start, min(start + size, n), others, itself, found, best)

    for _ in in_threads(tile, range(0, n, size)):
        pass
    return Nearest(found, best)
