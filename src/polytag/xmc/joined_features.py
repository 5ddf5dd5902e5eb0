"""Features for ranking: tf-idf joined with the centred document vector (X-BERT, section 6.2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

if TYPE_CHECKING:
    from polytag.run import Run


class TextVectors(Protocol):
    """An encoder of texts; a protocol, because its implementation imports torch."""

    @property
    def size(self) -> int:
        """The size of a vector."""

    def of(self, texts: Sequence[str], device: str, precision: str, run: Run | None = None) -> NDArray[np.float32]:
        """One unit vector per text (documents, size)."""

    def state(self) -> dict[str, Any]:
        """Everything that is needed to rebuild it."""


def joined_rows(words: csr_array, vectors: NDArray[np.float32], centre: NDArray[np.float32], weight: float) -> csr_array:
    """Tf-idf rows followed by the vectors (documents, size), centred at ``centre`` and scaled to the norm ``weight``.

    The vectors of an encoder share a large mean component, which says nothing about a document and dominates their norm.
    """
    own = vectors - centre
    own *= weight / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-12)
    return csr_array(hstack([words, csr_array(own)], format="csr"))
