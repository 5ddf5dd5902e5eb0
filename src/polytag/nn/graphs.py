"""The step as CUDA graphs: at small batches a step costs the host more time to launch than the GPU to compute.

The whole step (gathering the batch, forward, backward, clipping, AdamW) is captured once for every padded shape, and replayed
as one launch. Random numbers, learning rates and Adam's step counts live on the device: every replay sees their current values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from polytag.nn.step import EagerStep, Rows

_WARM = 3  # eager steps before the first capture: libraries choose their kernels, and AdamW makes its moments
_AGAIN = 2  # times that a shape is seen before it is captured: the last batch of an epoch may never come again
_MOST = 64  # shapes that are captured; rarer ones stay eager

_Shape: TypeAlias = tuple[tuple[int, int, int, float, int], ...]


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
        self.captured: dict[_Shape, _Captured] = {}
        self.seen: Counter[_Shape] = Counter()
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, parts: Sequence[Rows]) -> Tensor:
        """Make the step; the loss stays on the device."""
        shape = tuple((len(part.rows), *part[1:]) for part in parts)
        found = self.captured.get(shape)
        if found is None:
            self.seen[shape] += 1
            if self.seen.total() <= _WARM or self.seen[shape] < _AGAIN or len(self.captured) >= _MOST:
                return self.eager(parts)
            found = self.captured[shape] = self._capture(parts)
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
