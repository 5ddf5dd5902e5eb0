"""The process of a command: it starts with few garbage collections and ends without taking everything apart."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading

_YOUNG = 200_000  # new objects before a garbage collection: more than are imported. Python's 700 cost a short command a tenth


def start() -> None:
    """Run the command line, and end the process with its exit code; a bug shows its traceback as ever."""
    gc.set_threshold(_YOUNG, 20, 20)
    from polytag.cli.app import main

    try:
        main()
    except SystemExit as ended:
        _leave(ended.code if isinstance(ended.code, int) else 1 if ended.code else 0)


def _leave(code: int) -> None:
    """End at once after what was registered for the end; the compiler alone needs a tenth of a second to be taken apart."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does first
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)
