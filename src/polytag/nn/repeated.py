"""What a loop over time computes at every step with the same weights, so that their gradients come once for all steps.

Left alone, autograd makes a product for the gradient of a matrix at every step, as large as the matrix, and adds it to the
sum so far. A loop of small steps then moves weights about for most of its time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class _Uses(NamedTuple):
    """What went into a matrix at every step, and the gradients of what came out; the backward pass fills both in."""

    inputs: list[Tensor]
    gradients: list[Tensor]


class Repeated:
    """``x W^T + b`` of every step's x (..., rows, in); one backward pass gives the weights their gradients.

    The weight is (out, in). Where every document has a matrix of its own it is (batch, in, out), and there is no bias: ``x W``.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Take the weights before the loop."""
        self.uses = _Uses([], []) if torch.is_grad_enabled() and weight.requires_grad else None
        if self.uses is not None:
            weight, bias = _Held.apply(self.uses, weight, bias)  # type: ignore[no-untyped-call]
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        """What comes out (..., rows, out)."""
        if self.uses is None:
            return _product(x, self.weight, self.bias)
        found: Tensor = _Product.apply(self.uses, x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return found


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.linear(x, weight, bias) if weight.ndim == 2 else x @ weight


class _Held(torch.autograd.Function):
    """Weights as they are. Autograd comes here when all products have been there, and finds what they left."""

    @staticmethod
    def forward(ctx: Any, uses: _Uses, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        ctx.uses = uses
        ctx.set_materialize_grads(False)  # the products send none
        return weight.view_as(weight), None if bias is None else bias.view_as(bias)

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> tuple[None, Tensor | None, Tensor | None]:
        uses: _Uses = ctx.uses
        if not uses.inputs:
            return None, None, None
        x, gradient = torch.cat(uses.inputs, dim=-2), torch.cat(uses.gradients, dim=-2)
        uses.inputs.clear()
        uses.gradients.clear()
        if x.ndim == 3:
            return None, x.transpose(1, 2) @ gradient, None
        return None, gradient.T @ x, gradient.sum(dim=0) if ctx.needs_input_grad[2] else None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, uses: _Uses, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.uses = uses
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        shared = weight.ndim == 2
        ctx.uses.inputs.append(x.detach().flatten(0, -2) if shared else x.detach())
        ctx.uses.gradients.append(gradient.flatten(0, -2) if shared else gradient)
        back = weight if shared else weight.transpose(1, 2)
        return None, gradient @ back if ctx.needs_input_grad[1] else None, None, None


class _Energy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
        both = torch.add(query[:, :, None], keys[:, None]).tanh_()  # (batch, rows, length, size)
        ctx.save_for_backward(both, weight)
        return both @ weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        both, weight = ctx.saved_tensors
        inside = torch.ops.aten.tanh_backward(gradient[..., None] * weight, both)  # (batch, rows, length, size)
        keys = inside[:, 0] if inside.shape[1] == 1 else inside.sum(dim=1)
        return inside.sum(dim=2), keys, gradient.flatten() @ both.flatten(0, 2)


def energy(query: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    """``v^T tanh(q + k_i)`` (batch, rows, length) of queries (batch, rows, size) and keys (batch, length, size)."""
    found: Tensor = _Energy.apply(query, keys, weight)  # type: ignore[no-untyped-call]
    return found


def lstm_cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden and cell state (rows, size) after the gates (rows, 4 * size) before their activations, in torch's order."""
    if gates.is_cuda:  # one kernel, which wants two products to add up
        hidden, cell, _ = torch.ops.aten._thnn_fused_lstm_cell(gates, torch.zeros_like(gates), cell)
        return hidden, cell
    read, keep, new, show = gates.chunk(4, dim=1)
    cell = torch.sigmoid(keep) * cell + torch.sigmoid(read) * torch.tanh(new)
    return torch.sigmoid(show) * torch.tanh(cell), cell
