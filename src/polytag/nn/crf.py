"""A linear-chain conditional random field (Huang et al. 2015), for a whole batch at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Crf(nn.Module):
    """Sequences of tags, all of one length: ``p(y | x) = exp(s(x, y)) / sum_y' exp(s(x, y'))``.

    The score ``s`` adds up the emissions of the tags (batch, length, tags), the transitions from each tag to the next, and one
    number each for the first and the last tag. Loops are over the length alone, and nothing in them asks the host.
    """

    def __init__(self, tags: int) -> None:
        """Let every sequence be as likely as any other, but for the emissions."""
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(tags, tags))  # from, to
        self.first = nn.Parameter(torch.zeros(tags))
        self.last = nn.Parameter(torch.zeros(tags))

    def log_likelihood(self, emissions: Tensor, tags: Tensor) -> Tensor:
        """``log p`` of tag sequences (batch, length): (batch,)."""
        return self.score(emissions, tags) - self.log_partition(emissions)

    def score(self, emissions: Tensor, tags: Tensor) -> Tensor:
        """``s`` of tag sequences: (batch,)."""
        emitted = emissions.gather(2, tags[..., None]).squeeze(2).sum(dim=1)
        moved = self.transitions[tags[:, :-1], tags[:, 1:]].sum(dim=1)
        return emitted + moved + self.first[tags[:, 0]] + self.last[tags[:, -1]]

    def log_partition(self, emissions: Tensor) -> Tensor:
        """The log of the sum over all sequences: (batch,)."""
        return torch.logsumexp(self._forward(emissions)[-1] + self.last, dim=1)

    def marginals(self, emissions: Tensor) -> Tensor:
        """The probability of every tag at every place (batch, length, tags), by the forward-backward algorithm."""
        before = self._forward(emissions)
        after = [self.last.expand_as(before[0])]
        for place in range(emissions.shape[1] - 1, 0, -1):
            onward = emissions[:, place] + after[-1]  # (batch, tags)
            after.append(torch.logsumexp(self.transitions + onward[:, None], dim=2))
        both = torch.stack(before, dim=1) + torch.stack(after[::-1], dim=1)
        return torch.softmax(both, dim=2)

    def decode(self, emissions: Tensor) -> Tensor:
        """The most likely sequence (batch, length), by Viterbi's algorithm."""
        best, came = self.first + emissions[:, 0], []
        for place in range(1, emissions.shape[1]):
            value, from_tag = (best[..., None] + self.transitions).max(dim=1)  # (batch, tags)
            best = value + emissions[:, place]
            came.append(from_tag)
        tags = [(best + self.last).argmax(dim=1)]
        for from_tag in reversed(came):
            tags.append(from_tag.gather(1, tags[-1][:, None]).squeeze(1))
        return torch.stack(tags[::-1], dim=1)

    def _forward(self, emissions: Tensor) -> list[Tensor]:
        """For every place, the log of the sum over all beginnings that end there in each tag: (batch, tags) each."""
        found = [self.first + emissions[:, 0]]
        for place in range(1, emissions.shape[1]):
            onward = torch.logsumexp(found[-1][..., None] + self.transitions, dim=1)
            found.append(onward + emissions[:, place])
        return found
