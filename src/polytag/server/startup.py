"""Starts the service: loads the models, listens, and ends without dropping what it accepted."""

from __future__ import annotations

import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.formats.document_files import Reader
from polytag.server.access import Tokens
from polytag.server.app import create_app
from polytag.server.hosting.evaluation_set import EvaluationSet
from polytag.server.hosting.labelling_queue import LabellingQueue
from polytag.server.hosting.model_shelf import Shelf
from polytag.server.limits import Limits
from polytag.server.one_request import get
from polytag.server.service import DATABASE, Service

log = logging.getLogger(__name__)
LOCAL = frozenset({"127.0.0.1", "[::1]", "localhost"})
_CONNECTIONS = 4_000  # open connections above which new requests get 503
_FINISH_S = 30  # how long open requests may take after the signal to end


@dataclass(frozen=True)
class Plan:
    """What to serve, and where."""

    runs: Sequence[Path]
    host: str = "127.0.0.1"
    port: int = 8000
    database: str = DATABASE
    test: Path | None = None
    pool: Path | None = None
    tokens: Path | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the service."""
        return self.host.strip("[]") in {name.strip("[]") for name in LOCAL}

    def service(self) -> Service:
        """Load everything; a service that others can reach needs tokens."""
        if not self.local and self.tokens is None:
            raise ConfigError(f"others can reach {self.host}; give --tokens FILE, which `polytag token add` makes")
        shelf = Shelf.load(self.runs, self.limits)
        first = shelf.model(None).classifier
        test = None if self.test is None else Corpus.read(self.test, labels=first.labels, options=first.reading())
        pool = [] if self.pool is None else list(Reader(self.pool, first.reading(), need_labels=False))
        return Service(
            shelf,
            self.limits,
            Tokens(self.tokens),
            self.database,
            evaluation=EvaluationSet(test),
            queue=LabellingQueue(pool),
            hosts=LOCAL if self.local else None,
        )


def answer_one(plan: Plan, path: str) -> tuple[int, bytes]:
    """The status and the body of ``GET path``, without a port."""
    return get(create_app(plan.service()), path)


def run_service(plan: Plan) -> None:
    """Listen until a signal to end comes."""
    service, host, port = plan.service(), plan.host, plan.port
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
        limit_concurrency=_CONNECTIONS,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn ends by these, and raises them once more when it is done
        signal.signal(number, lambda *_: None)
    uvicorn.Server(config).run()
