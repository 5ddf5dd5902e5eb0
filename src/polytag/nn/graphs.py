"""The step as CUDA graphs: at small batches a step costs the host more time to launch than the GPU to compute.

The whole step (gathering the batch, forward, backward, clipping, AdamW) is captured once for every padded shape, and replayed
as one launch. Random numbers, learning rates and Adam's step counts live on the device: every replay sees their current values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from polytag.nn.step import EagerStep, Rows

_WARM = 3  # eager steps before the first capture: libraries choose their kernels, and AdamW makes its moments
_MOST = 64  # shapes that are captured; rarer ones stay eager


class _Captured(NamedTuple):
    """A graph, where it reads its rows from, and where it leaves its loss."""

    graph: torch.cuda.CUDAGraph
    parts: list[Rows]
    loss: Tensor


class GraphStep:
    """Replays a captured step where one of the same shape was seen before, and is eager elsewhere."""

    def __init__(self, eager: EagerStep) -> None:
        """Wrap a step on one GPU; its optimiser must be capturable."""
        self.eager = eager
        self.parameters, self.scaler = eager.parameters, eager.scaler
        self.captured: dict[tuple[tuple[int, int, int, float], ...], _Captured] = {}
        self.seen = 0
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, parts: Sequence[Rows]) -> Tensor:
        """Make the step; the loss stays on the device."""
        self.seen += 1
        key = tuple((len(part.rows), part.length, part.windows, part.weight) for part in parts)
        found = self.captured.get(key)
        if found is None:
            if self.seen <= _WARM or len(self.captured) >= _MOST:
                return self.eager(parts)
            found = self.captured[key] = self._capture(parts)
        for mine, part in zip(found.parts, parts, strict=True):
            mine.rows.copy_(part.rows)
        found.graph.replay()
        return found.loss.clone()

    def _capture(self, parts: Sequence[Rows]) -> _Captured:
        static = [part._replace(rows=part.rows.clone()) for part in parts]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            loss = self.eager(static)
        return _Captured(graph, static, loss)
