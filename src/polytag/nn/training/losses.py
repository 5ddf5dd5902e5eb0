"""Multi-label losses: functions of logits and targets (documents, labels), averaged over both."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional


def smooth(targets: Tensor, amount: float) -> Tensor:
    """Label smoothing: ``t (1 - amount) + amount / 2``."""
    return targets * (1 - amount) + amount / 2 if amount else targets


def mean(each: Tensor, judged: Tensor | None) -> Tensor:
    """The mean over documents and labels; ``judged`` is the weight of every pair, 0 where nobody judged it."""
    return each.mean() if judged is None else (each * judged).mean()


def binary_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None = None, judged: Tensor | None = None) -> Tensor:
    """``-w t log p - (1 - t) log(1 - p)``; w is a weight per label for its positives."""
    if judged is not None:
        each = functional.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights, reduction="none")
        return mean(each, judged)
    return functional.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights)


def focal(
    logits: Tensor, targets: Tensor, gamma: float = 2.0, weights: Tensor | None = None, judged: Tensor | None = None
) -> Tensor:
    """The focal loss (Lin et al. 2017): ``-(1 - q)^gamma log q``, where q is the probability of the target."""
    each = functional.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights, reduction="none")
    p = torch.sigmoid(logits)
    wrong = p + targets - 2 * p * targets  # 1 - q, for soft targets too
    return mean(wrong.clamp(min=1e-8) ** gamma * each, judged)


def asymmetric(
    logits: Tensor,
    targets: Tensor,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    margin: float = 0.05,
    judged: Tensor | None = None,
) -> Tensor:
    """The asymmetric loss (Ridnik et al. 2021): easy negatives are down-weighted, and ignored below the margin.

    ``-t (1 - p)^g+ log p - (1 - t) m^g- log(1 - m)`` with ``m = max(p - margin, 0)``.
    """
    p = torch.sigmoid(logits)
    shifted = (p - margin).clamp(min=0)
    positive = targets * (1 - p).clamp(min=1e-8) ** gamma_positive * functional.logsigmoid(logits)
    negative = (1 - targets) * shifted**gamma_negative * torch.log1p(-shifted.clamp(max=1 - 1e-6))
    return -mean(positive + negative, judged)


def log_odds(counts: NDArray[Any], documents: int) -> NDArray[np.float32]:
    """The smoothed log-odds of every label's frequency, to initialise an output bias.

    The pseudo-count is one half, for positives and for negatives. With very many labels it is smaller: all pseudo-counts together
    are at most a tenth of the counts, else the outputs of unused labels would dominate at first.
    """
    counts = np.asarray(counts, dtype=np.float64)
    pseudo = min(0.5, max(counts.sum(), 1.0) / (10 * max(1, len(counts))))
    share = (counts + pseudo) / (documents + 2 * pseudo)
    found: NDArray[np.float32] = np.log(share / (1 - share)).astype(np.float32)
    return found
