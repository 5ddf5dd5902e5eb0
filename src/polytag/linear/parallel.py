"""Threads over independent pieces of compiled work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def thread_count() -> int:
    """How many threads to use: ``POLYTAG_THREADS`` if set, else the processors this process may run on."""
    given = os.environ.get("POLYTAG_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tile_size(n: int, most: int) -> int:
    """At most so many documents, and as many tiles for every thread, so that none waits for another's last one."""
    threads = thread_count()
    rounds = -(-n // (most * threads))
    return max(1, -(-n // (max(rounds, 1) * threads)))


def in_threads(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """Apply work that releases the interpreter lock to every piece, a free thread taking the next; results keep the order."""
    pieces = list(pieces)
    threads = min(thread_count(), len(pieces)) if len(pieces) > 1 else 1
    if threads <= 1:
        yield from map(work, pieces)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, pieces)
