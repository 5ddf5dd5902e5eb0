"""The models in service, by name: the version that answers, the one before, and how to change them without a gap."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from polytag.errors import ConfigError, suggestion
from polytag.server.hosting.candidate_version import Candidate, save_live
from polytag.server.hosting.hosted_model import HostedModel
from polytag.server.hosting.request_queue import RequestQueue
from polytag.server.limits import Limits
from polytag.server.problem import Problem


@dataclass
class Place:
    """A model's place: the queue of the version in service, the version before it, and one that may follow."""

    live: RequestQueue
    previous: HostedModel | None = None
    candidate: Candidate | None = None
    swaps: int = 0


class Shelf:
    """All models. A request keeps the version that it found, so that no answer mixes two."""

    def __init__(self, models: Sequence[HostedModel], limits: Limits) -> None:
        """Put the models in service; the first one is the default."""
        self.limits = limits
        self._places: dict[str, Place] = {}
        self._lock = threading.Lock()
        for model in models:
            if model.name in self._places:
                raise ConfigError(f"two runs have the folder name {model.name!r}, which is the model's name; rename one")
            self._places[model.name] = Place(RequestQueue(model, limits))
        self.default = models[0].name

    @classmethod
    def load(cls, folders: Sequence[Path], limits: Limits) -> Shelf:
        """Load runs."""
        return cls([HostedModel.load(folder) for folder in folders], limits)

    def place(self, name: str | None) -> Place:
        """The place of a model; an unknown name is a Problem."""
        found = self._places.get(self.default if name is None else name)
        if found is None:
            raise Problem(404, f"there is no model {name!r}; {suggestion(str(name), list(self._places))}")
        return found

    def model(self, name: str | None) -> HostedModel:
        """The version of a model that is in service."""
        return self.place(name).live.model

    def __iter__(self) -> Iterator[Place]:
        """Iterate over the places."""
        return iter(self._places.values())

    def reload(self, name: str) -> HostedModel:
        """Load the model's run again and put it in service, if its artefact has changed."""
        folder = self.model(name).folder
        if folder is None:
            raise Problem(409, f"the model {name!r} has no folder to load it from")
        fresh = HostedModel.load(folder)
        return self.swap(name, fresh) if fresh.version != self.model(name).version else self.model(name)

    def swap(self, name: str, fresh: HostedModel) -> HostedModel:
        """Put a warm version in service; requests that wait for the old one are still answered by it."""
        with self._lock:
            place = self.place(name)
            place.previous = place.live.model
            place.live = RequestQueue(fresh, self.limits)
            place.swaps += 1
        return fresh

    def go_live(self, name: str) -> Candidate:
        """Save the candidate to its run and put it in service."""
        place = self.place(name)
        candidate = place.candidate
        if candidate is None:
            raise Problem(409, f"there is no candidate of {name!r}; let it learn first")
        if candidate.report["live"] != place.live.model.version:
            raise Problem(409, "another version went live since the candidate was made; let it learn again")
        save_live(candidate.model)
        place.candidate = None
        self.swap(name, candidate.model)
        return candidate

    def back(self, name: str) -> HostedModel:
        """Put the version before in service again."""
        previous = self.place(name).previous
        if previous is None:
            raise Problem(409, f"there is no version of {name!r} before this one")
        fresh = self.swap(name, previous)
        if fresh.folder is not None and HostedModel.version_at(fresh.folder) != fresh.version:
            save_live(fresh)
        return fresh

    def close(self) -> None:
        """End the threads."""
        for place in self:
            place.live.close()
