"""``polytag serve``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="runs, or their model folders; the first is the default")],
    host: Annotated[str, typer.Option("--host", help="address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="port to listen at; 0 = any free one", min=0, max=65535)] = 8000,
    get: Annotated[
        str | None, typer.Option("--get", metavar="PATH", help="answer one GET request on standard output, without a port")
    ] = None,
    corrections: Annotated[
        str, typer.Option("--corrections", metavar="URL", help="database of corrections: sqlite:///FILE or postgresql://...")
    ] = "sqlite:///polytag-corrections.db",
    test: Annotated[
        Path | None, typer.Option("--test", help="labelled documents for the table of errors and for promises")
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option("--tokens", help="file of tokens, as `polytag token add` makes it [default: none]"),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", help="requests per second of one token; 0 = no limit", min=0)] = 0.0,
    pool: Annotated[Path | None, typer.Option("--pool", help="unlabelled documents, to choose the next one to label")] = None,
) -> None:
    """Serve models over HTTP: predictions, explanations, label search, corrections, and a page."""
    startup = server_part("startup")
    limits = server_part("limits").Limits(rate=rate)
    plan = startup.Plan(runs, host, port, corrections, test, pool, tokens, limits)
    if get is None:
        startup.run_service(plan)
        return
    status, body = startup.answer_one(plan, get)
    sys.stdout.buffer.write(body)
    if status >= 400:
        raise typer.Exit(1)


def server_part(name: str) -> Any:
    """A module of the service; without the extra, one line says how to get it."""
    import importlib

    from polytag.errors import ConfigError

    try:
        return importlib.import_module(f"polytag.server.{name}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("polytag"):
            raise
        raise ConfigError(f"the service needs the package {error.name}: pip install 'polytag[serve]'") from None
