"""What every analysis returns: a small frozen dataclass that turns into JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.storage.plain_json import plain

Row = TypeVar("Row")


@dataclass(frozen=True)
class Result:
    """The base of all results: fields of plain data, and rows that are results too."""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values; non-finite numbers become null."""
        found: dict[str, Any] = plain(asdict(self))
        return found


def label_names(matrix: csr_array, row: int, names: Sequence[str]) -> tuple[str, ...]:
    """The names of a document's labels, in the order of the label set."""
    return tuple(names[j] for j in matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist())


def counted(matrix: csr_array) -> NDArray[np.float64]:
    """The number of documents of every label."""
    return np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.float64)
