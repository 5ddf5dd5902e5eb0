"""Writeable views for compiled code: numba compiles a second version of a function for read-only arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


class _Borrowed:
    """Exposes an array's memory and keeps the array alive."""

    def __init__(self, array: NDArray[Any]) -> None:
        """Copy numpy's array interface, with the read-only flag cleared."""
        self.array = array
        described = dict(array.__array_interface__)
        described["data"] = (described["data"][0], False)
        self.__array_interface__ = described


def unlocked(array: Any, dtype: Any) -> NDArray[Any]:
    """The array as a contiguous, writeable array of this type; copied only if the type or the layout differs.

    Only for kernels that do not write to it: writing to a memory-mapped file would crash the process.
    """
    plain = np.ascontiguousarray(array, dtype=dtype)
    if plain.flags.writeable or not plain.size:
        return plain if plain.flags.writeable else plain.copy()
    return np.asarray(_Borrowed(plain))


def unlocked_rows(matrix: csr_array) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """The three arrays of a sparse matrix: indptr, indices and data."""
    return unlocked(matrix.indptr, np.int64), unlocked(matrix.indices, np.int32), unlocked(matrix.data, np.float32)
