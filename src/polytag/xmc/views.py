"""Views for compiled code, which is compiled anew for every type: read-only arrays would double the number of types."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


class _Borrowed:
    """Lends an array's memory and keeps the array alive."""

    def __init__(self, array: NDArray[Any]) -> None:
        """Describe the memory as numpy's array interface does, but not as read-only."""
        self.array = array
        described = dict(array.__array_interface__)
        described["data"] = (described["data"][0], False)
        self.__array_interface__ = described


def unlocked(array: Any, dtype: Any) -> NDArray[Any]:
    """The array with this type, contiguous and never read-only, without a copy where there is nothing to change.

    For kernels that only read it: a mapped file stays what it is, and writing to it would end the process.
    """
    plain = np.ascontiguousarray(array, dtype=dtype)
    if plain.flags.writeable or not plain.size:
        return plain if plain.flags.writeable else plain.copy()
    return np.asarray(_Borrowed(plain))


def unlocked_rows(matrix: csr_array) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """The three arrays of a sparse matrix: indptr, indices and data."""
    return unlocked(matrix.indptr, np.int64), unlocked(matrix.indices, np.int32), unlocked(matrix.data, np.float32)
