"""fastText: a bag of embedded words, over the same words as everyone's tf-idf, and a softmax over a tree of labels."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import fasttext  # type: ignore[import-not-found]
import numpy as np
from scipy import sparse

CANDIDATES = 50
PREFIX = "__label__"


class FastText:
    """Hierarchical softmax, which is what it has for many labels; with a rate of 0.1, or more epochs, it often ends in NaN."""

    packages = ("fasttext-numpy2-wheel", "numpy", "scipy")

    def words(self, path: Path) -> tuple[list[str], list[str]]:
        """The words of the training documents and of those to be ranked."""
        found = json.loads(path.read_text(encoding="utf-8"))
        return found["train"], found["test"]

    def compile(self, variant: str, threads: int) -> None:
        """Have a place for the training file."""
        self.folder = tempfile.TemporaryDirectory()

    def features(self, x: list[str]) -> list[str]:
        """As they are."""
        return x

    def targets(self, y: sparse.csr_matrix) -> list[str]:
        """The labels of every document, as its files have them."""
        self.n_labels = y.shape[1]
        return [" ".join(f"{PREFIX}{j}" for j in row) for row in np.split(y.indices, y.indptr[1:-1])]

    def train(self, variant: str, x: list[str], y: list[str], threads: int) -> Any:
        """Write the file the first time, then train; the variant is epochs, rate and size, as in 25:0.1:100."""
        path = Path(self.folder.name) / "train.txt"
        if not path.exists():
            path.write_text("".join(f"{own} {text}\n" for own, text in zip(y, x, strict=True)), encoding="utf-8")
        epochs, rate, size = variant.split(":")
        return fasttext.train_supervised(
            str(path), loss="hs", epoch=int(epochs), lr=float(rate), dim=int(size), minCount=2, thread=threads, verbose=0
        )

    def ready(self, model: Any) -> Any:
        """It is ready."""
        return model

    def scores(self, model: Any, x: list[str], threads: int) -> sparse.csr_matrix:
        """Probabilities of the best candidates, in one thread, which is all that it uses here."""
        names, values = model.predict(x, k=CANDIDATES)
        indptr = np.cumsum([0, *map(len, names)])
        indices = np.array([int(name.removeprefix(PREFIX)) for row in names for name in row], dtype=np.int32)
        return sparse.csr_matrix((np.concatenate(values).astype(np.float32), indices, indptr), shape=(len(x), self.n_labels))
