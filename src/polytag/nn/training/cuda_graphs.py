"""The step as CUDA graphs: with small batches, launching the kernels takes longer than running them.

The whole step (batch, forward and backward pass, clipping, AdamW) is captured once per padded shape, and replayed as one launch.
Random numbers, learning rates and Adam's step counts are on the device, so every replay has their current values.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from polytag.nn.training.step import EagerStep, Rows

_WARM = 3  # eager steps before the first capture: libraries select their kernels, and AdamW creates its moments
_AGAIN = 2  # a shape is captured at its second occurrence: the last batch of an epoch may occur once only
_MOST = 64  # maximum number of captured shapes; further shapes stay eager

_Shape: TypeAlias = tuple[tuple[int, int, int, float, int], ...]


class _Captured(NamedTuple):
    """A graph, with the tensors of its rows and of its loss."""

    graph: torch.cuda.CUDAGraph
    parts: list[Rows]
    loss: Tensor


@contextmanager
def _nothing_freed() -> Iterator[None]:
    """Inside, Python does not collect garbage: graphs and kernels of an earlier training must not be freed during a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class GraphStep:
    """Replays the captured step of a shape, or makes an eager step if there is none."""

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
        with _nothing_freed(), torch.cuda.graph(graph, pool=self.pool):
            loss = self.eager(static)
        return _Captured(graph, static, loss)
