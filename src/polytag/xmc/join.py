"""Rows to rank by: the words of a document, and beside them what tells its vector from others' (X-BERT, section 6.2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

if TYPE_CHECKING:
    from polytag.run import Run


class TextVectors(Protocol):
    """What makes a vector of a text; the one there is needs torch, and who only names it does not."""

    @property
    def size(self) -> int:
        """The size of a vector."""

    def of(self, texts: Sequence[str], device: str, precision: str, run: Run | None = None) -> NDArray[np.float32]:
        """One vector of length one for every text (documents, size)."""

    def state(self) -> dict[str, Any]:
        """Everything that is needed to build it again."""


def joined_rows(words: csr_array, vectors: NDArray[np.float32], centre: NDArray[np.float32], weight: float) -> csr_array:
    """The words, then the vectors (documents, size) less the ``centre`` of all, each of the length ``weight``.

    The vectors of an encoder have much in common; what they share says nothing about a document, and takes up most of their
    length.
    """
    own = vectors - centre
    own *= weight / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-12)
    return csr_array(hstack([words, csr_array(own)], format="csr"))
