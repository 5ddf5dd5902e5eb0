"""One layer of a BiLSTM: no packing, and in training on a GPU both directions in one call.

An LSTM is a chain of small steps. The time of a call depends on the text length, and hardly on the size of a step. Our kernels
make the steps of both directions together. Where they cannot run, two LSTMs equal one LSTM of twice the size with block-diagonal
matrices. For one layer in one direction, torch selects cuDNN's persistent kernel, which keeps the weights on the chip.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_SHUT = 1e4  # a gate input whose sigmoid is exactly 0 or 1, and which half precision can represent
_TILE = 128  # persistent kernels need an input size that is a multiple of this


class BothWays(nn.Module):
    """One layer of a BiLSTM: one LSTM from left to right, one from right to left."""

    def __init__(self, size: int, hidden: int) -> None:
        """Build both LSTMs; ``size`` is that of the input, ``hidden`` that of the states of one direction."""
        super().__init__()
        self.right = nn.LSTM(size, hidden)
        self.left = nn.LSTM(size, hidden)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Concatenated states of both directions: (length, batch, size) to (length, batch, 2 * hidden).

        ``lengths`` is (batch, 1).
        """
        if self._has_kernels(states):
            return self._by_kernels(states, lengths)[0]
        rows = _turned_rows(len(states), lengths)
        right, left, _ = self._encode(states, _turned(states, rows), _weights(self.right), _weights(self.left))
        return torch.cat([right, _turned(left, rows)], dim=2)

    def with_last(self, states: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the final hidden states, then the final cell states, of both directions (batch, 4 * hidden).

        Padding follows the text. It must not change the cell, so an additional input closes the gates there.
        """
        if self._has_kernels(states):
            found, last_states, last_cells = self._by_kernels(states, lengths)
            return found, torch.cat([last_states, last_cells], dim=1).to(found.dtype)
        rows = _turned_rows(len(states), lengths)
        padding = torch.arange(len(states), device=states.device)[:, None] >= lengths.T  # (length, batch)
        there, back = (_flagged(side, padding) for side in (states, _turned(states, rows)))
        wide = there.shape[2] - states.shape[2]
        right, left, cells = self._encode(there, back, *(_shutting(_weights(side), wide) for side in (self.right, self.left)))
        last = (lengths.T - 1)[..., None].expand(-1, -1, right.shape[2])  # (1, batch, hidden)
        ends = [right.gather(0, last)[0], left.gather(0, last)[0], cells.to(right.dtype)]
        return torch.cat([right, _turned(left, rows)], dim=2), torch.cat(ends, dim=1)

    def _encode(self, there: Tensor, back: Tensor, right: list[Tensor], left: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The states of each direction in its own order, and the final cells (batch, 2 * hidden) of both."""
        if there.is_cuda and self.training and torch.is_autocast_enabled("cuda"):
            return self._in_one(there, back, right, left)
        first, first_cell = _lstm(there, right, self.training)
        second, second_cell = _lstm(back, left, self.training)
        return first, second, torch.cat([first_cell, second_cell], dim=1)

    def _has_kernels(self, states: Tensor) -> bool:
        """Whether our kernels can run: in training in half precision, on a GPU that has what they need."""
        if not (states.is_cuda and self.training and torch.is_autocast_enabled("cuda")):
            return False
        from polytag.nn.gpu.lstm_kernels import fits

        return fits(self.right.hidden_size, states.device)

    def _by_kernels(self, states: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The states of both directions (length, batch, 2 * hidden), their last states and last cells (batch, 2 * hidden)."""
        from polytag.nn.gpu.lstm_kernels import both_ways

        return both_ways(states, lengths.flatten(), _weights(self.right), _weights(self.left))

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
    """States (length, batch, hidden) and the final cell (batch, hidden)."""
    zero = x.new_zeros(1, x.shape[1], weights[1].shape[1])
    states, _, cell = torch.lstm(x, (zero, zero), weights, True, 1, 0.0, training, False, False)
    return states, cell[0]


def _interleaved(right: Tensor, left: Tensor) -> Tensor:
    """The weights (4 * hidden, ...) of two LSTMs as those of one: for every gate the rows of the first, then of the second."""
    gates = 4, len(right) // 4, *right.shape[1:]
    return torch.stack([right.view(gates), left.view(gates)], dim=1).flatten(0, 2)


def _diagonal(right: Tensor, left: Tensor) -> Tensor:
    """The matrices (4 * hidden, size) of two LSTMs as one block-diagonal matrix (8 * hidden, 2 * size)."""
    zero = torch.zeros_like(right)
    return _interleaved(torch.cat([right, zero], dim=1), torch.cat([zero, left], dim=1))


def _turned_rows(length: int, lengths: Tensor) -> Tensor:
    """The source of each of (length * batch) rows when every text is reversed within its length; ``lengths`` is (batch, 1)."""
    place = torch.arange(length, device=lengths.device)[:, None]
    source = torch.where(place < lengths.T, lengths.T - 1 - place, place)  # (length, batch)
    return (source * len(lengths) + torch.arange(len(lengths), device=lengths.device)).flatten()


def _turned(states: Tensor, rows: Tensor) -> Tensor:
    found: Tensor = _Turned.apply(states, rows)  # type: ignore[no-untyped-call]
    return found


class _Turned(torch.autograd.Function):
    """Permutes the rows of states (length, batch, size). The permutation is its own inverse, so the gradient needs no sum."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        return states.flatten(0, 1).index_select(0, rows).view(states.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return gradient.flatten(0, 1).index_select(0, rows).view(gradient.shape), None


def _flagged(states: Tensor, padding: Tensor) -> Tensor:
    """States with additional inputs; the first of these is 1 for padding."""
    wide = _TILE if states.shape[2] % _TILE == 0 else 1
    flags = torch.zeros(*padding.shape, wide, dtype=states.dtype, device=states.device)
    flags[..., 0].copy_(padding)
    return torch.cat([states, flags], dim=2)


def _shutting(weights: list[Tensor], wide: int) -> list[Tensor]:
    """Weights for the additional inputs: they close the input gate and open the forget gate."""
    matrix, hidden = weights[0], weights[1].shape[1]
    more = torch.zeros(len(matrix), wide, dtype=matrix.dtype, device=matrix.device)
    more[:hidden, 0].fill_(-_SHUT)
    more[hidden : 2 * hidden, 0].fill_(_SHUT)
    return [torch.cat([matrix, more], dim=1), *weights[1:]]
