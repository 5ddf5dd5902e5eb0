"""All metrics of an outcome: of sets, of rankings, along the tree, and of probabilities."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from polytag.metrics.of_sets import calibration_error, evaluate
from polytag.metrics.of_trees import tree_metrics
from polytag.metrics.outcome import Outcome


def outcome_metrics(found: Outcome, train_documents: int, predicted: csr_array | None = None) -> dict[str, float]:
    """The metrics of the predicted sets, or of other sets for the same documents."""
    sets = found.predicted if predicted is None else predicted
    metrics = evaluate(
        found.truth, sets, found.scores, train_counts=found.train_counts, train_documents=train_documents,
        weights=found.weights, unknown=found.unknown,
    )  # fmt: skip
    metrics |= tree_metrics(found.truth, sets, found.labels, found.weights)
    unseen = found.train_counts == 0
    metrics["unseen_labels"] = float(len(np.unique(found.truth.indices[unseen[found.truth.indices]])))
    if found.scores.kind == "probability":
        metrics["calibration_error"] = calibration_error(found.truth, found.scores, weights=found.weights)
    return metrics
