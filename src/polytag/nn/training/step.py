"""One optimiser step: batch, forward and backward pass, averaging, clipping, update. Nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from polytag.nn.gpu.half_weights import HalfWeights
from polytag.nn.training.batch import Batch, Documents
from polytag.nn.training.checkpoint import is_sharded
from polytag.nn.training.devices import autocast, quick_products
from polytag.nn.training.optimiser import clipped
from polytag.nn.training.processes import Processes

Loss = Callable[[nn.Module, Batch], Tensor]


class Rows(NamedTuple):
    """The rows of a batch on the device, its padded length and windows, the weight of its loss, its maximum number of labels."""

    rows: Tensor
    length: int
    windows: int
    weight: float
    most_labels: int = 0


class EagerStep:
    """The step as a sequence of torch calls."""

    def __init__(
        self,
        network: nn.Module,
        loss: Loss,
        data: Documents,
        optimiser: torch.optim.Optimizer,
        processes: Processes,
        *,
        clip: float = 0.0,
        dtype: torch.dtype | None = None,
        halves: HalfWeights | None = None,
    ) -> None:
        """Set what all steps share; ``dtype`` is the type of the matrix products, ``halves`` are weights in that type."""
        self.network, self.loss, self.data, self.optimiser, self.processes = network, loss, data, optimiser, processes
        self.clip, self.dtype, self.halves = clip, dtype, halves
        self.parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        self.scaler = torch.amp.GradScaler(processes.device.type, enabled=dtype is torch.float16)

    def __call__(self, parts: Sequence[Rows]) -> Tensor:
        """Make the step; the loss, a weighted sum over parts and processes, stays on the device."""
        with quick_products(self.processes.device, self.dtype):
            return self._make(parts)

    def _make(self, parts: Sequence[Rows]) -> Tensor:
        self.optimiser.zero_grad(set_to_none=True)
        if self.halves is not None:
            self.halves.refresh()
        total = torch.zeros((), device=self.processes.device)
        for rows, length, windows, weight, most_labels in parts:
            batch = self.data.batch(rows, length, windows, most_labels)
            with autocast(self.processes.device, self.dtype):
                loss = self.loss(self.network, batch) * weight
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            if self.halves is not None:
                self.halves.collect()
            total = total + loss.detach()
        self._average(total)
        if self.clip:
            self.scaler.unscale_(self.optimiser)
        with clipped(self.parameters, self.clip, self.optimiser, self.processes, scaled=self.scaler.is_enabled()):
            self.scaler.step(self.optimiser)
        self.scaler.update()
        return total

    def _average(self, total: Tensor) -> None:
        if self.processes.count == 1:
            return
        for parameter in self.parameters:  # all processes must exchange the same tensors
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        whole = [parameter for parameter in self.parameters if not is_sharded(parameter)]  # layers average their slices
        self.processes.average([total, *(parameter.grad for parameter in whole if parameter.grad is not None)])
