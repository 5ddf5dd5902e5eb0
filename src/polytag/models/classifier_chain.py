"""Classifier chains (Read et al. 2011): the preceding labels are features of every label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from polytag.config.groups.decoder_settings import OrderSettings
from polytag.kernels.array_views import unlocked
from polytag.labels import indicator
from polytag.linear.block_kernels import run_chain
from polytag.linear.prior import Growth, Prior, learn_on, widened
from polytag.linear.svm import Problem, Separators, separators_schema, train_separators
from polytag.models.base.attribution import Attribution, linear_parts
from polytag.models.base.tfidf_model import TfidfModel
from polytag.models.model import State, group
from polytag.scores import Scores
from polytag.storage.schema import Array, Table
from polytag.text.word_shares import WordShares

ORDERS = ("frequency", "given", "random")


@dataclass(frozen=True)
class Chain:
    """Separators on tf-idf, the label order, and the weights of each label as a feature of the later ones (labels, labels)."""

    separators: Separators
    order: NDArray[np.int64]
    links: NDArray[np.float32]

    @property
    def joined(self) -> Separators:
        """The weights of the words, then those of the labels as features, in their order."""
        links = csr_array(self.links[self.order])
        return Separators(csr_array(vstack([self.separators.weights, links], format="csr")), self.separators.bias)

    def state(self) -> dict[str, Any]:
        """The arrays for an artefact."""
        return {"separators": self.separators.state(), "order": self.order, "links": self.links}


@dataclass
class ClassifierChain(TfidfModel):
    """Binary relevance in a chain: the predicted labels of a document are features of the later labels."""

    judged: ClassVar[tuple[str, ...]] = ("weights", "unknown")

    ordering: OrderSettings = group(OrderSettings, choices={"order": ORDERS})

    def _train(self, problem: Problem, strengths: Sequence[float], rows: NDArray[Any] | None) -> list[Chain]:
        if self.known is not None and self.prior is not None:
            order = self.known.order
            found = [learn_on(self.known.joined, self.prior, problem, self.make_solver(), rows=rows, chain=order)]
        else:
            order = self._order(problem.truth if rows is None else problem.truth[rows])
            found = train_separators(problem, strengths, self.make_solver(), rows=rows, chain=order)
        n_features = int(problem.features.shape[1])
        chains = []
        for whole in found:
            links = np.zeros((len(order), len(order)), dtype=np.float32)
            links[order] = whole.weights[n_features:].toarray()
            chains.append(Chain(Separators(csr_array(whole.weights[:n_features]), whole.bias, whole.active), order, links))
        return chains

    def _widened(self, earlier: ClassifierChain, growth: Growth, truth: csr_array) -> tuple[Chain, Prior]:
        """New labels come at the end of the chain, and have no links yet."""
        assert earlier.prior is not None
        chain, n_labels, n_known = earlier.trained, int(truth.shape[1]), len(earlier.labels)
        order = np.concatenate([chain.order, np.arange(n_known, n_labels)])
        links = np.pad(chain.links, (0, n_labels - n_known))
        return Chain(widened(chain.separators, growth, n_labels), order, links), earlier.prior.widened(growth, n_labels)

    def _as_solved(self, problem: Problem, trained: Chain) -> tuple[Problem, Separators]:
        return problem, trained.separators

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
            run_chain(table, unlocked(trained.order, np.int64), unlocked(trained.links, np.float32))
            decoded = indicator([np.flatnonzero(row > 0) for row in table], len(names))
            scores = Scores.full(table, names, "margin", decoded=decoded)
            parts.append(scores if k is None else scores.best(k))
        return Scores.stack(parts)

    def _attributed(self, found: WordShares, labels: NDArray[np.int64]) -> Attribution:
        """Contributions to the margins, through the chain too.

        A predicted label adds its links to later margins. If it is predicted for the text but not for an empty one, the words
        share these links in proportion to their contributions to its margin.
        """
        chain: Chain = self.trained
        alone = linear_parts(found, chain.separators.weights, np.arange(len(self.labels)), chain.separators.bias)
        assert alone.bias is not None
        values, bias, predicted = alone.values.copy(), alone.bias.copy(), []
        for label in chain.order.tolist():
            own, without = values[:, label].copy(), bias[label] > 0
            if bias[label] + own.sum() > 0:
                predicted.append(label)
            if (bias[label] + own.sum() > 0) != without:
                values += np.outer(own / abs(own.sum()), chain.links[label])
            if without:
                bias += chain.links[label]
        details = [{"links": self._links(predicted, label)} for label in labels.tolist()]
        return Attribution(found.spans, values[:, labels], bias[labels], details)

    def _links(self, predicted: Sequence[int], label: int) -> list[dict[str, Any]]:
        """What the predicted labels add to the margin of a label."""
        links = self.trained.links[:, label]
        return [{"label": self.labels.names[one], "contribution": float(links[one])} for one in predicted if links[one]]

    def _trained_schema(self, features: str) -> Table:
        order = Array(("int64",), ("labels",), low=0, below="labels", order="distinct")
        links = Array(("float32",), ("labels", "labels"))
        return Table({"separators": separators_schema(features), "order": order, "links": links})

    def _trained_from(self, state: State) -> Chain:
        return Chain(Separators.from_state(state["separators"]), np.asarray(state["order"]), np.asarray(state["links"]))
