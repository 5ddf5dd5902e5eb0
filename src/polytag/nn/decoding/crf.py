"""A linear-chain conditional random field (Huang et al. 2015), for a whole batch at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn


class Crf(nn.Module):
    """Tag sequences of one length: ``p(y | x) = exp(s(x, y)) / sum_y' exp(s(x, y'))``.

    The score ``s`` sums the emissions of the tags (batch, length, tags), the transition scores, and the scores of the first and
    the last tag. No operation synchronises with the host.
    """

    def __init__(self, tags: int) -> None:
        """Initialise all transition scores with zero."""
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(tags, tags))  # from, to
        self.first = nn.Parameter(torch.zeros(tags))
        self.last = nn.Parameter(torch.zeros(tags))

    def log_likelihood(self, emissions: Tensor, tags: Tensor) -> Tensor:
        """``log p`` of tag sequences (batch, length): (batch,)."""
        return self.score(emissions, tags) - self.log_partition(emissions)

    def score(self, emissions: Tensor, tags: Tensor) -> Tensor:
        """``s`` of tag sequences: (batch,)."""
        ones = (tags[..., None] == torch.arange(len(self.first), device=tags.device)).to(emissions.dtype)  # (batch, length, tags)
        emitted = (emissions * ones).sum(dim=(1, 2))
        moves = ones[:, :-1].transpose(1, 2) @ ones[:, 1:]  # (batch, tags, tags): counts of the transitions
        return emitted + (moves * self.transitions).sum(dim=(1, 2)) + ones[:, 0] @ self.first + ones[:, -1] @ self.last

    def log_partition(self, emissions: Tensor) -> Tensor:
        """The log of the sum over all sequences: (batch,)."""
        found = _sweep(self.first + emissions[:, 0], self._steps(emissions), _log_sum)
        return torch.logsumexp(found[:, -1] + self.last, dim=1)

    def marginals(self, emissions: Tensor) -> Tensor:
        """The probability of every tag at every position (batch, length, tags), by the forward-backward algorithm."""
        steps = self._steps(emissions)
        before = _sweep(self.first + emissions[:, 0], steps, _log_sum)
        after = _sweep(self.last.expand(len(emissions), -1), steps.flip(1).transpose(2, 3), _log_sum).flip(1)
        return torch.softmax(before + after, dim=2)

    def decode(self, emissions: Tensor) -> Tensor:
        """The most likely sequence (batch, length), by the Viterbi algorithm."""
        best = _sweep(self.first + emissions[:, 0], self._steps(emissions), _largest)  # (batch, length, tags)
        previous = (best[:, :-1, :, None] + self.transitions).argmax(dim=2)  # (batch, length - 1, tags): the previous tag
        tags = [(best[:, -1] + self.last).argmax(dim=1)]
        for from_tag in reversed(previous.unbind(dim=1)):
            tags.append(from_tag.gather(1, tags[-1][:, None]).squeeze(1))
        return torch.stack(tags[::-1], dim=1)

    def _steps(self, emissions: Tensor) -> Tensor:
        """The scores of all transitions to every position but the first: (batch, length - 1, tags, tags)."""
        return self.transitions + emissions[:, 1:, None]


_Join: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def _sweep(start: Tensor, steps: Tensor, join: _Join) -> Tensor:
    """The forward scores (batch, steps + 1, tags) from ``start`` (batch, tags) and steps (batch, steps, tags, tags).

    Joining steps is associative, so this is a parallel prefix scan: each round doubles the number of joined steps. It needs a few
    large operations instead of hundreds of small ones.
    """
    found = torch.cat([start[:, None, None].expand(-1, 1, start.shape[1], -1), steps], dim=1)
    reach = 1
    while reach < found.shape[1]:
        found = torch.cat([found[:, :reach], join(found[:, :-reach], found[:, reach:])], dim=1)
        reach *= 2
    return found[:, :, 0]  # all rows are equal, because ``start`` was broadcast


def _log_sum(first: Tensor, second: Tensor) -> Tensor:
    return torch.logsumexp(first[..., None] + second[..., None, :, :], dim=-2)


def _largest(first: Tensor, second: Tensor) -> Tensor:
    return (first[..., None] + second[..., None, :, :]).amax(dim=-2)
