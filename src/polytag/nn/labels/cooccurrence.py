"""The auxiliary tasks PLCP and CLCP: prediction of label co-occurrence (LACO, 3.4).

The inputs of both tasks are the labels' states, which do not depend on the targets, and the sampled labels. All sampling is on
the device, with tensor shapes that do not depend on the data.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

TASKS = ("none", "plcp", "clcp", "both")
PAIR_LOSSES = ("sum", "mean")


class Pairs(NamedTuple):
    """Pairs of labels (batch, pairs): two label indices, 1 where both are true, and whether the document has pairs at all."""

    first: Tensor
    second: Tensor
    together: Tensor
    used: Tensor


def draw_pairs(targets: Tensor, pairs: int, ratio: float) -> Pairs:
    """Sample ``pairs`` positive pairs (both labels true) and ``pairs / ratio`` negative ones (one true); ratio is gamma.

    The ratio holds for every document. A document with fewer than two true labels, or without a false label, has no pairs.
    """
    true = targets > 0  # (batch, labels)
    apart = max(1, round(pairs / ratio))
    both = _draw(true, pairs, 2)  # (batch, pairs, 2)
    first = torch.cat([both[..., 0], _draw(true, apart, 1)[..., 0]], dim=1)
    second = torch.cat([both[..., 1], _draw(~true, apart, 1)[..., 0]], dim=1)
    together = (torch.arange(pairs + apart, device=targets.device) < pairs).to(targets.dtype).expand(first.shape)
    return Pairs(first, second, together, (true.sum(dim=1) >= 2) & ~true.all(dim=1))


def draw_known(targets: Tensor, count: int) -> Tensor:
    """Sample ``count`` true labels of every document (Y^G), or all if there are fewer: a mask (batch, labels)."""
    true = targets > 0
    drawn = _draw(true, 1, min(count, targets.shape[1]))[:, 0]  # (batch, count)
    return torch.zeros_like(true).scatter(1, drawn, True) & true  # with too few true labels, false ones were sampled too


def _draw(allowed: Tensor, times: int, count: int) -> Tensor:
    """Sample ``count`` distinct allowed labels (batch, labels), ``times`` times: (batch, times, count)."""
    batch, n_labels = allowed.shape
    keys = torch.rand(batch, times, n_labels, device=allowed.device).masked_fill(~allowed[:, None], -1)
    return keys.topk(count, dim=2).indices


def _classifier(inputs: int, size: int) -> nn.Module:
    if not size:
        return nn.Linear(inputs, 1)
    return nn.Sequential(nn.Linear(inputs, size), nn.ReLU(), nn.Linear(size, 1))


class PairTask(nn.Module):
    """Pairwise co-occurrence (eq. 5): from the states of two labels, whether both are true."""

    def __init__(self, hidden: int, size: int, pairs: int, ratio: float, over: str = "sum") -> None:
        """Build the classifier; ``pairs`` is the number of positive pairs per document, ``ratio`` is gamma.

        ``over`` is ``sum``, or ``mean`` for the paper's weight: eq. 5 is the loss of one pair, eq. 4 a sum over all labels.
        """
        super().__init__()
        self.pairs, self.ratio, self.over = pairs, ratio, over
        self.classifier = _classifier(2 * hidden, size)

    def forward(self, labels: Tensor, targets: Tensor) -> Tensor:
        """The loss: a sum or mean over the pairs of a document, divided by the number of labels like that of eq. 4."""
        if targets.shape[1] < 2:  # one label has no pairs
            return labels.float().sum() * 0
        drawn = draw_pairs(targets, self.pairs, self.ratio)
        two = [labels.gather(1, at[..., None].expand(-1, -1, labels.shape[2])) for at in (drawn.first, drawn.second)]
        logits = self.classifier(torch.cat(two, dim=2)).squeeze(2).float()  # (batch, pairs)
        each = functional.binary_cross_entropy_with_logits(logits, drawn.together.float(), reduction="none")
        loss = (each * drawn.used[:, None]).sum() / targets.numel()
        return loss / each.shape[1] if self.over == "mean" else loss


class ConditionTask(nn.Module):
    """Conditional co-occurrence (eq. 6): given some true labels, predict which of the others are true.

    The classifier input is the mean state of the known labels, concatenated with the state of the other label. Known labels have
    no loss, and predicted labels are not in the mean.
    """

    def __init__(self, hidden: int, size: int, known: int) -> None:
        """Build the classifier; ``known`` is s, the number of known labels."""
        super().__init__()
        self.known = known
        self.classifier = _classifier(2 * hidden, size)

    def forward(self, labels: Tensor, targets: Tensor) -> Tensor:
        """The loss: a sum over the predicted labels, divided by the number of labels."""
        known = draw_known(targets, self.known)
        logits = self.logits(labels, known)
        each = functional.binary_cross_entropy_with_logits(logits, (targets > 0).float(), reduction="none")
        asked = ~known & known.any(dim=1, keepdim=True)  # documents without labels have no loss
        return (each * asked).sum() / targets.numel()

    def logits(self, labels: Tensor, known: Tensor) -> Tensor:
        """Logits of all labels (batch, labels), including the known ones."""
        weight = known[:, None].to(labels.dtype)  # (batch, 1, labels)
        mean = (weight @ labels) / weight.sum(dim=2, keepdim=True).clamp(min=1)  # (batch, 1, hidden)
        logits: Tensor = self.classifier(torch.cat([mean.expand_as(labels), labels], dim=2)).squeeze(2).float()
        return logits
