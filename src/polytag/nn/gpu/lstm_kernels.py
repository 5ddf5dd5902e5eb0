"""Both directions of a BiLSTM layer in one kernel each way, in CUDA C++ (``lstm_steps.cu``), compiled at the first call.

The kernels need clusters of blocks, which GPUs have from compute capability 9.0 on, and torch's runtime compiler. The forward
pass computes in fp16, because states are between -1 and 1. The backward pass computes in bf16, because gradients can be very
small. Gates are stored by unit: (length, batch, direction, unit, gate).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)
_SIZES = (128, 256)  # hidden sizes for which the weights fit into registers
_SLICE = 64  # hidden units of a block
_TILE = 8  # documents of a tile
_THREADS = 256
_CLUSTERS = (9, 0)  # the compute capability from which on there are clusters


@functools.cache
def fits(hidden: int, device: torch.device) -> bool:
    """Whether the kernels can run on this device; they are compiled here."""
    if hidden not in _SIZES or torch.cuda.get_device_capability(device) < _CLUSTERS:
        return False
    try:
        for name in ("forward_steps", "backward_steps"):
            _kernel(name, hidden, 1, device)
    except (AttributeError, OSError, RuntimeError) as error:  # an older torch, or a system without the compiler's library
        log.info("the kernels of LSTMs cannot be compiled (%s); cuDNN's are used", str(error).partition("\n")[0])
        return False
    return True


@functools.cache
def _kernel(name: str, hidden: int, tiles: int, device: torch.device) -> Any:
    """A compiled kernel for clusters of ``8 * tiles`` documents; every device loads its own."""
    source = files("polytag.nn.gpu").joinpath("lstm_steps.cu").read_text(encoding="utf-8")
    with _without_headers(), torch.cuda.device(device):
        return torch.cuda._compile_kernel(source, name, nvcc_options=[f"-DHIDDEN={hidden}", f"-DTILES={tiles}"])


@contextmanager
def _without_headers() -> Iterator[None]:
    """Inside, torch does not insist on a folder of CUDA's headers; the source includes none."""
    from torch.utils import cpp_extension

    before = cpp_extension.CUDA_HOME
    cpp_extension.CUDA_HOME = before or "."
    try:
        yield
    finally:
        cpp_extension.CUDA_HOME = before


def _launch(name: str, tensors: list[Tensor], batch: int, hidden: int) -> None:
    """Start a kernel; the last arguments of both are the length, which the first tensor has, and the batch."""
    blocks, device = hidden // _SLICE, tensors[0].device
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    tiles = 1 if 2 * -(-batch // _TILE) * blocks <= processors else 2
    grid = blocks, -(-batch // (_TILE * tiles)), 2
    with torch.cuda.device(device):
        _kernel(name, hidden, tiles, device)(grid, (_THREADS, 1, 1), [*tensors, len(tensors[0]), batch])


class _Recurrence(torch.autograd.Function):
    """See ``both_ways``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, lengths: Tensor, inputs: Tensor, recurrent: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        length, batch, _ = x.shape
        hidden = recurrent.shape[2]
        with torch.autocast(x.device.type, enabled=False):
            rows = x.half().flatten(0, 1)  # (length * batch, size)
            gates = torch.addmm(_by_unit(bias).half(), rows, _by_unit(inputs).half().T)  # (length * batch, 8 * hidden)
        gates = gates.view(length, batch, -1)
        active = torch.empty_like(gates)
        states = torch.zeros(length, batch, 2 * hidden, dtype=torch.float16, device=x.device)
        cells = torch.empty(length, batch, 2 * hidden, dtype=torch.float32, device=x.device)
        last_states, last_cells = (torch.empty(batch, 2 * hidden, dtype=torch.float32, device=x.device) for _ in range(2))
        weights = recurrent.half().contiguous()
        _launch("forward_steps", [gates, weights, lengths, states, cells, active, last_states, last_cells], batch, hidden)
        ctx.save_for_backward(x, lengths, inputs, recurrent, states, cells, active)
        return states, last_states, last_cells

    @staticmethod
    def backward(ctx: Any, to_states: Tensor, to_last: Tensor, to_cells: Tensor) -> tuple[Tensor, None, Tensor, Tensor, Tensor]:
        x, lengths, inputs, recurrent, states, cells, active = ctx.saved_tensors
        length, batch, _ = x.shape
        hidden = recurrent.shape[2]
        kind = torch.bfloat16
        after = recurrent.view(2, 4, hidden, hidden).permute(0, 3, 2, 1).to(kind).contiguous()  # (2, after, unit, gate)
        inner = torch.zeros(length, batch, 8 * hidden, dtype=kind, device=x.device)
        ends = to_last.float().contiguous(), to_cells.float().contiguous()
        _launch("backward_steps", [to_states.half().contiguous(), *ends, after, lengths, cells, active, inner], batch, hidden)
        rows = inner.flatten(0, 1)  # (length * batch, 8 * hidden)
        to_x = (rows @ _by_unit(inputs).to(kind)).view(x.shape).to(x.dtype)
        to_inputs = _by_gate(rows.T @ x.to(kind).flatten(0, 1))
        to_recurrent = _by_gate(_with_earlier(rows, states.to(kind).flatten(0, 1), batch, hidden))
        to_bias = _by_gate(rows.sum(dim=0, dtype=torch.float32))
        return to_x, None, to_inputs.to(inputs.dtype), to_recurrent.to(recurrent.dtype), to_bias


def _with_earlier(rows: Tensor, states: Tensor, batch: int, hidden: int) -> Tensor:
    """The products (8 * hidden, hidden) of the gates' gradients and the states before them, in each direction's order.

    Both are (length * batch, ...) and zero for padding, so the neighbours of a text's ends add nothing.
    """
    later, earlier = rows[batch:, : 4 * hidden], states[:-batch, :hidden]
    before, after = rows[:-batch, 4 * hidden :], states[batch:, hidden:]
    return torch.cat([later.T @ earlier, before.T @ after])


def _by_unit(weights: Tensor) -> Tensor:
    """Weights (2, 4 * hidden, ...) by gate, as torch has them, as (8 * hidden, ...) by direction, unit and gate."""
    sides, gates, *rest = weights.shape
    return weights.view(sides, 4, gates // 4, *rest).transpose(1, 2).reshape(sides * gates, *rest)


def _by_gate(weights: Tensor) -> Tensor:
    """The inverse: from (8 * hidden, ...) to (2, 4 * hidden, ...)."""
    gates, *rest = weights.shape
    return weights.view(2, gates // 8, 4, *rest).transpose(1, 2).reshape(2, gates // 2, *rest)


def both_ways(x: Tensor, lengths: Tensor, right: list[Tensor], left: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The states (length, batch, 2 * hidden), and the last states and cells (batch, 2 * hidden), of a BiLSTM layer.

    ``x`` is (length, batch, size), ``lengths`` (batch,). Each side has torch's weights: inputs (4 * hidden, size), recurrent
    (4 * hidden, hidden) and two biases. The states of padding are zero.
    """
    inputs, recurrent, *biases = (torch.stack(both) for both in zip(right, left, strict=True))
    arguments = x, lengths.int(), inputs, recurrent, biases[0] + biases[1]
    found: tuple[Tensor, Tensor, Tensor] = _Recurrence.apply(*arguments)  # type: ignore[no-untyped-call]
    return found
