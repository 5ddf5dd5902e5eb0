"""The features and labels of training documents, kept in the artefact for learning on; no texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.kernels.sparse_rows import stack_rows
from polytag.labels import LabelSet
from polytag.storage.schema import Array, Sparse, Table
from polytag.storage.state_json import State
from polytag.text.term_rows import TERM_ROWS, TermRows

KEPT = Table(
    {"terms": TERM_ROWS, "truth": Sparse(("kept", "labels"), ascending=True), "vectors": Array(("float32",), ("kept", "hidden"))},
    optional=frozenset({"terms", "vectors"}),
    own=frozenset({"kept", "all_words"}),
)
"""What kept rows look like when they are saved."""


@dataclass(frozen=True)
class KeptRows:
    """The labels of every document, its words by their hashes, and its vector, if the model has one."""

    truth: csr_array
    terms: TermRows | None
    vectors: NDArray[np.float32] | None = None

    def joined(self, other: KeptRows) -> KeptRows:
        """These documents, then others, which may have more labels."""
        terms = self.terms and other.terms and self.terms.joined(other.terms)
        vectors = None if self.vectors is None or other.vectors is None else np.concatenate([self.vectors, other.vectors])
        wide = self.widened(int(other.truth.shape[1]))
        return KeptRows(stack_rows([wide.truth, other.truth]), terms, vectors)

    def widened(self, labels: int) -> KeptRows:
        """The same documents with more labels, which none of them has."""
        truth = csr_array((self.truth.data, self.truth.indices, self.truth.indptr), shape=(len(self), labels))
        return replace(self, truth=truth)

    def __len__(self) -> int:
        """The number of documents."""
        return int(self.truth.shape[0])

    def corpus(self, labels: LabelSet) -> Corpus:
        """The documents, whose texts are gone."""
        nothing = [""] * len(self)
        return Corpus(nothing, nothing, labels, self.truth)

    def state(self) -> State:
        """The matrices for an artefact."""
        found: dict[str, Any] = {"truth": self.truth}
        if self.terms is not None:
            found["terms"] = self.terms.state()
        return found if self.vectors is None else {**found, "vectors": self.vectors}

    @classmethod
    def from_state(cls, state: State) -> KeptRows:
        """Rebuild from the matrices."""
        terms = TermRows.from_state(state["terms"]) if "terms" in state else None
        return cls(state["truth"], terms, np.asarray(state["vectors"]) if "vectors" in state else None)


def require_same(settings: Any, earlier: Any, names: Sequence[str]) -> None:
    """Raise if one of these settings, where there is one, differs from that of the earlier run."""
    for name in names:
        mine, other = getattr(settings, name, None), getattr(earlier, name, None)
        if mine != other:
            raise ConfigError(f"{name!r} is {mine!r}, but {other!r} in the earlier run; leave it as it was")


def require_known_first(labels: LabelSet, known: LabelSet) -> None:
    """Raise unless the labels of the earlier run come first."""
    if labels.names[: len(known)] != known.names:
        raise ConfigError("the labels must start with those of the earlier run, in its order; take their union with the new ones")
