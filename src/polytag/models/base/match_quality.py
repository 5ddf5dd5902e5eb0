"""The recall of a matcher, and the precision for each power of P(cluster | x) in equation 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.metrics.of_rankings import ranking_metrics
from polytag.scores import Scores

Ranked: TypeAlias = tuple[NDArray[np.int32], NDArray[np.float32]]
_RECALLS = 10
_TIE = 0.01  # weight of the squared error of the probabilities; recall must outweigh it
_POWERS = (1.0, 0.75, 1.5, 0.5, 2.0, 3.0, 0.25, 4.0, 0.125)
_STEP, _LARGEST = 1.5, 32.0  # where the largest power is the best, larger ones are tried


def precision_by_power(ranked: Callable[[float], Ranked], truth: csr_array, names: Sequence[str]) -> dict[float, float]:
    """Precision on held-out documents for each power, nearest to 1 first; ``ranked(power)`` returns labels and logs.

    While the largest power is better than all others, a larger one is tried: the choice is no end of the grid.
    """
    found = {power: _precision(*ranked(power), truth, names) for power in _POWERS}
    while (largest := max(found)) < _LARGEST and max(found, key=lambda power: found[power]) == largest:
        found[_STEP * largest] = _precision(*ranked(_STEP * largest), truth, names)
    return found


def _precision(labels: NDArray[np.int32], logs: NDArray[np.float32], truth: csr_array, names: Sequence[str]) -> float:
    """The mean of P@1, P@3 and P@5."""
    found = ranking_metrics(truth, Scores.candidates(labels, logs, names, "margin"))
    return float(np.mean([found[f"p@{k}"] for k in (1, 3, 5)]))


def match_quality(scores: Scores, truth: csr_array, beam: int) -> float:
    """Mean recall of the true clusters among the 1, ..., ``beam`` best, minus a small penalty for squared error.

    Recall at ``beam`` alone is uninformative if the beam contains most clusters.
    """
    ks = np.unique(np.linspace(1, beam, min(beam, _RECALLS)).astype(int)).tolist()
    found = ranking_metrics(truth, scores, ks)
    recall = float(np.mean([found[f"r@{k}"] for k in ks]))
    wrong = scores.matrix.data - scores.hits(truth)
    return recall - _TIE * float(np.mean(wrong**2)) if len(wrong) else recall
