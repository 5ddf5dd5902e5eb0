"""Classifier chains (Read et al. 2011): the preceding labels are features of every label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.groups.decoder_settings import OrderSettings
from polytag.labels import indicator
from polytag.linear.block_kernels import run_chain
from polytag.linear.svm import Problem, Separators, separators_schema, train_separators
from polytag.models.base.tfidf_model import TfidfModel
from polytag.models.model import State, group
from polytag.scores import Scores
from polytag.storage.schema import Array, Table

ORDERS = ("frequency", "given", "random")


@dataclass(frozen=True)
class Chain:
    """Separators on tf-idf, the label order, and the weights of each label as a feature of the later ones (labels, labels)."""

    separators: Separators
    order: NDArray[np.int64]
    links: NDArray[np.float32]

    def state(self) -> dict[str, Any]:
        """The arrays for an artefact."""
        return {"separators": self.separators.state(), "order": self.order, "links": self.links}


@dataclass
class ClassifierChain(TfidfModel):
    """Binary relevance in a chain: the predicted labels of a document are features of the later labels."""

    ordering: OrderSettings = group(OrderSettings, choices={"order": ORDERS})

    def _train(self, problem: Problem, strengths: Sequence[float], rows: NDArray[Any] | None) -> list[Chain]:
        order = self._order(problem.truth if rows is None else problem.truth[rows])
        n_features = int(problem.features.shape[1])
        chains = []
        for whole in train_separators(problem, strengths, self.make_solver(), rows=rows, chain=order):
            links = np.zeros((len(order), len(order)), dtype=np.float32)
            links[order] = whole.weights[n_features:].toarray()
            chains.append(Chain(Separators(csr_array(whole.weights[:n_features]), whole.bias), order, links))
        return chains

    def _order(self, truth: csr_array) -> NDArray[np.int64]:
        n_labels = int(truth.shape[1])
        if self.ordering.order == "random":
            return np.random.default_rng(self.seed).permutation(n_labels)
        if self.ordering.order == "given":
            return np.arange(n_labels)
        return np.argsort(-np.bincount(truth.indices, minlength=n_labels), kind="stable")

    def _score(self, trained: Chain, features: csr_array, names: Sequence[str], k: int | None) -> Scores:
        parts = []
        size = max(1, 4_000_000 // max(1, len(names)))
        for start in range(0, max(1, int(features.shape[0])), size):
            table = trained.separators.all(features[start : start + size])
            run_chain(table, trained.order, trained.links)
            decoded = indicator([np.flatnonzero(row > 0) for row in table], len(names))
            scores = Scores.full(table, names, "margin", decoded=decoded)
            parts.append(scores if k is None else scores.best(k))
        return Scores.stack(parts)

    def _trained_schema(self, features: str) -> Table:
        order = Array(("int64",), ("labels",), low=0, below="labels", order="distinct")
        links = Array(("float32",), ("labels", "labels"))
        return Table({"separators": separators_schema(features), "order": order, "links": links})

    def _trained_from(self, state: State) -> Chain:
        return Chain(Separators.from_state(state["separators"]), np.asarray(state["order"]), np.asarray(state["links"]))
