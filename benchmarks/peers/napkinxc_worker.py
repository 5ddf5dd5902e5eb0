"""napkinXC: binary relevance and a probabilistic label tree, both with liblinear inside; models live in a folder."""

from __future__ import annotations

import itertools
import tempfile
from typing import Any

import numpy as np
from napkinxc.models import BR, PLT  # type: ignore[import-not-found]
from scipy import sparse

from peers.worker import above, main

CANDIDATES = 50


class NapkinXC:
    """Squared hinge for the flat model, as everyone else; the tree with its default logistic loss."""

    packages = ("napkinxc", "numpy", "scipy")

    def compile(self, variant: str, threads: int) -> None:
        """Have a place for the models."""
        self.folder, self.number = tempfile.TemporaryDirectory(), itertools.count()
        self.flat = variant == "br"

    def features(self, x: sparse.csr_matrix) -> Any:
        """As it is."""
        return x

    def targets(self, y: sparse.csr_matrix) -> Any:
        """Lists of label numbers."""
        self.n_labels = y.shape[1]
        return [p.tolist() for p in np.split(y.indices, y.indptr[1:-1])]

    def train(self, variant: str, x: Any, y: Any, threads: int) -> Any:
        """Fit; it writes the model to disk while training."""
        output = f"{self.folder.name}/{next(self.number)}"
        model = BR(output, loss="l2", liblinear_c=1, threads=threads) if self.flat else PLT(output, seed=0, threads=threads)
        model.fit(x, y)
        return model

    def ready(self, model: Any) -> Any:
        """Load what it wrote."""
        model.load()
        return model

    def decide(self, model: Any, x: Any, threads: int) -> sparse.csr_matrix:
        """Probabilities above one half."""
        return above(self.scores(model, x, threads), 0.5)

    def scores(self, model: Any, x: Any, threads: int) -> Any:
        """Probabilities of the best candidates."""
        rows = model.predict_proba(x, top_k=min(CANDIDATES, self.n_labels))
        indptr = np.cumsum([0, *map(len, rows)])
        indices = np.array([j for row in rows for j, _ in row], dtype=np.int32)
        data = np.array([v for row in rows for _, v in row], dtype=np.float32)
        matrix = sparse.csr_matrix((data, indices, indptr), shape=(len(rows), self.n_labels))
        matrix.sort_indices()
        return matrix


if __name__ == "__main__":
    main(NapkinXC())
