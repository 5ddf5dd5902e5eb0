"""Predicting which labels come together, beside the main task: PLCP and CLCP (LACO, 3.4).

Both tasks see the states of the labels alone, which were made without knowing the truth; what they are told of it are the labels
that they draw. All drawing is done on the device, with widths that do not depend on the data.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

TASKS = ("none", "plcp", "clcp", "both")


class Pairs(NamedTuple):
    """Pairs of labels (batch, pairs): two label numbers, 1 where both are true, and whether the document has pairs at all."""

    first: Tensor
    second: Tensor
    together: Tensor
    used: Tensor


def draw_pairs(targets: Tensor, pairs: int, ratio: float) -> Pairs:
    """Draw ``pairs`` pairs of true labels, and so many of a true and a false one that their ratio is ``ratio`` (gamma).

    That ratio holds for every document. One that has no pair of true labels, or no false label, has none of either kind.
    """
    true = targets > 0  # (batch, labels)
    apart = max(1, round(pairs / ratio))
    both = _draw(true, pairs, 2)  # (batch, pairs, 2)
    first = torch.cat([both[..., 0], _draw(true, apart, 1)[..., 0]], dim=1)
    second = torch.cat([both[..., 1], _draw(~true, apart, 1)[..., 0]], dim=1)
    together = (torch.arange(pairs + apart, device=targets.device) < pairs).to(targets.dtype).expand(first.shape)
    return Pairs(first, second, together, (true.sum(dim=1) >= 2) & ~true.all(dim=1))


def draw_known(targets: Tensor, count: int) -> Tensor:
    """Draw ``count`` of every document's true labels, Y^G, or all if there are fewer: true where one is drawn (batch, labels)."""
    true = targets > 0
    drawn = _draw(true, 1, min(count, targets.shape[1]))[:, 0]  # (batch, count)
    return torch.zeros_like(true).scatter(1, drawn, True) & true  # where there are too few, false labels were drawn too


def _draw(allowed: Tensor, times: int, count: int) -> Tensor:
    """``count`` different labels of the allowed ones (batch, labels), drawn ``times`` times: (batch, times, count)."""
    batch, n_labels = allowed.shape
    keys = torch.rand(batch, times, n_labels, device=allowed.device).masked_fill(~allowed[:, None], -1)
    return keys.topk(count, dim=2).indices


def _classifier(inputs: int, size: int) -> nn.Module:
    if not size:
        return nn.Linear(inputs, 1)
    return nn.Sequential(nn.Linear(inputs, size), nn.ReLU(), nn.Linear(size, 1))


class PairTask(nn.Module):
    """Pairwise co-occurrence (eq. 5): from the states of two labels, whether both are true."""

    def __init__(self, hidden: int, size: int, pairs: int, ratio: float) -> None:
        """Take the sizes of states and classifier, the pairs of true labels per document, and gamma."""
        super().__init__()
        self.pairs, self.ratio = pairs, ratio
        self.classifier = _classifier(2 * hidden, size)

    def forward(self, labels: Tensor, targets: Tensor) -> Tensor:
        """The loss, summed over pairs as eq. 4 is over labels, and like that divided by the number of labels."""
        drawn = draw_pairs(targets, self.pairs, self.ratio)
        two = [labels.gather(1, at[..., None].expand(-1, -1, labels.shape[2])) for at in (drawn.first, drawn.second)]
        logits = self.classifier(torch.cat(two, dim=2)).squeeze(2).float()  # (batch, pairs)
        each = functional.binary_cross_entropy_with_logits(logits, drawn.together.float(), reduction="none")
        return (each * drawn.used[:, None]).sum() / targets.numel()


class ConditionTask(nn.Module):
    """Conditional co-occurrence (eq. 6): knowing some true labels, which of the others are true.

    Their mean state joined with that of each other label decides. A label that is known is left out of the loss, and a label
    that is asked for is left out of the mean.
    """

    def __init__(self, hidden: int, size: int, known: int) -> None:
        """Take the sizes of states and classifier, and s, the number of labels that are known."""
        super().__init__()
        self.known = known
        self.classifier = _classifier(2 * hidden, size)

    def forward(self, labels: Tensor, targets: Tensor) -> Tensor:
        """The loss, summed over the labels that are asked for, divided by the number of labels."""
        known = draw_known(targets, self.known)
        logits = self.logits(labels, known)
        each = functional.binary_cross_entropy_with_logits(logits, (targets > 0).float(), reduction="none")
        asked = ~known & known.any(dim=1, keepdim=True)  # a document without labels has nothing to go by
        return (each * asked).sum() / targets.numel()

    def logits(self, labels: Tensor, known: Tensor) -> Tensor:
        """What is thought of every label (batch, labels), those that are known included."""
        weight = known[:, None].to(labels.dtype)  # (batch, 1, labels)
        mean = (weight @ labels) / weight.sum(dim=2, keepdim=True).clamp(min=1)  # (batch, 1, hidden)
        logits: Tensor = self.classifier(torch.cat([mean.expand_as(labels), labels], dim=2)).squeeze(2).float()
        return logits
