"""Threads over independent pieces of compiled work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def thread_count() -> int:
    """The number of threads: ``POLYTAG_THREADS`` if set, else the number of CPUs that this process may use."""
    given = os.environ.get("POLYTAG_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tile_size(n: int, most: int) -> int:
    """The size of a tile, at most ``most``: every thread gets the same number of tiles, so that none is idle at the end."""
    threads = thread_count()
    rounds = -(-n // (most * threads))
    return max(1, -(-n // (max(rounds, 1) * threads)))


def in_threads(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """Apply ``work``, which releases the GIL, to all pieces in a thread pool; the results keep the order."""
    pieces = list(pieces)
    threads = min(thread_count(), len(pieces)) if len(pieces) > 1 else 1
    if threads <= 1:
        yield from map(work, pieces)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, pieces)
