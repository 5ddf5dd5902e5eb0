"""The most similar rows of every row of a sparse matrix, by cosine, through an index of the columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.kernels.compiler import njit
from polytag.kernels.threads import in_threads, tile_size
from polytag.linear.svm import rows_of

_TILE = 1024  # rows that a thread handles at once
_LEAST, _MOST, _SHARE = 100, 2000, 20  # a column in more rows than a twentieth, within these limits, is not compared


class Nearest(NamedTuple):
    """The k most similar other rows, best first: numbers padded with -1, and cosines (rows, k)."""

    rows: NDArray[np.int32]
    similarity: NDArray[np.float32]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _nearest_of_tile(
    indptr: Any, indices: Any, data: Any, by_column: Any, members: Any, values: Any, start: int, stop: int, found: Any, best: Any
) -> None:
    """Accumulate the products of rows start..stop with all rows that share a column, and keep the largest."""
    n, k = len(indptr) - 1, found.shape[1]
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
            if other == row or value <= 0.0:
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
    """The k most similar rows of each row of unit length; columns that most rows have are ignored, which bounds the work."""
    n = int(matrix.shape[0])
    frequent = np.bincount(matrix.indices, minlength=matrix.shape[1]) > max(_LEAST, min(n // _SHARE, _MOST))
    keep = ~frequent[matrix.indices]
    indptr = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr]
    kept = csr_array((matrix.data[keep], matrix.indices[keep], indptr), shape=matrix.shape)
    rows, columns = rows_of(kept), rows_of(csr_array(kept.T.tocsr()))
    found, best = np.full((n, k), -1, dtype=np.int32), np.zeros((n, k), dtype=np.float32)
    size = tile_size(n, _TILE)

    def tile(start: int) -> None:
        _nearest_of_tile(*rows, *columns, start, min(start + size, n), found, best)

    for _ in in_threads(tile, range(0, n, size)):
        pass
    return Nearest(found, best)
