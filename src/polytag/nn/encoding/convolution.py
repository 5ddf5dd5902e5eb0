"""Convolution filters over texts with max-pooling over time (Kim 2014)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class Filters(nn.Module):
    """``c_i = relu(W x_{i:i+h-1} + b)`` for filters of one width h; positions after the text are zero."""

    def __init__(self, size: int, filters: int, width: int) -> None:
        """Build the convolution; ``size`` is the size of the states."""
        super().__init__()
        self.width = width
        self.convolution = nn.Conv1d(size, filters, width)

    def forward(self, states: Tensor) -> Tensor:
        """Features (batch, filters, length) of states (batch, size, length), one for every start position of a filter."""
        return functional.relu(self.convolution(functional.pad(states, (0, self.width - 1))))


class KimFilters(nn.ModuleList):
    """Filters of several widths with max-pooling over the text."""

    def __init__(self, size: int, filters: int, widths: Sequence[int]) -> None:
        """Build the filters: ``filters`` of each width; ``size`` is the size of the states."""
        super().__init__(Filters(size, filters, width) for width in widths)
        self.size = filters * len(widths)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """One vector per document (batch, widths * filters) of states (batch, length, size)."""
        states = masked(states, mask)  # (batch, size, length)
        first = torch.arange(mask.shape[1], device=mask.device) == 0
        found = []
        for part in self:
            assert isinstance(part, Filters)
            end = functional.pad(mask.to(states.dtype), (0, part.width - 1))[:, part.width - 1 :] > 0
            inside = (mask & end) | first  # a text shorter than the filter has one position
            found.append(part(states).masked_fill(~inside[:, None], 0).amax(dim=2))  # features are never below zero
        return torch.cat(found, dim=1)


def masked(states: Tensor, mask: Tensor) -> Tensor:
    """States in the layout of convolutions (batch, size, length), zero for padding."""
    return (states * mask[..., None].to(states.dtype)).transpose(1, 2)
