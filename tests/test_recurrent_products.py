"""Products of a recurrence: values and gradients equal those of plain torch, and gradients of weights are computed once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from polytag.nn.decoding.recurrent_products import Repeated, energy, lstm_cell

STEPS = 4


def plain(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.linear(x, weight, bias) if weight.ndim == 2 else x @ weight


def chain(first: Tensor, weight: Tensor, bias: Tensor | None, repeated: bool) -> Tensor:
    """A recurrence: every step reads what the one before gave."""
    x, found = first, []
    product = Repeated(weight, bias) if repeated else lambda x: plain(x, weight, bias)
    for _ in range(STEPS):
        x = torch.tanh(product(x))
        found.append(x)
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("shape", [(5, 5), (3, 5, 5)])
@pytest.mark.parametrize("biased", [False, True])
def test_values_and_gradients_are_those_of_a_plain_loop(shape: Sequence[int], biased: bool) -> None:
    torch.manual_seed(0)
    weight, first = (torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in (shape, (3, 2, 5)))
    bias = torch.randn(5, dtype=torch.float64, requires_grad=True) if biased and len(shape) == 2 else None
    asked = [part for part in (first, weight, bias) if part is not None]
    expected, found = (chain(first, weight, bias, repeated) for repeated in (False, True))
    assert torch.allclose(expected, found)
    blame = torch.randn_like(expected)
    for kept in (True, False):  # a graph that is kept gives the same again
        there, here = (torch.autograd.grad(out, asked, blame, retain_graph=kept) for out in (expected, found))
        assert all(torch.allclose(a, b) for a, b in zip(there, here, strict=True))


def test_the_gradient_of_a_weight_is_one_product_however_many_steps_there_are() -> None:
    weight, x = torch.randn(7, 7, requires_grad=True), torch.randn(2, 1, 7)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        chain(x, weight, None, True).sum().backward()  # type: ignore[no-untyped-call]
    products = sum(event.count for event in profile.key_averages() if event.key == "aten::mm")
    assert products == STEPS + (STEPS - 1) + 1, "forward, back to what was read, and once for the weight"


def test_nothing_is_kept_where_nothing_is_learned() -> None:
    weight = torch.randn(3, 3, requires_grad=True)
    with torch.no_grad():
        product = Repeated(weight)
        assert product.uses is None and product.weight is weight
    assert Repeated(weight.detach()).uses is None


def test_a_product_that_the_loss_does_not_ask_for_has_no_gradient() -> None:
    weight, other = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    unused, used = Repeated(weight), Repeated(other)
    x = torch.randn(2, 1, 3)
    unused(x)
    used(x).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is None and other.grad is not None


@pytest.mark.parametrize("rows", [1, 3])
def test_energies_are_the_equation_and_so_are_their_gradients(rows: int) -> None:
    torch.manual_seed(1)
    query, keys, v = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((2, rows, 4), (2, 5, 4), (4,)))
    expected = torch.tanh(query[:, :, None] + keys[:, None]) @ v
    found = energy(query, keys, v)
    assert torch.allclose(expected, found)
    blame = torch.randn_like(expected)
    there, here = (torch.autograd.grad(out, [query, keys, v], blame) for out in (expected, found))
    assert all(torch.allclose(a, b) for a, b in zip(there, here, strict=True))


def test_the_cell_is_torchs() -> None:
    torch.manual_seed(2)
    cell, x, h, c = torch.nn.LSTMCell(4, 3), torch.randn(5, 4), torch.randn(5, 3), torch.randn(5, 3)
    gates = functional.linear(x, cell.weight_ih, cell.bias_ih) + functional.linear(h, cell.weight_hh, cell.bias_hh)
    for here, there in zip(lstm_cell(gates, c), cell(x, (h, c)), strict=True):
        assert torch.allclose(here, there, atol=1e-6)
