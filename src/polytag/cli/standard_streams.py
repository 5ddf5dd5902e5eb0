"""Standard input, output and error, any of which may be closed, full, or a pipe that nobody reads any more."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import NoReturn

import typer

from polytag.errors import DataError


class ClosedOutput(io.TextIOBase):
    """Standard output that was closed by the caller: whoever has a result to print gets an error."""

    encoding = "utf-8"

    def write(self, text: str) -> NoReturn:
        """Refuse."""
        raise DataError("standard output is closed, so the result cannot be printed; redirect it to a file")

    @property
    def buffer(self) -> NoReturn:
        """Refuse."""
        self.write("")


def open_closed_streams() -> None:
    """Give the numbers 0, 1 and 2 to the null device where they are free; otherwise the next file would get them.

    What is printed to a closed standard error is lost; a result for a closed standard output is an error.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115, used to the end


def note(message: str) -> None:
    """Print a message to standard error; if that cannot be written to, the work goes on."""
    with contextlib.suppress(OSError):
        typer.echo(message, err=True)


def discard_output() -> None:
    """Send what is left in the buffers of a broken standard output to the null device, so that the end of Python is quiet."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.stdout.flush()
