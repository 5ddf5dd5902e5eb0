"""Active learning: which unlabelled texts to label next, those that the model is unsure of and that differ from each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.scores import Scores

_BEST = 20  # labels of a text that its uncertainty looks at
_POOL = 10  # texts that are considered for each one that is chosen


def uncertainty(scores: Scores) -> NDArray[np.float64]:
    """The entropy of the decisions about a text's best labels, summed; margins are taken as log-odds."""
    best = scores.best(min(_BEST, scores.matrix.shape[1]))
    values = best.matrix.data.astype(np.float64)
    p = np.clip(1 / (1 + np.exp(-values)) if scores.kind == "margin" else values, 1e-9, 1 - 1e-9)
    entropy = -(p * np.log(p) + (1 - p) * np.log1p(-p))
    rows = np.repeat(np.arange(len(best)), np.diff(best.matrix.indptr))
    return np.asarray(np.bincount(rows, weights=entropy, minlength=len(best)), dtype=np.float64)


def labelling_order(unsure: NDArray[np.float64], rows: csr_array, count: int, diversity: float = 1.0) -> NDArray[np.int64]:
    """The next ``count`` texts: greedily the most uncertain one, discounted by its likeness to those chosen before.

    ``rows`` are vectors of unit length, such as tf-idf; ``diversity`` 0 ignores them.
    """
    pool = np.argsort(-unsure, kind="stable")[: max(count, _POOL * count)]
    value, vectors = unsure[pool].copy(), csr_array(rows[pool])
    nearest = np.zeros(len(pool))
    chosen: list[int] = []
    for _ in range(min(count, len(pool))):
        worth = value * (1 - nearest) ** diversity
        worth[chosen] = -np.inf
        best = int(np.argmax(worth))
        chosen.append(best)
        alike = (vectors @ vectors[[best]].T).toarray().ravel()
        nearest = np.maximum(nearest, np.clip(alike, 0.0, 1.0))
    return np.asarray(pool[chosen], dtype=np.int64)
