"""Compiled top-k of every sparse row."""

from __future__ import annotations

from typing import Any

from polytag.kernels.compiler import kernel, njit


@njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _before(one: Any, other: Any) -> Any:
    """Whether a value ranks before another that has the smaller column; NaN ranks last."""
    return one > other or (other != other and one == one)


@kernel("void(float32[::1],int64[::1],int64[::1],int32[:,::1],float32[:,::1])")
def best_of_sparse_rows(data: Any, indices: Any, indptr: Any, labels: Any, values: Any) -> None:
    """Write the k largest entries of each row into ``labels`` and ``values`` (rows, k), largest first; others are unchanged.

    The indices of a row are sorted. Ties are ordered by label. NaN ranks last.
    """
    k = labels.shape[1]
    for row in range(labels.shape[0] if k else 0):
        kept = 0
        for at in range(indptr[row], indptr[row + 1]):
            if kept == k and not _before(data[at], values[row, k - 1]):
                continue
            place = kept if kept < k else k - 1
            while place and _before(data[at], values[row, place - 1]):
                values[row, place] = values[row, place - 1]
                labels[row, place] = labels[row, place - 1]
                place -= 1
            values[row, place] = data[at]
            labels[row, place] = indices[at]
            kept += kept < k
