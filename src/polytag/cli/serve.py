"""``polytag serve``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

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
) -> None:
    """Serve models over HTTP: predictions, explanations, label search, corrections, and a page."""
    from polytag.errors import ConfigError

    try:
        from polytag.server.startup import run_service, service_of
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("polytag"):
            raise
        raise ConfigError(f"the service needs {error.name}: pip install 'polytag[serve]'") from None
    service = service_of(runs, corrections, host)
    if get is None:
        run_service(service, host, port)
        return
    from polytag.server.app import create_app
    from polytag.server.one_request import get as answered

    status, body = answered(create_app(service), get)
    sys.stdout.buffer.write(body)
    if status >= 400:
        raise typer.Exit(1)
