"""Documents given as feature vectors, such as ``17:0.25 203:1``: feature ids and weights instead of words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import DataError
from polytag.formats.document import FEATURE

_LARGEST = 10**15  # float64 holds smaller feature ids exactly
_ROW = re.compile(rf"\s*(?:{FEATURE}(?:\s+|$))*", re.ASCII)


def are_rows(texts: Sequence[str]) -> bool:
    """Whether every text is a feature vector and one of them is not empty; plain text is rejected at the first document."""
    return all(_ROW.fullmatch(text) for text in texts) and any(":" in text for text in texts)


def parsed_rows(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.float32]]:
    """Concatenated feature ids of all texts, the offsets of the texts, and the weights."""
    for number, text in enumerate(texts):
        if not _ROW.fullmatch(text):
            shown = " ".join(text.split())[:30]
            raise DataError(
                f"text {number} ({shown!r}...) is not a feature vector like '17:0.25 203:1'; the model was trained on such"
            )
    numbers = np.array(" ".join(texts).replace(":", " ").split(), dtype=np.float64).reshape(-1, 2)
    indptr = np.concatenate([[0], np.cumsum([text.count(":") for text in texts], dtype=np.int64)])
    if numbers.size and not (numbers[:, 0].max() < _LARGEST and np.abs(numbers[:, 1]).max() <= np.finfo(np.float32).max):
        raise DataError("a feature number has more than 15 digits, or a weight is infinite as float32; number the features anew")
    return numbers[:, 0].astype(np.uint64), indptr, numbers[:, 1].astype(np.float32)


def unit_rows(
    columns: NDArray[np.int32], indptr: NDArray[np.int64], values: NDArray[np.float32], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Rows of unit length from columns and values; -1 columns are dropped, and duplicate columns of a row are summed."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    kept = columns >= 0
    rows: Any = csr_array((values[kept], (row[kept], columns[kept])), shape=(len(indptr) - 1, width))
    rows.sum_duplicates()
    rows.eliminate_zeros()
    own = np.repeat(np.arange(len(indptr) - 1), np.diff(rows.indptr))
    lengths = np.sqrt(np.bincount(own, rows.data.astype(np.float64) ** 2, minlength=len(indptr) - 1))
    data = (rows.data / lengths[own]).astype(np.float32)
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int32), data
