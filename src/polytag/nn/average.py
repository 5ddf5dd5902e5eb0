"""A moving average of the weights: training goes on from the weights themselves, what is measured and kept is their average."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polytag.nn.checkpoint import Arrays, to_arrays


def newest_share(step: int, decay: float) -> float:
    """What the weights after step number ``step`` (from 1) count in the average, the older ones having the rest.

    At first the average is over about the last ninth of all steps, so that a short training is not weighed down by its
    beginning; from the step on where this is longer than ``decay`` allows, that decides.
    """
    return 1 - min(decay, (1 + step) / (10 + step))


class Average:
    """The average of everything in a network that training changes: trainable weights, and running statistics."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        """Start from the network's weights as they are; which of them are frozen must be settled, and their device too."""
        self.decay = decay
        kept = network.state_dict()
        self.names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
        self.names += [name for name, buffer in network.named_buffers() if name in kept and buffer.is_floating_point()]
        by_name = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        self.raw: list[Tensor] = [by_name[name] for name in self.names]
        self.means = [tensor.detach().clone() for tensor in self.raw]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after step number ``step``: a few launches, and nothing that waits for the device."""
        torch._foreach_lerp_(self.means, self.raw, newest_share(step, self.decay))

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let the network have the average inside; after that it has its own weights again."""
        own = [tensor.detach().clone() for tensor in self.raw]
        self.give()
        try:
            yield
        finally:
            self._put(own)

    def give(self) -> None:
        """Put the average into the network, for good."""
        self._put(self.means)

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        """Copy into the tensors that the network has: a captured step knows them by their address."""
        torch._foreach_copy_(self.raw, values)

    def state(self) -> Arrays:
        """The average as arrays by name."""
        return to_arrays(dict(zip(self.names, self.means, strict=True)))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from an average that ``state`` gave."""
        for name, mean in zip(self.names, self.means, strict=True):
            mean.copy_(torch.from_numpy(np.array(state[name])))
