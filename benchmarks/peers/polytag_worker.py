"""Polytag: binary relevance on the matrix that everyone gets; numba compiles before the clock starts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from peers.worker import above, main
from polytag.corpus import Corpus
from polytag.decision.calibration import Platt
from polytag.decision.decision import Decision
from polytag.labels import LabelSet
from polytag.linear.svm import Problem, Separators, Solver, train_separators
from polytag.models.binary_relevance import BinaryRelevance
from polytag.run import Run
from polytag.scores import Scores


class Trained(NamedTuple):
    """Separators, and for the complete model what turns margins into label sets."""

    separators: Separators
    calibration: Platt | None
    decision: Decision | None
    labels: LabelSet


class Polytag:
    """Binary relevance three times.

    ``br-plain`` solves the peers' problem (C = 1, no class weights), ``br`` has its own class weights and the middle of its grid
    of C, ``br-complete`` is all of the default: C, calibration and thresholds from out-of-fold scores.
    """

    packages = ("polytag", "numba", "numpy", "scipy")

    def compile(self, variant: str, threads: int) -> None:
        """Train and predict on a tiny problem of the real types: all that numba compiles is compiled here."""
        x = sparse.csr_matrix(np.eye(12, 5, dtype=np.float32) + np.eye(12, 5, k=-6, dtype=np.float32))
        y = sparse.csr_matrix(np.eye(12, 3, dtype=np.float32) + np.eye(12, 3, k=-6, dtype=np.float32))
        model = self.ready(self.train(variant, self.features(x), self.targets(y), threads))
        self.decide(model, self.features(x), threads)
        self.scores(model, self.features(x), threads)

    def features(self, x: sparse.csr_matrix) -> Any:
        """The package's own sparse type."""
        return sparse.csr_array(x)

    def targets(self, y: sparse.csr_matrix) -> Any:
        """The package's own sparse type."""
        return sparse.csr_array(y)

    def train(self, variant: str, x: Any, y: Any, threads: int) -> Trained:
        """All of it is timed, the preparation of the problem included."""
        model, problem = BinaryRelevance(), Problem(x, y)
        labels = LabelSet(str(number) for number in range(y.shape[1]))
        if variant != "br-complete":
            strength, solver = (1.0, Solver()) if variant == "br-plain" else (0.5, model.make_solver())
            return Trained(train_separators(problem, [strength], solver)[0], None, None, labels)
        documents = [""] * x.shape[0]
        corpus = Corpus(documents, documents, labels, y)
        parts = corpus.folds(model.held_out.folds)
        chosen, first = model._strength(problem, corpus, parts, Run())
        held = model._out_of_fold(problem, corpus, parts, chosen, first, Run())
        assert held is not None
        calibration = Platt.fit(held.scores, held.truth)
        decision = Decision(min_labels=int(np.diff(y.indptr).min()))
        decision.fit(calibration.apply(held.scores), held.truth, labels)
        return Trained(train_separators(problem, [chosen], model.make_solver())[0], calibration, decision, labels)

    def ready(self, model: Trained) -> Trained:
        """Lay the weights out in blocks, as the first prediction of a loaded model does."""
        _ = model.separators.blocks
        return model

    def decide(self, model: Trained, x: Any, threads: int) -> Any:
        """Margins above zero, or the decision that was fitted."""
        margins = model.separators.all(x)
        if model.calibration is None or model.decision is None:
            return above(margins, 0.0)
        scores = model.calibration.apply(Scores.full(margins, model.labels.names, "margin"))
        return model.decision.decide(scores, model.labels)

    def scores(self, model: Trained, x: Any, threads: int) -> Any:
        """Margins."""
        return model.separators.all(x)


if __name__ == "__main__":
    main(Polytag())
