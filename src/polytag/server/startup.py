"""Starts the service: loads the models, listens, and ends without dropping what it accepted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from polytag.server.access import Tokens
from polytag.server.app import create_app
from polytag.server.hosting.model_shelf import Shelf
from polytag.server.limits import Limits
from polytag.server.service import Service

log = logging.getLogger(__name__)
LOCAL = frozenset({"127.0.0.1", "[::1]", "localhost"})
_FINISH_S = 30  # how long open requests may take after the signal to end


def service_of(runs: Sequence[Path], database: str, host: str, limits: Limits | None = None) -> Service:
    """The service of some runs."""
    limits = limits or Limits()
    local = host.strip("[]") in {name.strip("[]") for name in LOCAL}
    return Service(Shelf.load(runs, limits), limits, Tokens(), database, hosts=LOCAL if local else None)


def run_service(service: Service, host: str, port: int) -> None:
    """Listen until a signal to end comes."""
    names = ", ".join(place.live.model.name for place in service.shelf)
    log.info("serving %s at http://%s:%d", names, f"[{host}]" if ":" in host else host, port)
    config = uvicorn.Config(
        create_app(service),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_FINISH_S,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    uvicorn.Server(config).run()
