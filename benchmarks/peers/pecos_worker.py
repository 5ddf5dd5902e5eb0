"""PECOS: the linear model without a cluster chain, which is flat one-vs-all, and with one, which is XR-Linear."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from pecos.xmc import Indexer, LabelEmbeddingFactory  # type: ignore[import-not-found]
from pecos.xmc.xlinear.model import XLinearModel  # type: ignore[import-not-found]
from scipy import sparse

from peers.worker import above, main

CANDIDATES = 50
"""Labels returned per document: its default of 20 cuts off real labels on debtags."""


class Pecos:
    """Bias 1, squared hinge in the dual, weights below 0.1 dropped: its defaults."""

    packages = ("libpecos", "numpy", "scipy")

    def compile(self, variant: str, threads: int) -> None:
        """Note the variant: trees give products of probabilities, the flat model margins."""
        self.flat = variant.startswith("flat")

    def features(self, x: sparse.csr_matrix) -> Any:
        """As it is: single precision with sorted indices."""
        return x

    def targets(self, y: sparse.csr_matrix) -> Any:
        """By columns."""
        return y.tocsc().astype(np.float32)

    def train(self, variant: str, x: Any, y: Any, threads: int) -> Any:
        """Fit; building the tree is a part of training. A number behind the variant is C in place of its default, 1."""
        variant, _, strength = variant.partition(":")
        c = float(strength or 1)
        if variant == "flat":
            return XLinearModel.train(x, y, threads=threads)
        embedding = LabelEmbeddingFactory.create(y, x, method="pifa", threads=threads)
        chain = Indexer.gen(embedding, max_leaf_size=100, threads=threads, seed=0)
        return XLinearModel.train(x, y, C=chain, Cp=c, Cn=c, threads=threads)

    def ready(self, model: Any) -> Any:
        """Save and load for prediction only: its faster form; trees with hashed chunks, the fastest of its three kinds."""
        kind = {} if self.flat else {"weight_matrix_type": "HASH_CHUNKED"}
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder)
            return XLinearModel.load(folder, is_predict_only=True, **kind)

    def decide(self, model: Any, x: Any, threads: int) -> sparse.csr_matrix:
        """It ranks and does not decide: margins above zero, or probabilities above one half."""
        return above(self.scores(model, x, threads), 0.0 if self.flat else 0.5)

    def scores(self, model: Any, x: Any, threads: int) -> Any:
        """Margins of the best candidates, or the tree's scores."""
        if self.flat:
            return model.predict(x, only_topk=CANDIDATES, post_processor="noop", threads=threads)
        return model.predict(x, only_topk=CANDIDATES, beam_size=10, threads=threads)


if __name__ == "__main__":
    main(Pecos())
