"""Distributed training with accelerate; a single process runs the same code with a count of one.

The network is not wrapped: every process computes the gradients of its rows, and the gradients are averaged before the step. So
a model may call any method of its network, and parameters without a gradient need no special treatment.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, reduce
from torch import Tensor

from polytag.nn.training.devices import pick_device


def _leave() -> None:
    """Destroy the process group: an interpreter that exits while its threads still communicate may be aborted."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


class Processes:
    """The number of processes, the rank of this one, and their communication."""

    def __init__(self, device: str) -> None:
        """Join the process group, if ``accelerate launch`` or torchrun started one."""
        accelerator = Accelerator()  # also chooses the GPU of this process
        self.count: int = accelerator.num_processes
        self.rank: int = accelerator.process_index
        if self.count > 1:
            atexit.unregister(_leave)
            atexit.register(_leave)
        self.device: torch.device = accelerator.device if self.count > 1 else pick_device(device)

    @property
    def first(self) -> bool:
        """Whether this process writes logs and checkpoints."""
        return self.rank == 0

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their mean over the processes, in one all-reduce."""
        if self.count == 1:
            return
        flat = torch.cat([tensor.reshape(-1).float() for tensor in tensors])
        flat = reduce(flat, reduction="mean")
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def share(self, tensors: Sequence[Tensor], rank: int = 0) -> None:
        """Broadcast the tensors of a process, by default of the first one."""
        if self.count > 1:
            for tensor in tensors:
                tensor.copy_(broadcast(tensor.contiguous(), from_process=rank))

    def agree(self, values: Sequence[float]) -> list[float]:
        """The values of the first process."""
        if self.count == 1:
            return list(values)
        shared = torch.tensor(list(values), dtype=torch.float64, device=self.device)
        return [float(value) for value in broadcast(shared, from_process=0).tolist()]
