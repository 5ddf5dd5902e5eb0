"""Calibration of candidates, whose scores are log-probabilities: one sigmoid for all labels, fitted on held-out documents.

One curve preserves the order of a document's labels; a curve per label, with few positives each, reduces precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision.calibration import Platt
from polytag.scores import Scores
from polytag.storage.schema import Items, Number

_NEVER = -300.0  # log-odds of an impossible label
_SURE = 1e-6  # lower bound of 1 - p in the log-odds
CURVE = Items(Number(-1e9, 1e9, whole=False), count=2)
"""What a curve looks like when it is saved: slope and offset."""
STRAIGHT = (1.0, 0.0)  # slope and offset of the identity


def log_odds(logs: NDArray[Any]) -> NDArray[np.float64]:
    """Log-odds of log-probabilities."""
    logs = np.maximum(np.asarray(logs, dtype=np.float64), _NEVER)
    return np.asarray(np.maximum(logs - np.log(np.maximum(-np.expm1(logs), _SURE)), _NEVER))


def fit_curve(labels: NDArray[np.int32], logs: NDArray[Any], truth: csr_array, names: Sequence[str]) -> list[float]:
    """Slope and offset, fitted on the candidates (documents, k) of held-out documents; -1 pads ``labels``."""
    found = Scores.candidates(labels, log_odds(logs), names, "margin")
    true = csr_array(found.hits(truth).reshape(-1, 1).astype(np.float32))
    if not true.nnz:
        return list(STRAIGHT)
    fitted = Platt.fit(Scores.full(found.matrix.data.reshape(-1, 1), ["any"], "margin"), true)
    return [float(fitted.slopes[0]), float(fitted.offsets[0])]


def chances(logs: NDArray[Any], curve: Sequence[float]) -> NDArray[np.float64]:
    """Calibrated probabilities."""
    slope, offset = curve
    with np.errstate(over="ignore"):  # 1 / infinity = 0 is correct
        return np.asarray(1 / (1 + np.exp(-(slope * log_odds(logs) + offset))))


def curved(labels: NDArray[np.int32], logs: NDArray[Any], curve: Sequence[float], names: Sequence[str]) -> Scores:
    """Calibrated scores of candidates (documents, k); -1 pads ``labels``."""
    return Scores.candidates(labels, chances(logs, curve), names, "probability")


def curved_rows(logs: csr_array, curve: Sequence[float], names: Sequence[str]) -> Scores:
    """Calibrated scores of sparse rows of log-probabilities."""
    return Scores(logs, names, "probability", 0.0).with_values(chances(logs.data, curve), "probability")
