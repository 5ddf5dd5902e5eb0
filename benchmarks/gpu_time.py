"""How long a GPU needs for some work, and for which kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

ROUNDS = 30  # replays that are timed
SPANS = ("Optimizer.", "ProfilerStep")  # of a profile, which are no kernels


def milliseconds(work: Callable[[], Any], device: torch.device) -> float:
    """How long a GPU needs for some work, captured and replayed; on a CPU how long it takes."""
    for _ in range(3):
        work()
    if device.type != "cuda":
        start = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - start)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    graph.replay()
    first.record()
    for _ in range(ROUNDS):
        graph.replay()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / ROUNDS


def kernels(work: Callable[[], Any], device: torch.device) -> dict[str, Any]:
    """How many kernels some work launches, how long they run, and which of them longest."""
    if device.type != "cuda":
        return {}
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in seen.events() or []:
        if event.device_type.name == "CUDA" and not event.name.startswith(SPANS):
            times.setdefault(event.name, []).append(event.time_range.elapsed_us() / 1e3)
    most = sorted(times.items(), key=lambda item: -sum(item[1]))[:14]
    return {
        "kernels": sum(map(len, times.values())),
        "kernels_ms": sum(sum(each) for each in times.values()),
        "longest": [{"name": name[:110], "count": len(each), "ms": sum(each)} for name, each in most],
    }
