"""Compiled merge of two sparse matrices, row by row."""

from __future__ import annotations

from typing import Any

from polytag.kernels.compiler import kernel


@kernel("void(int64[::1],int64[::1],int64[::1],int64[::1],int64[::1],boolean[::1])")
def merge_rows(indptr: Any, indices: Any, other_indptr: Any, other_indices: Any, at: Any, known: Any) -> None:
    """Set ``at`` to the index of each entry in the second matrix, and ``known`` where it exists; both have sorted indices."""
    for i in range(len(indptr) - 1):
        q, last = other_indptr[i], other_indptr[i + 1]
        for p in range(indptr[i], indptr[i + 1]):
            while q < last and other_indices[q] < indices[p]:
                q += 1
            if q < last and other_indices[q] == indices[p]:
                at[p], known[p] = q, True
