"""One layer of a BiLSTM, arranged for cuDNN: no packing, and on a GPU both directions in one call.

An LSTM is a chain of small steps, so a call takes as long as the text is, however little each step computes. Two LSTMs side by
side are one of twice the size whose matrices are zero between the two. Torch picks cuDNN's persistent kernel, which keeps the
weights on the chip from step to step, for one layer in one direction, which that is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_SHUT = 1e4  # in a gate: sigmoid gives 0 or 1 exactly, and half precision still holds it
_TILE = 128  # persistent kernels want inputs of such a multiple


class BothWays(nn.Module):
    """One layer of a BiLSTM: an LSTM that reads to the right and one that reads to the left."""

    def __init__(self, size: int, hidden: int) -> None:
        """Take the size of what is read, and that of one direction's states."""
        super().__init__()
        self.right = nn.LSTM(size, hidden)
        self.left = nn.LSTM(size, hidden)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Both directions' states joined (length, batch, 2 * hidden), from (length, batch, size); ``lengths`` is (batch, 1)."""
        rows = _turned_rows(len(states), lengths)
        right, left, _ = self._read(states, _turned(states, rows), _weights(self.right), _weights(self.left))
        return torch.cat([right, _turned(left, rows)], dim=2)

    def with_last(self, states: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and what both directions end with (batch, 4 * hidden): their hidden states, then their cell states.

        Padding stands after the end, and changes no cell: it has an input of its own that shuts the gates.
        """
        rows = _turned_rows(len(states), lengths)
        padding = torch.arange(len(states), device=states.device)[:, None] >= lengths.T  # (length, batch)
        there, back = (_flagged(read, padding) for read in (states, _turned(states, rows)))
        wide = there.shape[2] - states.shape[2]
        right, left, cells = self._read(there, back, *(_shutting(_weights(side), wide) for side in (self.right, self.left)))
        last = (lengths.T - 1)[..., None].expand(-1, -1, right.shape[2])  # (1, batch, hidden)
        ends = [right.gather(0, last)[0], left.gather(0, last)[0], cells.to(right.dtype)]
        return torch.cat([right, _turned(left, rows)], dim=2), torch.cat(ends, dim=1)

    def _read(self, there: Tensor, back: Tensor, right: list[Tensor], left: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Each direction's states in the order in which it reads, and the cells (batch, 2 * hidden) that both end with."""
        if there.is_cuda and self.training and torch.is_autocast_enabled("cuda"):
            return self._in_one(there, back, right, left)
        first, first_cell = _lstm(there, right, self.training)
        second, second_cell = _lstm(back, left, self.training)
        return first, second, torch.cat([first_cell, second_cell], dim=1)

    def _in_one(self, there: Tensor, back: Tensor, right: list[Tensor], left: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The same by one LSTM of twice the size."""
        matrices = [_diagonal(a, b) for a, b in zip(right[:2], left[:2], strict=True)]
        biases = [_interleaved(a, b) for a, b in zip(right[2:], left[2:], strict=True)]
        both, cell = _lstm(torch.cat([there, back], dim=2), matrices + biases, self.training)
        first, second = both.chunk(2, dim=2)
        return first, second, cell


def _weights(lstm: nn.LSTM) -> list[Tensor]:
    """Input and recurrent matrix, and their biases."""
    return [lstm.get_parameter(name) for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")]


def _lstm(x: Tensor, weights: list[Tensor], training: bool) -> tuple[Tensor, Tensor]:
    """States (length, batch, hidden) and the last cell (batch, hidden)."""
    zero = x.new_zeros(1, x.shape[1], weights[1].shape[1])
    states, _, cell = torch.lstm(x, (zero, zero), weights, True, 1, 0.0, training, False, False)
    return states, cell[0]


def _interleaved(right: Tensor, left: Tensor) -> Tensor:
    """Rows of two LSTMs' weights (4 * hidden, ...) as those of one: for every gate first the one's, then the other's."""
    gates = 4, len(right) // 4, *right.shape[1:]
    return torch.stack([right.view(gates), left.view(gates)], dim=1).flatten(0, 2)


def _diagonal(right: Tensor, left: Tensor) -> Tensor:
    """Matrices (4 * hidden, size) of two LSTMs as that of one (8 * hidden, 2 * size), which keeps them apart."""
    zero = torch.zeros_like(right)
    return _interleaved(torch.cat([right, zero], dim=1), torch.cat([zero, left], dim=1))


def _turned_rows(length: int, lengths: Tensor) -> Tensor:
    """Where every row of (length * batch) rows comes from when texts are turned round within their lengths (batch, 1)."""
    place = torch.arange(length, device=lengths.device)[:, None]
    source = torch.where(place < lengths.T, lengths.T - 1 - place, place)  # (length, batch)
    return (source * len(lengths) + torch.arange(len(lengths), device=lengths.device)).flatten()


def _turned(states: Tensor, rows: Tensor) -> Tensor:
    found: Tensor = _Turned.apply(states, rows)  # type: ignore[no-untyped-call]
    return found


class _Turned(torch.autograd.Function):
    """States (length, batch, size) in another order of their rows that is its own inverse: nothing has to be added up."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        return states.flatten(0, 1).index_select(0, rows).view(states.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return gradient.flatten(0, 1).index_select(0, rows).view(gradient.shape), None


def _flagged(states: Tensor, padding: Tensor) -> Tensor:
    """States with further inputs, of which the first is 1 at padding."""
    wide = _TILE if states.shape[2] % _TILE == 0 else 1
    flags = torch.zeros(*padding.shape, wide, dtype=states.dtype, device=states.device)
    flags[..., 0].copy_(padding)
    return torch.cat([states, flags], dim=2)


def _shutting(weights: list[Tensor], wide: int) -> list[Tensor]:
    """Weights that read such inputs: nothing comes in, and nothing is forgotten."""
    read, hidden = weights[0], weights[1].shape[1]
    more = torch.zeros(len(read), wide, dtype=read.dtype, device=read.device)
    more[:hidden, 0].fill_(-_SHUT)
    more[hidden : 2 * hidden, 0].fill_(_SHUT)
    return [torch.cat([read, more], dim=1), *weights[1:]]
