"""Ctrl-C takes effect between training steps, so that a checkpoint can be written first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Held:
    """Whether an interrupt was received."""

    came = False


@contextmanager
def held_back() -> Iterator[Held]:
    """Defer the first interrupt and record it; a second one, and one after this context, interrupts as usual.

    Only in the main thread, and only if SIGINT has Python's default handler.
    """
    held = Held()
    usual = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler:
        yield held
        return

    def note(*_: object) -> None:
        held.came = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, note)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
