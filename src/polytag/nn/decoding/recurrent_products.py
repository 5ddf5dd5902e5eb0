"""Products of a recurrence that use the same weights at every step; the gradients of the weights are computed once for all steps.

By default, autograd computes the gradient of a matrix at every step and adds it to the sum. With small steps, most of the time
then goes to moving matrices through memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class _Uses(NamedTuple):
    """The inputs of a product at every step, and the gradients of its outputs; the backward pass fills both lists."""

    inputs: list[Tensor]
    gradients: list[Tensor]


class Repeated:
    """``x W^T + b`` for the x (..., rows, in) of every step; the gradients of W and b are one product over all steps.

    The weight is (out, in). If every document has its own matrix, it is (batch, in, out), without a bias: ``x W``.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Register the weights, before the loop."""
        self.uses = _Uses([], []) if torch.is_grad_enabled() and weight.requires_grad else None
        if self.uses is not None:
            weight, bias = _Held.apply(self.uses, weight, bias)  # type: ignore[no-untyped-call]
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        """The product (..., rows, out)."""
        if self.uses is None:
            return _product(x, self.weight, self.bias)
        found: Tensor = _Product.apply(self.uses, x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return found


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.linear(x, weight, bias) if weight.ndim == 2 else x @ weight


class _Held(torch.autograd.Function):
    """The identity of the weights. Its backward pass runs after those of all products and uses what they kept."""

    @staticmethod
    def forward(ctx: Any, uses: _Uses, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        ctx.uses = uses
        ctx.set_materialize_grads(False)  # the products return none
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
    """``v^T tanh(q + k_i)`` (batch, rows, length) for queries (batch, rows, size) and keys (batch, length, size)."""
    found: Tensor = _Energy.apply(query, keys, weight)  # type: ignore[no-untyped-call]
    return found


def lstm_cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The next hidden and cell state (rows, size); ``gates`` (rows, 4 * size) are before activation, in torch's order."""
    if gates.is_cuda:  # one kernel, which adds two products; the second is zero
        hidden, cell, _ = torch.ops.aten._thnn_fused_lstm_cell(gates, torch.zeros_like(gates), cell)
        return hidden, cell
    enter, forget, new, leave = gates.chunk(4, dim=1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(cell), cell
