"""What earlier documents say about linear separators, once these documents are gone: a Gaussian prior for learning on.

The loss of the earlier documents is replaced by its second-order expansion around the weights that they led to. Its curvature,
``2C Σ x xᵀ`` over the documents inside the margin, is kept as a diagonal of rank one: the sum of the squares of each feature
times the share of documents that are active for each label. So learning on minimises
``½ Σ_f (1 + a_l s_f) (w_f - w°_f)² + C Σ weight · max(0, 1 - y (w·x + b))²`` over the new documents alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.kernels.sparse_rows import stack_rows
from polytag.linear.svm import Around, Problem, Separators, Solver, train_separators
from polytag.storage.schema import Array, Number, Table


def prior_schema(features: str = "features", labels: str = "labels") -> Table:
    """What a prior looks like when it is saved; its weights are those of the model."""
    return Table(
        {
            "strength": Number(1e-9, 1e9, whole=False),
            "documents": Number(1, 2**53),
            "spread": Array(("float32",), (features,), low=0),
            "counts": Array(("int64",), (labels,), low=0),
            "activity": Array(("float32",), (labels,), low=0),
        }
    )


class Growth(NamedTuple):
    """How features of old documents become features of a larger vocabulary.

    Known features stand at ``places``, in order, and are ``scale`` times as large, among ``features``.
    """

    places: NDArray[np.int64]
    scale: NDArray[np.float32]
    features: int

    @classmethod
    def none(cls, features: int) -> Growth:
        """The same features."""
        return cls(np.arange(features), np.ones(features, dtype=np.float32), features)


@dataclass(frozen=True)
class Prior:
    """How sure the weights of separators are, from the documents that they were trained on.

    ``spread`` is the sum of the squares of every feature, ``counts`` the documents of every label, and ``activity`` the weight
    of a document in the curvature of the loss of each label, a mean over the documents.
    """

    strength: float
    documents: int
    spread: NDArray[np.float32]
    counts: NDArray[np.int64]
    activity: NDArray[np.float32]

    @classmethod
    def empty(cls, strength: float, features: int, labels: int) -> Prior:
        """Before any document."""
        sizes = np.zeros(features, np.float32), np.zeros(labels, np.int64), np.zeros(labels, np.float32)
        return cls(strength, 0, *sizes)

    def after(self, problem: Problem, trained: Separators) -> Prior:
        """With the documents of a problem too, on which these separators were trained."""
        n = int(problem.features.shape[0])
        squares = np.bincount(problem.features.indices, problem.features.data.astype(np.float64) ** 2, minlength=len(self.spread))
        counts = np.bincount(problem.truth.indices, minlength=len(self.counts))
        active = self.activity * self.documents + trained.active
        whole = self.documents + n
        return Prior(
            self.strength, whole, (self.spread + squares).astype(np.float32), self.counts + counts,
            (active / whole).astype(np.float32),
        )  # fmt: skip

    def widened(self, growth: Growth, labels: int) -> Prior:
        """With more features and labels.

        Nothing is known about a new feature. All earlier documents are negatives of a new label.
        """
        spread = np.zeros(growth.features, dtype=np.float32)
        spread[growth.places] = self.spread * growth.scale**2
        more = labels - len(self.counts)
        activity = np.append(self.activity, np.full(more, 2 * self.strength, dtype=np.float32))
        return Prior(self.strength, self.documents, spread, np.pad(self.counts, (0, more)), activity)

    def moved(self, sources: csr_array, share: csr_array) -> Prior:
        """For labels that come from these ones (labels, these): the sums of documents, the means of activity."""
        counts = np.minimum(np.rint(sources @ self.counts), self.documents).astype(np.int64)
        return replace(self, counts=counts, activity=np.asarray(share @ self.activity, dtype=np.float32))

    def state(self) -> dict[str, Any]:
        """The numbers for an artefact."""
        names = ("strength", "documents", "spread", "counts", "activity")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Prior:
        """Rebuild from the numbers."""
        arrays = (np.asarray(state[name]) for name in ("spread", "counts", "activity"))
        return cls(float(state["strength"]), int(state["documents"]), *arrays)


def widened(known: Separators, growth: Growth, labels: int) -> Separators:
    """Separators for more features and labels; up to the length of the rows, known labels have the same margins."""
    rows, counts = known.weights, np.diff(known.weights.indptr)
    sizes = np.zeros(growth.features, dtype=np.int64)
    sizes[growth.places] = counts
    data = (rows.data / np.repeat(growth.scale, counts)).astype(np.float32)  # places rise, so the entries keep their order
    weights = csr_array((data, rows.indices, np.concatenate([[0], np.cumsum(sizes)])), shape=(growth.features, labels))
    bias = np.full(labels, -1.0, dtype=np.float32)  # a label that nobody had
    bias[: len(known.bias)] = known.bias
    return Separators(weights, bias)


def learn_on(
    known: Separators, prior: Prior, problem: Problem, solver: Solver, *, rows: NDArray[Any] | None = None,
    chain: NDArray[Any] | None = None,
) -> Separators:  # fmt: skip
    """The separators after more documents; only weights of features that occur in them change."""
    chained = 0 if chain is None else len(chain)
    n_words = int(problem.features.shape[1])
    words = np.unique(problem.features.indices)
    columns = np.concatenate([words, n_words + np.arange(chained)])
    number = np.zeros(n_words, dtype=np.int32)
    number[words] = np.arange(len(words), dtype=np.int32)
    x = problem.features
    part = csr_array((x.data, number[x.indices], x.indptr), shape=(x.shape[0], len(words)))
    spread = prior.spread if chain is None else np.concatenate([prior.spread, prior.counts[chain].astype(np.float32)])
    about = spread[columns], prior.activity, prior.documents, prior.counts
    around = Around(csr_array(known.weights[columns]), known.bias, *about)
    found = train_separators(Problem(part, problem.truth), [prior.strength], solver, rows=rows, chain=chain, around=around)[0]
    order = np.arange(known.shape[0])
    order[columns] = known.shape[0] + np.arange(len(columns))
    return Separators(csr_array(stack_rows([known.weights, found.weights])[order]), found.bias, found.active)
