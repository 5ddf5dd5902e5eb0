"""Routes of administrators: versions of models, learning from corrections, and what was done."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from polytag.server.corrections.agreement import corpus_of
from polytag.server.hosting.candidate_version import learned
from polytag.server.problem import Problem
from polytag.server.routes.dependencies import CallerOf, ServiceOf, needs

router = APIRouter()
_LARGEST = 2**31 - 1


@router.post("/v1/admin/models/{name}/reload")
def reload(name: str, service: ServiceOf, caller: CallerOf) -> dict[str, Any]:
    """Load a model's run again and put it in service, if its artefact has changed; no request is dropped."""
    needs(caller, "admin")
    return service.shelf.reload(name).describe()


@router.post("/v1/admin/models/{name}/back")
def back(name: str, service: ServiceOf, caller: CallerOf) -> dict[str, Any]:
    """Put the version before in service again."""
    needs(caller, "admin")
    found = service.shelf.back(name)
    service.store.note(caller.name, "back", f"{name} {found.version}")
    return found.describe()


@router.post("/v1/admin/models/{name}/learn")
def learn(name: str, service: ServiceOf, caller: CallerOf, disputed: bool = False) -> dict[str, Any]:
    """Make a candidate that learned from the corrections since the version in service; answers the difference."""
    needs(caller, "admin")
    place, store = service.shelf.place(name), service.store
    model = place.live.model
    rows = list(store.standing(after=store.learned(name, model.version)))
    if not rows:
        raise Problem(409, "there are no corrections that this version has not learned from")
    found = learned(model, corpus_of(rows, disputed=disputed), max(row["id"] for row in rows), service.evaluation.corpus)
    place.candidate = found
    return {"model": name, **found.report}


@router.get("/v1/models/{name}/candidate")
def candidate(name: str, service: ServiceOf) -> dict[str, Any]:
    """The candidate of a model and its difference to the version in service."""
    found = service.shelf.place(name).candidate
    if found is None:
        raise Problem(404, f"there is no candidate of {name!r}")
    return {"model": name, **found.report}


@router.post("/v1/admin/models/{name}/live")
def live(name: str, service: ServiceOf, caller: CallerOf) -> dict[str, Any]:
    """Save the candidate to its run and put it in service; no request is dropped."""
    needs(caller, "admin")
    found = service.shelf.go_live(name)
    service.store.note_learned(name, found.model.version, found.learned)
    service.store.note(caller.name, "live", f"{name} {found.model.version}")
    return found.model.describe()


@router.get("/v1/admin/trail")
def trail(
    service: ServiceOf,
    caller: CallerOf,
    after: Annotated[int, Query(ge=0, le=_LARGEST)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> dict[str, Any]:
    """The audit trail: who did what, and when."""
    needs(caller, "admin")
    return {"trail": service.store.trail(after, limit)}


@router.delete("/v1/admin/people/{user}")
def forget(user: str, service: ServiceOf, caller: CallerOf) -> dict[str, Any]:
    """Delete a person's corrections, and the texts that nobody else corrected."""
    needs(caller, "admin")
    return service.store.forget(user, caller.name)
