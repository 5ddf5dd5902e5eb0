"""LibMultiLabel: one-vs-rest, its variants that choose costs or thresholds by cross-validation, and its tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
from libmultilabel import linear  # type: ignore[import-not-found]
from scipy import sparse

from peers.worker import above, main

METHODS = {
    "1vsrest": (linear.train_1vsrest, ""),
    "1vsrest-bias": (linear.train_1vsrest, "-B 1"),
    "cost-sensitive-micro": (linear.train_cost_sensitive_micro, "-B 1"),
    "thresholding": (linear.train_thresholding, "-B 1"),
    "tree": (linear.train_tree, "-B 1"),
}


class LibMultiLabel:
    """Its number of threads is the number of physical cores and cannot be set, so the count is replaced."""

    packages = ("libmultilabel", "liblinear-multicore", "numpy", "scipy")

    def compile(self, variant: str, threads: int) -> None:
        """Set the number of threads."""
        psutil.cpu_count = lambda logical=True: threads

    def features(self, x: sparse.csr_matrix) -> Any:
        """Double precision, which is what liblinear holds."""
        return x.astype(np.float64)

    def targets(self, y: sparse.csr_matrix) -> Any:
        """As it is."""
        return y.astype(np.float64)

    def train(self, variant: str, x: Any, y: Any, threads: int) -> Any:
        """Fit quietly, with the same folds every time."""
        np.random.seed(0)  # noqa: NPY002  # its cross-validation draws from the global generator
        method, options = METHODS[variant]
        return method(y, x, options=options, verbose=False)

    def ready(self, model: Any) -> Any:
        """As trained."""
        return model

    def decide(self, model: Any, x: Any, threads: int) -> sparse.csr_matrix:
        """Positive decision values; the tree returns probabilities, so there one half."""
        return above(linear.predict_values(model, x), 0.5 if model.name == "tree" else 0.0)

    def scores(self, model: Any, x: Any, threads: int) -> Any:
        """Decision values, or the tree's probabilities, which are zero outside the beam."""
        values = linear.predict_values(model, x)
        return sparse.csr_matrix(values) if model.name == "tree" else values


if __name__ == "__main__":
    main(LibMultiLabel())
