"""omikuji: Parabel and Bonsai, which train from a file and predict document by document."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import omikuji  # type: ignore[import-not-found]
from scipy import sparse

from peers.worker import above, main

CANDIDATES = 50


class Omikuji:
    """Its defaults: three trees, bias, squared hinge, weights below 0.1 dropped; Bonsai's trees are flat and not balanced."""

    packages = ("omikuji", "numpy", "scipy")

    def compile(self, variant: str, threads: int) -> None:
        """Have a place for the training file."""
        self.folder = tempfile.TemporaryDirectory()

    def features(self, x: sparse.csr_matrix) -> Any:
        """Lists of (word, weight), the only form that it takes."""
        parts = np.split(np.arange(x.nnz), x.indptr[1:-1])
        return [list(zip(x.indices[p].tolist(), x.data[p].tolist(), strict=True)) for p in parts], x.shape[1]

    def targets(self, y: sparse.csr_matrix) -> Any:
        """Lists of label numbers."""
        return [p.tolist() for p in np.split(y.indices, y.indptr[1:-1])], y.shape[1]

    def train(self, variant: str, x: Any, y: Any, threads: int) -> Any:
        """Write the file the first time for this many documents, then train; reading the file is a part of its training."""
        path = Path(self.folder.name) / f"{len(x[0])}.txt"
        if not path.exists():
            self.write(path, x, y)
        settings = omikuji.Model.default_hyper_param()
        if variant == "bonsai":  # as its authors and omikuji's users set it
            settings.cluster_balanced, settings.cluster_k, settings.max_depth = False, 100, 3
        model = omikuji.Model.train_on_data(str(path), settings, n_threads=threads)
        model.init_prediction_thread_pool(threads)
        self.n_labels = y[1]
        return model

    def write(self, path: Path, x: Any, y: Any) -> None:
        """The format of the extreme classification repository."""
        lines = [f"{len(x[0])} {x[1]} {y[1]}"]
        for words, labels in zip(x[0], y[0], strict=True):
            lines.append(",".join(map(str, labels)) + " " + " ".join(f"{j}:{v:.7g}" for j, v in words))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def ready(self, model: Any) -> Any:
        """Denser weights predict faster."""
        model.densify_weights(0.05)
        return model

    def decide(self, model: Any, x: Any, threads: int) -> sparse.csr_matrix:
        """It ranks and does not decide: one half."""
        return above(self.scores(model, x, threads), 0.5)

    def scores(self, model: Any, x: Any, threads: int) -> Any:
        """Scores of the best candidates."""
        rows = [model.predict(words, top_k=CANDIDATES) for words in x[0]]
        indptr = np.cumsum([0, *map(len, rows)])
        indices = np.array([j for row in rows for j, _ in row], dtype=np.int32)
        data = np.array([v for row in rows for _, v in row], dtype=np.float32)
        return sparse.csr_matrix((data, indices, indptr), shape=(len(rows), self.n_labels))


if __name__ == "__main__":
    main(Omikuji())
