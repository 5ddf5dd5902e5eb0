"""The message of an interrupted verb."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from polytag.cli.standard_streams import note


@contextmanager
def resumable() -> Iterator[None]:
    """On an interrupt, print how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        note("polytag: interrupted; run the same command with --resume to continue")
        raise typer.Exit(130) from None
