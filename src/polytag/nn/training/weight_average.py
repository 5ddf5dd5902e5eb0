"""An exponential moving average of the weights: training updates the weights, evaluation and the saved model use the average."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polytag.nn.training.checkpoint import Arrays, to_arrays


def newest_share(step: int, decay: float) -> float:
    """The weight of the newest weights in the average after step ``step``, counted from 1.

    At first the average covers about the last ninth of all steps, so that the initial weights do not dominate a short training.
    Later, ``decay`` limits it.
    """
    return 1 - min(decay, (1 + step) / (10 + step))


class Average:
    """The average of everything in a network that training changes: trainable weights and running statistics."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        """Start from the network's current weights; the frozen weights and the device must be set before."""
        self.decay = decay
        kept = network.state_dict()
        self.names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
        self.names += [name for name, buffer in network.named_buffers() if name in kept and buffer.is_floating_point()]
        by_name = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        self.raw: list[Tensor] = [by_name[name] for name in self.names]
        self.means = [tensor.detach().clone() for tensor in self.raw]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average after step ``step``: a few kernel launches, without synchronisation."""
        torch._foreach_lerp_(self.means, self.raw, newest_share(step, self.decay))

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Use the average in this context, and restore the network's own weights afterwards."""
        own = [tensor.detach().clone() for tensor in self.raw]
        self.give()
        try:
            yield
        finally:
            self._put(own)

    def give(self) -> None:
        """Copy the average into the network permanently."""
        self._put(self.means)

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        """Copy in place: a captured CUDA graph refers to the tensors by address."""
        torch._foreach_copy_(self.raw, values)

    def state(self) -> Arrays:
        """The average as arrays by name."""
        return to_arrays(dict(zip(self.names, self.means, strict=True)))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state`` returned."""
        for name, mean in zip(self.names, self.means, strict=True):
            mean.copy_(torch.from_numpy(np.array(state[name])))
