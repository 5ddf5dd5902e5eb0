"""Optimal completion distillation (Sabour et al. 2019; for label sets Tsai and Lee 2020): training without a label order.

The decoder generates a sequence by itself. At every step, the optimal next labels are those that the best completion of this
prefix may begin with: every true label that is still missing, and <eos> once none is. The target is uniform over them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from polytag.nn.decoding.label_sequences import IGNORE
from polytag.nn.decoding.lstm_decoder import Decoder


@torch.no_grad()
def rolled_out(decoder: Decoder, states: Tensor, mask: Tensor, last: Tensor | None, steps: int) -> Tensor:
    """Sequences (batch, steps) drawn from the decoder's own distribution: labels, <eos>, then IGNORE."""
    memory, state = decoder.start(states, mask, last)
    previous = torch.full((len(states), 1), decoder.bos, device=states.device)
    ended = torch.zeros_like(previous, dtype=torch.bool)
    found = []
    for _ in range(steps):
        logits, state = decoder.step(previous, state, memory)  # (batch, 1, labels + 1)
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-9, 1 - 1e-7)))
        drawn = (logits + noise).argmax(dim=2)  # Gumbel: a draw from the softmax
        found.append(torch.where(ended, IGNORE, drawn))
        ended = ended | (drawn == decoder.eos)
        previous = torch.where(ended, decoder.eos, drawn)
    return torch.cat(found, dim=1)


def completion_targets(sequence: Tensor, targets: Tensor) -> Tensor:
    """The optimal next labels of every prefix (batch, steps, labels + 1), as distributions; zero after the end of a sequence."""
    n_labels = targets.shape[1]
    drawn = functional.one_hot(torch.where(sequence < 0, n_labels, sequence), n_labels + 1)[..., :n_labels]
    before = drawn.cumsum(dim=1) - drawn  # (batch, steps, labels)
    missing = (targets[:, None] > 0) & (before == 0)
    none = ~missing.any(dim=2, keepdim=True)
    optimal = torch.cat([missing, none], dim=2).to(targets.dtype)
    return optimal / optimal.sum(dim=2, keepdim=True) * (sequence != IGNORE)[..., None]


def completion_loss(logits: Tensor, sequence: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of logits (batch, steps, labels + 1) and optimal completions, summed over the steps, mean over documents.

    Label smoothing (``smoothing``) distributes that share of the target over all labels that are not masked.
    """
    allowed = logits > float("-inf")
    log_p = torch.where(allowed, torch.log_softmax(logits.float(), dim=2), 0)
    wanted = completion_targets(sequence, targets)
    if smoothing:
        spread = allowed / allowed.sum(dim=2, keepdim=True) * (sequence != IGNORE)[..., None]
        wanted = (1 - smoothing) * wanted + smoothing * spread
    return -(wanted * log_p).sum() / len(sequence)
