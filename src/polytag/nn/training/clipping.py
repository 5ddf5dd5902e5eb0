"""Clipping of gradients by their norm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from polytag.nn.sharding.sharded_weights import clip
from polytag.nn.training.checkpoint import is_sharded
from polytag.nn.training.processes import Processes

IN_UPDATE = True  # whether AdamW on a GPU clips the gradients as it reads them


@contextmanager
def clipped(
    parameters: list[nn.Parameter], limit: float, optimiser: Any, processes: Processes, *, scaled: bool
) -> Iterator[None]:
    """Inside, a step of the optimiser uses gradients whose norm is at most a limit; 0 is no limit.

    ``scaled`` says whether a scaler of fp16 makes the step; it sets a scale of its own.
    """
    if not limit:
        yield
    elif any(is_sharded(parameter) for parameter in parameters):
        clip(parameters, limit, processes)
        yield
    elif IN_UPDATE and processes.device.type == "cuda" and not scaled and type(optimiser) is torch.optim.AdamW:
        with divided_in_update(parameters, limit, optimiser):
            yield
    else:
        nn.utils.clip_grad_norm_(parameters, limit)
        yield


@contextmanager
def divided_in_update(parameters: list[nn.Parameter], limit: float, optimiser: Any) -> Iterator[None]:
    """The same by fused AdamW itself, which divides gradients by its ``grad_scale`` as it reads them: one pass less."""
    norm = _norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    if norm is None:
        yield
        return
    optimiser.grad_scale = ((norm + 1e-6) / limit).clamp(min=1.0)
    try:
        yield
    finally:
        del optimiser.grad_scale


@torch.no_grad()
def _norm(gradients: list[Tensor]) -> Tensor | None:
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) if gradients else None
