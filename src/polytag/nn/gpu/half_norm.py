"""Layer normalisation that keeps half precision on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def keep_half_precision(model: nn.Module) -> None:
    """Let layer normalisation return half precision under autocast on a GPU.

    It computes in float32 either way. Autocast would also return float32, and each of the three products that follow would
    convert it again.
    """
    for module in model.modules():
        if type(module) is nn.LayerNorm:
            module.__class__ = _HalfNorm


class _HalfNorm(nn.LayerNorm):
    def forward(self, states: Tensor) -> Tensor:
        found = super().forward(states)
        return found.to(torch.get_autocast_dtype("cuda")) if found.is_cuda and torch.is_autocast_enabled("cuda") else found
