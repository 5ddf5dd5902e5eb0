"""From the log of what the way to a label is worth to a probability: one curve for all labels, fitted on held-out documents.

One curve keeps the order of a document's labels; a curve per label, with few positives each, costs precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.calibration import Platt, entries_in
from polytag.scores import Scores

_NEVER = -300.0  # log odds of a label that cannot be
_SURE = 1e-6  # a probability is never nearer to one than this when it becomes log odds
STRAIGHT = (1.0, 0.0)  # the curve that changes nothing


def log_odds(logs: NDArray[Any]) -> NDArray[np.float64]:
    """Log odds of probabilities that are given by their logs."""
    logs = np.maximum(np.asarray(logs, dtype=np.float64), _NEVER)
    return np.asarray(np.maximum(logs - np.log(np.maximum(-np.expm1(logs), _SURE)), _NEVER))


def fit_curve(labels: NDArray[np.int32], logs: NDArray[Any], truth: csr_array, names: Sequence[str]) -> list[float]:
    """Slope and offset, from candidates (documents, k), -1 to fill, of documents that were not trained on."""
    found = Scores.candidates(labels, log_odds(logs), names, "margin")
    true = csr_array(entries_in(found, truth).reshape(-1, 1).astype(np.float32))
    if not true.nnz:
        return list(STRAIGHT)
    fitted = Platt.fit(Scores.full(found.matrix.data.reshape(-1, 1), ["any"], "margin"), true)
    return [float(fitted.slopes[0]), float(fitted.offsets[0])]


def chances(logs: NDArray[Any], curve: Sequence[float]) -> NDArray[np.float64]:
    """Calibrated probabilities."""
    slope, offset = curve
    with np.errstate(over="ignore"):  # one over infinity is the zero that is meant
        return np.asarray(1 / (1 + np.exp(-(slope * log_odds(logs) + offset))))


def curved(labels: NDArray[np.int32], logs: NDArray[Any], curve: Sequence[float], names: Sequence[str]) -> Scores:
    """Candidates (documents, k), -1 to fill, as scores."""
    return Scores.candidates(labels, chances(logs, curve), names, "probability")


def curved_rows(logs: csr_array, curve: Sequence[float], names: Sequence[str]) -> Scores:
    """Sparse rows of logs as scores."""
    return Scores(logs, names, "probability", 0.0).with_values(chances(logs.data, curve), "probability")
