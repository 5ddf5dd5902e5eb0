"""Losses for many labels at once: plain functions of logits and targets (documents, labels), each a mean over both."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

LOSSES = ("bce", "focal", "asymmetric")


def smooth(targets: Tensor, amount: float) -> Tensor:
    """Targets pulled towards one half: ``t (1 - amount) + amount / 2``."""
    return targets * (1 - amount) + amount / 2 if amount else targets


def binary_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """``-w t log p - (1 - t) log(1 - p)``, with a weight w per label for its positives."""
    return functional.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights)


def focal(logits: Tensor, targets: Tensor, gamma: float = 2.0, weights: Tensor | None = None) -> Tensor:
    """Cross-entropy where what is right already counts less (Lin et al. 2017): ``-(1 - q)^gamma log q``, q the truth's share."""
    each = functional.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights, reduction="none")
    p = torch.sigmoid(logits)
    wrong = p + targets - 2 * p * targets  # 1 - q, for soft targets too
    return (wrong.clamp(min=1e-8) ** gamma * each).mean()


def asymmetric(
    logits: Tensor, targets: Tensor, gamma_positive: float = 0.0, gamma_negative: float = 4.0, margin: float = 0.05
) -> Tensor:
    """The asymmetric loss of Ridnik et al. 2021: easy negatives count less, and not at all below the margin.

    ``-t (1 - p)^g+ log p - (1 - t) m^g- log(1 - m)`` with ``m = max(p - margin, 0)``.
    """
    p = torch.sigmoid(logits)
    shifted = (p - margin).clamp(min=0)
    positive = targets * (1 - p).clamp(min=1e-8) ** gamma_positive * functional.logsigmoid(logits)
    negative = (1 - targets) * shifted**gamma_negative * torch.log1p(-shifted.clamp(max=1 - 1e-6))
    return -(positive + negative).mean()


def positive_weights(counts: NDArray[Any], documents: int, power: float, most: float = 50.0) -> NDArray[np.float32]:
    """What a positive of every label counts: ``(negatives / positives)^power``, at most ``most``; 1 for a label without any."""
    positives = np.asarray(counts, dtype=np.float64)
    ratio = (documents - positives) / np.maximum(positives, 1)
    weights = np.clip(ratio, 1e-3, None) ** power
    return np.where(positives > 0, np.clip(weights, None, most), 1.0).astype(np.float32)


def log_odds(counts: NDArray[Any], documents: int) -> NDArray[np.float32]:
    """The log-odds of every label's frequency: where an output bias may start.

    Half a hit and half a miss are imagined for each label, and less where there are so many labels that what is imagined would
    outweigh a tenth of what is known: the outputs of labels that nobody has would drown the others at first.
    """
    counts = np.asarray(counts, dtype=np.float64)
    imagined = min(0.5, max(counts.sum(), 1.0) / (10 * max(1, len(counts))))
    share = (counts + imagined) / (documents + 2 * imagined)
    found: NDArray[np.float32] = np.log(share / (1 - share)).astype(np.float32)
    return found
