"""GPU time of a function, and of its kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

ROUNDS = 30  # timed replays
LONGEST = 5  # kernels that are listed
SPANS = ("Optimizer.", "ProfilerStep")  # entries of a profile that are not kernels


def milliseconds(work: Callable[[], Any], device: torch.device) -> float:
    """The GPU time of a function, captured as a graph and replayed; on a CPU its wall-clock time."""
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
    """The number of kernels that a function launches, their total time, and the longest of them."""
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
    most = sorted(times.items(), key=lambda item: -sum(item[1]))[:LONGEST]
    return {
        "kernels": sum(map(len, times.values())),
        "kernels_ms": sum(sum(each) for each in times.values()),
        "longest": [{"name": name[:110], "count": len(each), "ms": sum(each)} for name, each in most],
    }
