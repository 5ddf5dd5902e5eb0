"""A training that is ended as soon as it is clear that it will not be over in time, not when its time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from polytag.run import Run

T = TypeVar("T")
_SURE = 5.0  # seconds of a loop after which its pace is believed
_LATE = 1.1  # times the seconds that are left: a loop may turn out that much slower, as what follows has a margin too
_MANY = 50  # steps of a loop whose pace says when it will be over


class TooSlow(Exception):
    """A loop would not be over in time; ``seconds`` is what all of it would take."""

    def __init__(self, seconds: float) -> None:
        """Keep the seconds."""
        super().__init__(f"would take {seconds:.0f} s")
        self.seconds = seconds


class TimedRun(Run):
    """A run without a folder that raises ``TooSlow`` in a loop of many steps that would end far too late at its pace."""

    def __init__(self, seconds: float) -> None:
        """Loops must be over this many seconds from now."""
        super().__init__(None, progress=False)
        self._end = time.monotonic() + seconds

    def track(
        self, iterable: Iterable[T], description: str, total: int | None = None, place: Callable[[T], int] | None = None
    ) -> Iterator[T]:
        """Iterate and show progress as every run does, as long as the pace suffices."""
        steps = len(iterable) if total is None and isinstance(iterable, Sized) else total
        items = super().track(iterable, description, total, place)
        return items if steps is None or steps < _MANY else self._in_time(items, steps)

    def _in_time(self, items: Iterator[T], steps: int) -> Iterator[T]:
        begun = start = time.monotonic()
        for done, item in enumerate(items):
            yield item
            now = time.monotonic()
            if not done:  # the first step also prepares the others
                start = now
                continue
            needed = start - begun + (now - start) / done * (steps - 1)
            if now - start >= _SURE and begun + needed / _LATE > self._end:
                raise TooSlow(needed)
