"""FSDP: large layers whose weights, gradients and moments are divided among processes.

Every large embedding and linear layer is sharded by itself: a process has a slice of its weights, and all slices come together
while the layer computes. So a model may still call any method of its network. Small layers are not sharded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from polytag.nn.training.checkpoint import is_sharded, own_slice, whole
from polytag.nn.training.processes import Processes

LEAST = 1 << 16  # weights of a layer that is sharded
_HOOKS = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs")
_LOADING = ("_state_dict_pre_hooks", "_load_state_dict_pre_hooks")


class _Layer(NamedTuple):
    module: Any
    kind: type[nn.Module]


class ShardedLayers:
    """The sharded layers of a network."""

    def __init__(self, network: nn.Module, processes: Processes) -> None:
        """Shard the large layers; the weights of the first process count."""
        from torch.distributed.device_mesh import init_device_mesh  # imported here, because few trainings need them
        from torch.distributed.fsdp import fully_shard

        processes.share(list(network.state_dict().values()))
        mesh = init_device_mesh(processes.device.type, (processes.count,))
        self.layers: list[_Layer] = []
        tied = _names_of(network)
        for module in network.modules():
            large = sum(parameter.numel() for parameter in module.parameters(recurse=False)) >= LEAST
            alone = all(tied[parameter] == 1 for parameter in module.parameters(recurse=False))
            if isinstance(module, nn.Linear | nn.Embedding) and large and alone:
                self.layers.append(_Layer(module, type(module)))
                fully_shard(module, mesh=mesh, reshard_after_forward=True)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Inside, every process has all weights and may compute alone, without gradients."""
        self._gather()
        try:
            yield
        finally:
            for layer in self.layers:
                layer.module.reshard()
                layer.module.set_reshard_after_forward(True)

    def _gather(self) -> None:
        for layer in self.layers:
            layer.module.set_reshard_after_forward(False)
            layer.module.unshard()

    def undo(self) -> None:
        """Make the layers ordinary ones, with all weights."""
        for module, kind in self.layers:
            full = {name: whole(parameter).detach().clone() for name, parameter in module.named_parameters(recurse=False)}
            learns = {name: parameter.requires_grad for name, parameter in module.named_parameters(recurse=False)}
            module.__class__ = kind
            for hooks in (*_HOOKS, *_LOADING):
                getattr(module, hooks).clear()
            for name, tensor in full.items():
                module._parameters[name] = nn.Parameter(tensor, requires_grad=learns[name])
        self.layers = []


def _names_of(network: nn.Module) -> dict[nn.Parameter, int]:
    """How many layers have each parameter."""
    counts: dict[nn.Parameter, int] = {}
    for module in network.modules():
        for parameter in module.parameters(recurse=False):
            counts[parameter] = counts.get(parameter, 0) + 1
    return counts


def spread(target: Tensor, array: Any, processes: Processes) -> None:
    """Write an array of the first process into a tensor of which each process has a slice."""
    value = torch.zeros(target.shape, dtype=target.dtype) if array is None else torch.from_numpy(np.array(array))
    value = value.to(processes.device)
    processes.share([value])
    if is_sharded(target):
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(target, DTensor)
        value = distribute_tensor(value, target.device_mesh, target.placements, src_data_rank=None).to_local()
    own_slice(target).copy_(value)


@torch.no_grad()
def spread_checkpoint(
    network: nn.Module, best: dict[str, Tensor] | None, optimiser: torch.optim.Optimizer, state: Any, processes: Processes
) -> None:
    """Give every process its slices of a checkpoint, which only the first one has; the others pass None as ``state``."""
    for tensors, kept in ((network.state_dict(), "network"), (best or {}, "best")):
        for name, tensor in tensors.items():
            spread(tensor, None if state is None else state[kept][name], processes)
    for group in optimiser.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            moments = optimiser.state[parameter]
            moments["step"] = torch.zeros((), device=processes.device)
            moments["exp_avg"], moments["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            for key, tensor in moments.items():
                spread(tensor, None if state is None else state["optimiser"][name][key], processes)


def clip(parameters: list[nn.Parameter], limit: float, processes: Processes) -> None:
    """Scale gradients so that their norm, over all slices, is at most a limit."""
    gradients = [(is_sharded(parameter), own_slice(parameter.grad)) for parameter in parameters if parameter.grad is not None]
    sums = torch.zeros(2, device=processes.device)
    for sharded, gradient in gradients:
        sums[int(sharded)] += gradient.float().square().sum()
    sliced = sums[1:].clone()
    processes.average([sliced])
    norm = (sums[0] + processes.count * sliced[0]).sqrt()
    factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
    for _, gradient in gradients:
        gradient.mul_(factor)
