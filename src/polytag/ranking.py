"""Compiled: the few best entries of every sparse row."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _before(one: Any, other: Any) -> Any:
    """Whether a value goes before another, which stands to the left of it."""
    return one > other or (other != other and one == one)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def best_of_sparse_rows(data: Any, indices: Any, indptr: Any, labels: Any, values: Any) -> None:
    """Fill ``labels`` and ``values`` (rows, k) with the k largest entries of each row, largest first; the rest stays as it is.

    The entries of a row are in ascending order of their labels, so that of equal ones the first label comes first. One that
    is no number comes after all others.
    """
    k = labels.shape[1]
    for row in range(labels.shape[0] if k else 0):
        kept = 0
        for at in range(indptr[row], indptr[row + 1]):
            if kept == k and not _before(data[at], values[row, k - 1]):
                continue
            place = min(kept, k - 1)
            while place and _before(data[at], values[row, place - 1]):
                values[row, place], labels[row, place] = values[row, place - 1], labels[row, place - 1]
                place -= 1
            values[row, place], labels[row, place] = data[at], indices[at]
            kept = min(kept + 1, k)
