"""Polytag: binary relevance's solver on the matrix that everyone gets; numba compiles before the clock starts."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from peers.worker import above, main
from polytag.linear.svm import Problem, Solver, train_separators

BALANCE = {"br": 0.0, "br-balanced": 1.0}
PRUNE = 0.0


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
        """All of it is timed, the preparation of the problem included."""
        solver = Solver(balance=BALANCE[variant], prune=PRUNE)
        return train_separators(Problem(x, y), [1.0], solver)[0]

    def ready(self, model: Any) -> Any:
        """Lay the weights out in blocks, as loading a saved model does."""
        _ = model.blocks
        return model

    def decide(self, model: Any, x: Any, threads: int) -> sparse.csr_matrix:
        """Margins above zero."""
        return above(model.all(x), 0.0)

    def scores(self, model: Any, x: Any, threads: int) -> Any:
        """Margins."""
        return model.all(x)


if __name__ == "__main__":
    main(Polytag())
