"""Label sets of a few documents from dense scores: what ``thresholds.apply`` decides, without sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polytag.kernels.compiler import njit


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _decide(values: Any, limits: Any, least: int, labels: Any, scores: Any, indptr: Any) -> int:
    """Write the labels that reach their threshold, and the ``least`` best ones, best first; return their number."""
    count = 0
    best = np.empty(least, dtype=np.int64)
    for i in range(values.shape[0]):
        row = values[i]
        found = 0
        for c in range(len(row)):  # the best ones, ties by number
            if found == least and (least == 0 or row[c] <= row[best[least - 1]]):
                continue
            at = found if found < least else least - 1
            found = min(found + 1, least)
            while at > 0 and row[best[at - 1]] < row[c]:
                best[at] = best[at - 1]
                at -= 1
            best[at] = c
        start = count
        for c in range(len(row)):
            chosen = row[c] >= limits[c]
            for b in range(found):
                chosen = chosen or best[b] == c
            if chosen:
                at = count
                count += 1
                while at > start and scores[at - 1] < row[c]:
                    scores[at] = scores[at - 1]
                    labels[at] = labels[at - 1]
                    at -= 1
                scores[at] = row[c]
                labels[at] = c
        indptr[i + 1] = count
    return count


def decided_rows(
    values: NDArray[np.float32], limits: NDArray[np.float32], least: int
) -> tuple[list[int], list[float], list[int]]:
    """Labels and scores of all documents, best first, and where each document starts; ``values`` is (documents, labels)."""
    labels, scores = np.empty(values.size, dtype=np.int32), np.empty(values.size, dtype=np.float32)
    indptr = np.zeros(len(values) + 1, dtype=np.int64)
    count = _decide(values, limits, min(least, values.shape[1]), labels, scores, indptr)
    return labels[:count].tolist(), scores[:count].tolist(), indptr.tolist()
