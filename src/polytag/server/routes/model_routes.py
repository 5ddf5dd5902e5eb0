"""Routes about models: what they are, their labels, and why a label."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from polytag.server.drift import promise_state
from polytag.server.hosting.model_shelf import Place
from polytag.server.problem import Problem, readable
from polytag.server.routes.dependencies import ServiceOf


class ExplainRequest(BaseModel):
    """A text to explain."""

    model_config = ConfigDict(extra="forbid")
    text: str
    labels: list[str] | None = Field(None, description="labels to explain; default: the decided ones", max_length=100)
    model: str | None = Field(None, description="name of the model; default: the first one")
    exact: bool = Field(False, description="leave out every word of a network's text, not phrases first")


router = APIRouter()


@router.get("/v1/models")
def models(service: ServiceOf) -> dict[str, Any]:
    """The models in service; the first one is the default."""
    corpus = service.evaluation.corpus
    files = {"test_documents": 0 if corpus is None else len(corpus), "pool_documents": len(service.queue.documents)}
    return {"models": [_described(place) for place in service.shelf], **files}


def _described(place: Place) -> dict[str, Any]:
    previous = None if place.previous is None else place.previous.version
    candidate = None if place.candidate is None else place.candidate.model.version
    return {**place.live.model.describe(), "previous": previous, "candidate": candidate}


@router.post("/v1/explain")
def explain(request: ExplainRequest, service: ServiceOf) -> dict[str, Any]:
    """The words that speak for and against the labels of a text."""
    most = service.limits.explained
    if len(request.text) > most:
        raise Problem(413, f"a text to explain has at most {most:,} characters, not {len(request.text):,}")
    model = service.shelf.model(request.model)
    found = model.classifier.explain(readable(request.text), request.labels, exact=request.exact)
    return {"model": model.name, "version": model.version, **found.to_json(), "best": found.best}


@router.get("/v1/labels")
def labels(
    service: ServiceOf,
    q: Annotated[str, Query(max_length=1_000, description="part of a name, an id, or a word of a description")] = "",
    model: str | None = None,
    parent: Annotated[str | None, Query(description="list the labels below this one; empty = those at the top")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 20,
) -> dict[str, Any]:
    """Labels that match a query, best first; or the labels below a label of the tree."""
    hosted = service.shelf.model(model)
    found = hosted.search.find(q, limit) if parent is None else hosted.search.children(parent or None)[:limit]
    return {"model": hosted.name, "version": hosted.version, "labels": [hosted.search.record(number) for number in found]}


@router.get("/v1/models/{name}/drift")
def drift(name: str, service: ServiceOf) -> dict[str, Any]:
    """Whether the texts that arrive are like those of training, and whether the promise still stands."""
    model = service.shelf.model(name)
    report = service.drift(model).report()
    rows = service.store.standing() if model.classifier.decision.promise else ()
    state = promise_state(model, report["drifted"], rows)
    return {"model": model.name, "version": model.version, **report, "promise": state}
