"""Polytag's label trees on the matrix that everyone gets; numba compiles before the clock starts."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from polytag.linear.svm import Problem
from polytag.models.xlinear import XLinear
from polytag.run import Run
from polytag.xmc.rank import Forest

CANDIDATES = 50


class Trees:
    """``xlinear`` with its defaults; the variant is the number of trees."""

    packages = ("polytag", "numba", "numpy", "scipy")

    def compile(self, variant: str, threads: int) -> None:
        """Train and predict on a tiny problem of the real types: all that numba compiles is compiled here."""
        x = sparse.csr_matrix(np.eye(12, 6, dtype=np.float32) + np.eye(12, 6, k=-6, dtype=np.float32))
        y = sparse.csr_matrix(np.tile(np.eye(6, 150, dtype=np.float32), (2, 1)))
        self.scores(self.train("2", self.features(x), self.targets(y), threads), self.features(x), threads)

    def features(self, x: sparse.csr_matrix) -> Any:
        """The package's own sparse type."""
        return sparse.csr_array(x)

    def targets(self, y: sparse.csr_matrix) -> Any:
        """The package's own sparse type."""
        return sparse.csr_array(y)

    def train(self, variant: str, x: Any, y: Any, threads: int) -> Any:
        """Index and weights of every tree."""
        return XLinear.build({"trees": int(variant)}).train_forest(Problem(x, y), Run(progress=False))

    def ready(self, model: Forest) -> Forest:
        """It is ready."""
        return model

    def decide(self, model: Forest, x: Any, threads: int) -> sparse.csr_matrix:
        """Probabilities above one half, not calibrated."""
        found: sparse.csr_matrix = self.scores(model, x, threads)
        found.data = (found.data > 0.5).astype(np.float32)
        found.eliminate_zeros()
        return found

    def scores(self, model: Forest, x: Any, threads: int) -> Any:
        """Probabilities of the best candidates."""
        defaults = XLinear()
        labels, logs = model.best(x, CANDIDATES, defaults.search.beam, defaults.ranking.worth)
        kept = labels >= 0
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        shape = (len(labels), len(model.rankers[0].tree.order))
        return sparse.csr_matrix((np.exp(logs[kept]), labels[kept], indptr), shape=shape)
