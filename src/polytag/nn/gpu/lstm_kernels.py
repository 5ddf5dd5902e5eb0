"""Both directions of a BiLSTM layer in one kernel each way, in Triton: the recurrent weights stay on the chip for all steps.

The hidden units of a direction are divided among a few programs. Each program has the weights of its units and a few documents.
After every step the programs of the same documents exchange their states through memory and wait for each other, so all programs
must run at the same time. The forward pass computes in fp16, because states are between -1 and 1. The backward pass computes in
bf16, because gradients can be very small.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_UNITS = 64  # hidden units of a program; their recurrent weights fill half of the registers of a multiprocessor
_ROWS = (16, 32, 64)  # documents of a program; the smallest number that leaves enough multiprocessors
_SIZES = (64, 128, 256)  # hidden sizes for which the weights fit
_WARPS = 8


def fits(batch: int, hidden: int, device: torch.device) -> bool:
    """Whether all programs of a batch can run at the same time on this device."""
    return hidden in _SIZES and _rows(batch, hidden, _processors(device)) > 0


def _processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _rows(batch: int, hidden: int, processors: int) -> int:
    """The documents of a program, or 0 if there would be more programs than multiprocessors."""
    return next((rows for rows in _ROWS if 2 * -(-batch // rows) * (hidden // _UNITS) <= processors), 0)


@triton.jit
def _meet(counter, expected):
    """Wait until this many programs have counted themselves."""
    while tl.atomic_add(counter, 0, sem="acquire") < expected:
        pass


@triton.jit
def _forward_steps(
    gates, weights, states, cells, active, counters, length, batch,
    HIDDEN: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """All steps of some units and documents; ``gates`` and ``active`` are (2, length, batch, 4 * hidden).

    ``states`` and ``cells`` are (2, length + 1, batch, hidden); their first step is zero.
    """
    slices: tl.constexpr = HIDDEN // UNITS
    side = tl.program_id(2)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    before = tl.arange(0, HIDDEN)
    inside = row[:, None] < batch
    counter = counters + side * tl.num_programs(1) + tl.program_id(1)
    matrix = weights + side * 4 * HIDDEN * HIDDEN + unit[None, :] * HIDDEN + before[:, None]  # (before, unit)
    enter_w = tl.load(matrix)
    forget_w = tl.load(matrix + HIDDEN * HIDDEN)
    new_w = tl.load(matrix + 2 * HIDDEN * HIDDEN)
    leave_w = tl.load(matrix + 3 * HIDDEN * HIDDEN)
    cell = tl.zeros((ROWS, UNITS), tl.float32)
    for step in range(length):
        at = (side * length + step) * batch + row[:, None]
        gate = at * 4 * HIDDEN + unit[None, :]
        enter = tl.load(gates + gate, inside, 0.0).to(tl.float32)
        forget = tl.load(gates + gate + HIDDEN, inside, 0.0).to(tl.float32)
        new = tl.load(gates + gate + 2 * HIDDEN, inside, 0.0).to(tl.float32)
        leave = tl.load(gates + gate + 3 * HIDDEN, inside, 0.0).to(tl.float32)
        if slices > 1:
            _meet(counter, slices * step)
        last = (side * (length + 1) + step) * batch + row[:, None]
        state = tl.load(states + last * HIDDEN + before[None, :], inside, 0.0, cache_modifier=".cg")
        enter = tl.sigmoid(tl.dot(state, enter_w, enter))
        forget = tl.sigmoid(tl.dot(state, forget_w, forget))
        new = 2 * tl.sigmoid(2 * tl.dot(state, new_w, new)) - 1  # tanh
        leave = tl.sigmoid(tl.dot(state, leave_w, leave))
        cell = forget * cell + enter * new
        now = (last + batch) * HIDDEN + unit[None, :]
        tl.store(states + now, (leave * (2 * tl.sigmoid(2 * cell) - 1)).to(tl.float16), inside, cache_modifier=".cg")
        if slices > 1:
            tl.debug_barrier()
            tl.atomic_add(counter, 1, sem="release")
        tl.store(cells + now, cell, inside)
        tl.store(active + gate, enter.to(tl.float16), inside)
        tl.store(active + gate + HIDDEN, forget.to(tl.float16), inside)
        tl.store(active + gate + 2 * HIDDEN, new.to(tl.float16), inside)
        tl.store(active + gate + 3 * HIDDEN, leave.to(tl.float16), inside)


@triton.jit
def _backward_steps(
    gradients, last_cells, weights, cells, active, inner, counters, length, batch,
    HIDDEN: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of the gates before activation, ``inner`` (2, length + 1, batch, 4 * hidden); their last step is zero.

    ``gradients`` are those of the states (2, length, batch, hidden), ``last_cells`` those of the final cells (2, batch, hidden).
    """
    slices: tl.constexpr = HIDDEN // UNITS
    kind = inner.dtype.element_ty
    side = tl.program_id(2)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    after = tl.arange(0, HIDDEN)
    inside = row[:, None] < batch
    counter = counters + side * tl.num_programs(1) + tl.program_id(1)
    matrix = weights + side * 4 * HIDDEN * HIDDEN + after[:, None] * HIDDEN + unit[None, :]  # (after, unit)
    enter_w = tl.load(matrix)
    forget_w = tl.load(matrix + HIDDEN * HIDDEN)
    new_w = tl.load(matrix + 2 * HIDDEN * HIDDEN)
    leave_w = tl.load(matrix + 3 * HIDDEN * HIDDEN)
    to_cell = tl.load(last_cells + (side * batch + row[:, None]) * HIDDEN + unit[None, :], inside, 0.0)
    for back in range(length):
        step = length - 1 - back
        at = (side * length + step) * batch + row[:, None]
        gate = at * 4 * HIDDEN + unit[None, :]
        enter = tl.load(active + gate, inside, 0.0).to(tl.float32)
        forget = tl.load(active + gate + HIDDEN, inside, 0.0).to(tl.float32)
        new = tl.load(active + gate + 2 * HIDDEN, inside, 0.0).to(tl.float32)
        leave = tl.load(active + gate + 3 * HIDDEN, inside, 0.0).to(tl.float32)
        to_state = tl.load(gradients + at * HIDDEN + unit[None, :], inside, 0.0).to(tl.float32)
        place = (side * (length + 1) + step) * batch + row[:, None]
        earlier = tl.load(cells + place * HIDDEN + unit[None, :], inside, 0.0)
        bent = 2 * tl.sigmoid(2 * tl.load(cells + (place + batch) * HIDDEN + unit[None, :], inside, 0.0)) - 1
        if slices > 1:
            _meet(counter, slices * back)
        later = inner + (place + batch) * 4 * HIDDEN + after[None, :]
        to_state = tl.dot(tl.load(later, inside, 0.0, cache_modifier=".cg"), enter_w, to_state)
        to_state = tl.dot(tl.load(later + HIDDEN, inside, 0.0, cache_modifier=".cg"), forget_w, to_state)
        to_state = tl.dot(tl.load(later + 2 * HIDDEN, inside, 0.0, cache_modifier=".cg"), new_w, to_state)
        to_state = tl.dot(tl.load(later + 3 * HIDDEN, inside, 0.0, cache_modifier=".cg"), leave_w, to_state)
        to_cell += to_state * leave * (1 - bent * bent)
        now = inner + place * 4 * HIDDEN + unit[None, :]
        tl.store(now, (to_cell * new * enter * (1 - enter)).to(kind), inside, cache_modifier=".cg")
        tl.store(now + HIDDEN, (to_cell * earlier * forget * (1 - forget)).to(kind), inside, cache_modifier=".cg")
        tl.store(now + 2 * HIDDEN, (to_cell * enter * (1 - new * new)).to(kind), inside, cache_modifier=".cg")
        tl.store(now + 3 * HIDDEN, (to_state * bent * leave * (1 - leave)).to(kind), inside, cache_modifier=".cg")
        if slices > 1:
            tl.debug_barrier()
            tl.atomic_add(counter, 1, sem="release")
        to_cell *= forget


class _Recurrence(torch.autograd.Function):
    """From the input's share of the gates to states and final cells; see ``two_lstms``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, inputs: Tensor, recurrent: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        _, length, batch, _ = x.shape
        hidden = recurrent.shape[2]
        flat, matrix = x.half().flatten(1, 2), inputs.half()
        gates = torch.baddbmm(bias.half()[:, None], flat, matrix.transpose(1, 2)).view(2, length, batch, 4 * hidden)
        states = torch.empty(2, length + 1, batch, hidden, dtype=torch.float16, device=x.device)
        cells = torch.empty(2, length + 1, batch, hidden, dtype=torch.float32, device=x.device)
        states[:, 0].zero_()
        cells[:, 0].zero_()
        active = torch.empty_like(gates)
        _launch(_forward_steps, gates, recurrent.half().contiguous(), states, cells, active, sizes=(length, batch, hidden))
        ctx.save_for_backward(x, inputs, recurrent, states, cells, active)
        return states[:, 1:], cells[:, -1]

    @staticmethod
    def backward(ctx: Any, to_states: Tensor, to_cells: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, inputs, recurrent, states, cells, active = ctx.saved_tensors
        _, length, batch, _ = x.shape
        hidden = recurrent.shape[2]
        kind = torch.bfloat16 if x.is_cuda else torch.float32  # Triton's interpreter has no products in bf16
        inner = torch.empty(2, length + 1, batch, 4 * hidden, dtype=kind, device=x.device)
        inner[:, -1].zero_()
        given = to_states.contiguous(), to_cells.float().contiguous(), recurrent.to(kind).contiguous()
        _launch(_backward_steps, *given, cells, active, inner, sizes=(length, batch, hidden))
        gates = inner[:, :-1].flatten(1, 2)  # (2, length * batch, 4 * hidden)
        turned = gates.transpose(1, 2)
        to_x = (gates @ inputs.to(kind)).view(x.shape).to(x.dtype)
        to_inputs = turned @ x.to(kind).flatten(1, 2)
        to_recurrent = turned @ states[:, :-1].to(kind).flatten(1, 2)
        return to_x, to_inputs.to(inputs.dtype), to_recurrent.to(recurrent.dtype), gates.float().sum(dim=1)


def _launch(kernel: Any, *tensors: Tensor, sizes: tuple[int, int, int]) -> None:
    """Start all programs of a kernel; ``sizes`` are length, batch and hidden."""
    length, batch, hidden = sizes
    device = tensors[0].device
    units = min(_UNITS, hidden) if device.type == "cuda" else hidden  # an interpreter runs one program after the other
    processors = _processors(device) if device.type == "cuda" else batch
    rows = _rows(batch, hidden, processors) or _ROWS[-1]
    tiles = -(-batch // rows)
    counters = torch.zeros(2 * tiles, dtype=torch.int32, device=device)
    told = {"HIDDEN": hidden, "UNITS": units, "ROWS": rows, "num_warps": _WARPS, "num_stages": 1}
    kernel[(hidden // units, tiles, 2)](*tensors, counters, length, batch, **told)


def two_lstms(x: Tensor, inputs: Tensor, recurrent: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The states (2, length, batch, hidden) and the final cells (2, batch, hidden) of two LSTMs over their own inputs.

    ``x`` is (2, length, batch, size), ``inputs`` (2, 4 * hidden, size), ``recurrent`` (2, 4 * hidden, hidden) and ``bias``, the
    sum of both biases, (2, 4 * hidden), in torch's order of gates.
    """
    found: tuple[Tensor, Tensor] = _Recurrence.apply(x, inputs, recurrent, bias)  # type: ignore[no-untyped-call]
    return found
