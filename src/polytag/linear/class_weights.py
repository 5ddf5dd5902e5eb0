"""Weights of a label's positive documents, by three named formulas, and the propensities of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def imbalance_weights(counts: NDArray[Any], documents: int, power: float) -> NDArray[np.float32]:
    """``(negatives / positives)^power``, both at least 1: for one-versus-all separators."""
    positives = np.maximum(counts, 1)
    return np.asarray((np.maximum(documents - positives, 1) / positives) ** power, dtype=np.float32)


def capped_imbalance_weights(counts: NDArray[Any], documents: int, power: float, most: float = 50.0) -> NDArray[np.float32]:
    """``(negatives / positives)^power``, at most ``most``; 1 for a label without positives: for losses of networks."""
    positives = np.asarray(counts, dtype=np.float64)
    ratio = (documents - positives) / np.maximum(positives, 1)
    weights = np.clip(ratio, 1e-3, None) ** power
    return np.where(positives > 0, np.clip(weights, None, most), 1.0).astype(np.float32)


def rarity_weights(counts: NDArray[Any], documents: int, power: float, *, propensity: bool) -> NDArray[np.float64]:
    """``(documents / positives)^power``, optionally divided by the label's propensity: for separators within clusters."""
    weights = (documents / np.maximum(counts, 1)) ** power
    return np.asarray(weights / propensities(counts, documents) if propensity else weights)


def propensities(train_counts: NDArray[Any], train_documents: int, a: float = 0.55, b: float = 1.5) -> NDArray[np.float64]:
    """The probability that a relevant label is annotated, from its training frequency (Jain et al. 2016, section 4).

    p = 1 / (1 + C (count + B)^-A) with C = (ln N - 1) (B + 1)^A; C is at least 0, so that p <= 1 for tiny corpora.
    """
    scale = max(np.log(max(train_documents, 1)) - 1, 0.0) * (b + 1) ** a
    return np.asarray(1 / (1 + scale * (np.asarray(train_counts, dtype=np.float64) + b) ** -a), dtype=np.float64)
