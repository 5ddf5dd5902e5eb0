"""scikit-learn: OneVsRestClassifier over LinearSVC."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from peers.worker import main

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "balanced": {"class_weight": "balanced"},
    # the tolerance that the other libraries stop at by default
    "dual-tol-0.1": {"dual": True, "tol": 0.1},
    "balanced-dual-tol-0.1": {"class_weight": "balanced", "dual": True, "tol": 0.1},
}


class ScikitLearn:
    """Two processes over labels; double precision, since liblinear's wrapper would copy the matrix for every label otherwise."""

    packages = ("scikit-learn", "numpy", "scipy")

    def compile(self, variant: str, threads: int) -> None:
        """Nothing to compile."""

    def features(self, x: sparse.csr_matrix) -> Any:
        """Double precision, once."""
        return x.astype(np.float64)

    def targets(self, y: sparse.csr_matrix) -> Any:
        """A sparse indicator, so that the sets come back sparse."""
        return y.astype(np.int64)

    def train(self, variant: str, x: Any, y: Any, threads: int) -> Any:
        """Fit one LinearSVC per label."""
        warnings.filterwarnings("ignore", message="Label not .* is present in all training examples")
        return OneVsRestClassifier(LinearSVC(random_state=0, **OPTIONS[variant]), n_jobs=threads).fit(x, y)

    def ready(self, model: Any) -> Any:
        """As trained."""
        return model

    def decide(self, model: Any, x: Any, threads: int) -> sparse.csr_matrix:
        """Margins above zero."""
        return sparse.csr_matrix(model.predict(x))

    def scores(self, model: Any, x: Any, threads: int) -> Any:
        """Margins."""
        return model.decision_function(x)


if __name__ == "__main__":
    main(ScikitLearn())
