"""Polytag: binary relevance's solver on the matrix that everyone gets; numba compiles before the clock starts."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from peers.worker import main


class Polytag:
    """One separator per label: L2-regularised squared hinge in the dual, bias 1."""

    packages = ("polytag", "numba", "numpy", "scipy")

    def compile(self, variant: str, threads: int) -> None:
        """Train and predict on a tiny problem of the real types: all that numba compiles is compiled here."""
        x = sparse.csr_matrix(np.eye(8, 5, dtype=np.float32))
        y = sparse.csr_matrix(np.eye(8, 3, dtype=np.float32))
        model = self.ready(self.train(variant, self.features(x), self.targets(y), threads))
        self.decide(model, self.features(x), threads)
        self.scores(model, self.features(x), threads)

    def features(self, x: sparse.csr_matrix) -> Any:
        """The package's own sparse type."""
        return sparse.csr_array(x)

    def targets(self, y: sparse.csr_matrix) -> Any:
        """The package's own sparse type."""
        return sparse.csr_array(y)

    def train(self, variant: str, x: Any, y: Any, threads: int) -> Any:
        """TO FILL: ``variant`` is "br" or "br-balanced"; return whatever ``decide`` and ``scores`` need."""
        raise NotImplementedError("benchmarks/peers/polytag_worker.py: call polytag.linear.svm.train_separators here")

    def ready(self, model: Any) -> Any:
        """As trained."""
        return model

    def decide(self, model: Any, x: Any, threads: int) -> sparse.csr_matrix:
        """TO FILL: the sets at the solver's own threshold, margin zero, as a sparse pattern."""
        raise NotImplementedError("benchmarks/peers/polytag_worker.py: margins above zero")

    def scores(self, model: Any, x: Any, threads: int) -> Any:
        """TO FILL: margins (documents, labels) as an array."""
        raise NotImplementedError("benchmarks/peers/polytag_worker.py: margins")


if __name__ == "__main__":
    main(Polytag())
