"""The message of an interrupted verb."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def resumable() -> Iterator[None]:
    """On an interrupt, print how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("polytag: interrupted; run the same command with --resume to continue", err=True)
        raise typer.Exit(130) from None
