"""Ctrl-C between the steps of a training, not in the middle of one: so can a checkpoint be written first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Held:
    """Whether an interrupt came in the meantime."""

    came = False


@contextmanager
def held_back() -> Iterator[Held]:
    """Hold an interrupt back and note it; a second one, and one after this, interrupts as ever.

    Only where interrupts would raise ``KeyboardInterrupt``: in the main thread, unless the program does something else with them.
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
