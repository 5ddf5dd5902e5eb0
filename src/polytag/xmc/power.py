"""The power of P(cluster | x) in equation 1 that ranks best: networks are often too sure of themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.metrics_ranking import ranking_metrics
from polytag.scores import Scores

Ranked: TypeAlias = tuple[NDArray[np.int32], NDArray[np.float32]]
_POWERS = (1.0, 0.75, 0.5, 1.5, 0.25, 0.125)


def precision_by_power(ranked: Callable[[float], Ranked], truth: csr_array, names: Sequence[str]) -> dict[float, float]:
    """What each power reaches on held-out documents, whose labels and logs ``ranked`` gives; those nearest to 1 come first."""
    return {power: _precision(*ranked(power), truth, names) for power in _POWERS}


def _precision(labels: NDArray[np.int32], logs: NDArray[np.float32], truth: csr_array, names: Sequence[str]) -> float:
    """The mean of P@1, P@3 and P@5."""
    found = ranking_metrics(truth, Scores.candidates(labels, logs, names, "margin"))
    return float(np.mean([found[f"p@{k}"] for k in (1, 3, 5)]))
