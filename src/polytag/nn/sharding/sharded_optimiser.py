"""AdamW whose moments are divided among processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polytag.nn.training.checkpoint import Arrays, optimiser_state
from polytag.nn.training.processes import Processes


def owners(sizes: list[int], count: int) -> list[int]:
    """The process of every parameter: the largest ones first, each to the process with the least so far."""
    load, found = [0] * count, [0] * len(sizes)
    for at in sorted(range(len(sizes)), key=lambda at: (-sizes[at], at)):
        found[at] = load.index(min(load))
        load[found[at]] += sizes[at]
    return found


class ShardedAdamW(torch.optim.AdamW):
    """AdamW whose moments are divided among processes: each updates its own parameters, then all exchange them.

    Moments need twice the memory of the weights. The update of a parameter depends on its own gradient and moments only, so the
    result is that of the undivided optimiser, to the bit.
    """

    def __init__(self, groups: list[dict[str, Any]], processes: Processes, **told: Any) -> None:
        """``groups`` are those of the undivided optimiser."""
        super().__init__(groups, **told)
        self.processes = processes
        every = [parameter for group in self.param_groups for parameter in group["params"]]
        found = owners([parameter.numel() for parameter in every], processes.count)
        self.owner = dict(zip(every, found, strict=True))

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update own parameters, then take the others from their owners."""
        others = [(parameter, parameter.grad) for parameter, owner in self.owner.items() if owner != self.processes.rank]
        for parameter, _ in others:
            parameter.grad = None  # a parameter without a gradient is left alone and gets no moments
        loss: float | None = super().step(closure)
        for parameter, gradient in others:
            parameter.grad = gradient
        for rank in range(self.processes.count):
            self.processes.share([parameter for parameter, owner in self.owner.items() if owner == rank], rank)
        return loss

    def gathered(self) -> dict[str, Arrays]:
        """The moments of all parameters by name, in the first process; all processes take part."""
        found = optimiser_state(self) if self.processes.first else {}
        for group in self.param_groups:
            for name, parameter in zip(group["names"], group["params"], strict=True):
                owner = self.owner[parameter]
                if owner:
                    moments = self._exchanged(parameter, owner)
                    if self.processes.first:
                        found |= {name: moments}
        return found

    def _exchanged(self, parameter: Tensor, owner: int) -> Arrays:
        """The moments of a parameter from its owner."""
        own = self.state.get(parameter) or {}
        sent = {"step": own.get("step", torch.zeros(())).to(parameter.device)}
        sent |= {key: own.get(key, torch.zeros_like(parameter)) for key in ("exp_avg", "exp_avg_sq")}
        values = {key: tensor.clone() for key, tensor in sent.items()}
        self.processes.share(list(values.values()), owner)
        return {key: tensor.cpu().numpy() for key, tensor in values.items()}

    def drop_others(self) -> None:
        """Forget the moments of parameters that other processes update."""
        for parameter, owner in self.owner.items():
            if owner != self.processes.rank:
                self.state.pop(parameter, None)
