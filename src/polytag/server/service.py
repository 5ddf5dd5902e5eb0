"""Everything a route needs: models, limits, corrections, counters, and who may do what."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from polytag.errors import ConfigError
from polytag.server.access import Tokens
from polytag.server.background_jobs import Jobs
from polytag.server.drift import Drift
from polytag.server.hosting.evaluation_set import EvaluationSet
from polytag.server.hosting.hosted_model import HostedModel
from polytag.server.hosting.labelling_queue import LabellingQueue
from polytag.server.hosting.model_shelf import Shelf
from polytag.server.limits import Limits
from polytag.server.problem import Problem
from polytag.server.telemetry import Telemetry

if TYPE_CHECKING:
    from polytag.server.corrections.correction_store import CorrectionStore

DATABASE = "sqlite:///polytag-corrections.db"


@dataclass
class Service:
    """The state of a running service."""

    shelf: Shelf
    limits: Limits
    tokens: Tokens
    database: str = DATABASE
    evaluation: EvaluationSet = field(default_factory=lambda: EvaluationSet(None))
    queue: LabellingQueue = field(default_factory=LabellingQueue)
    jobs: Jobs = field(default_factory=Jobs)
    telemetry: Telemetry = field(default_factory=Telemetry)
    page: Path = Path(__file__).parent / "page"
    hosts: frozenset[str] | None = None  # values of the Host header that are answered; None = all
    _drifts: dict[str, Drift] = field(default_factory=dict)
    _store: CorrectionStore | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def drift(self, model: HostedModel) -> Drift:
        """The drift of the version of a model that is in service; a new version starts anew."""
        found = self._drifts.get(model.name)
        if found is None or found.model is not model:
            found = self._drifts[model.name] = Drift(model)
        return found

    @property
    def store(self) -> CorrectionStore:
        """The corrections; the database is opened by the first request that needs it."""
        with self._lock:
            if self._store is None:
                from polytag.server.corrections.correction_store import CorrectionStore
                from polytag.server.corrections.database import open_database

                try:
                    self._store = CorrectionStore(open_database(self.database))
                except ConfigError as error:
                    raise Problem(500, str(error)) from None
            return self._store

    def close(self) -> None:
        """End what runs in the background, after the last request."""
        self.jobs.close()
        self.shelf.close()
        if self._store is not None:
            self._store.engine.dispose()
