"""Routes about corrections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import StreamingResponse

from polytag.server.access import Caller
from polytag.server.corrections.agreement import verdicts
from polytag.server.corrections.correction_record import Correction
from polytag.server.problem import Problem, readable
from polytag.server.routes.dependencies import CallerOf, ServiceOf, needs

Label = Annotated[str, Field(min_length=1, max_length=1_000)]
Labels = Annotated[list[Label], Field(max_length=1_000)]
_LARGEST = 2**31 - 1


class CorrectionRequest(BaseModel):
    """What a person says about the labels of a text."""

    model_config = ConfigDict(extra="forbid")
    text: str = Field(min_length=1)
    accepted: Labels = Field(default=[], description="predicted labels that belong to the text")
    removed: Labels = Field(default=[], description="predicted labels that do not belong to it")
    added: Labels = Field(default=[], description="labels that belong to it and were not predicted")
    model: str | None = Field(None, description="name of the model; default: the first one")
    version: str | None = Field(None, max_length=64, description="version that predicted; default: the one in service")
    user: str | None = Field(None, max_length=200, description="who corrects; with tokens the token's name is taken")
    document: str | None = Field(None, max_length=500, description="the client's own id of the text")


router = APIRouter()


@router.post("/v1/corrections", status_code=201, responses={200: {"description": "stored before, under the same key"}})
def correct(
    request: CorrectionRequest,
    service: ServiceOf,
    caller: CallerOf,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> dict[str, Any]:
    """Store a correction; with an Idempotency-Key it is stored once, however often it is sent."""
    needs(caller, "correct")
    found, new = service.store.add(_correction(request, service, caller, idempotency_key))
    response.status_code = 201 if new else 200
    return found


def _correction(request: CorrectionRequest, service: ServiceOf, caller: Caller, key: str | None) -> Correction:
    model = service.shelf.model(request.model)
    if len(request.text) > service.limits.text:
        raise Problem(413, f"a text has at most {service.limits.text:,} characters, not {len(request.text):,}")
    accepted, removed, added = (
        tuple(dict.fromkeys(map(_plain, side))) for side in (request.accepted, request.removed, request.added)
    )
    if both := {*accepted, *added} & {*removed}:
        raise Problem(422, f"the label {min(both)!r} is removed, and accepted or added, in one correction")
    return Correction(
        text=_plain(request.text),
        user=caller.name or _plain(request.user or "") or "anonymous",
        model=model.name,
        version=_plain(request.version or model.version),
        accepted=accepted,
        removed=removed,
        added=added,
        document=None if request.document is None else _plain(request.document),
        key=None if key is None else _plain(key),
    )


def _plain(text: str) -> str:
    """A text that every database can store."""
    return readable(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


@router.get("/v1/corrections")
def corrections(
    service: ServiceOf,
    caller: CallerOf,
    user: Annotated[str | None, Query(max_length=200)] = None,
    after: Annotated[int, Query(ge=0, le=_LARGEST, description="id of the last correction of the page before")] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    newest: Annotated[bool, Query(description="the latest first")] = False,
) -> dict[str, Any]:
    """Corrections in the order in which they came; those that were undone have a time in ``undone``."""
    needs(caller, "correct")
    found = service.store.page(user=None if user is None else _plain(user), after=after, limit=limit, newest=newest)
    return {"corrections": found, "standing": service.store.count()}


@router.get("/v1/corrections/disagreements")
def disagreements(service: ServiceOf, caller: CallerOf) -> dict[str, Any]:
    """Texts with labels that people disagree on: who is for a label, and who is against it."""
    needs(caller, "correct")
    found = [one for one in verdicts(service.store.standing()) if one.disputed]
    return {"texts": [{"text": one.text, "document": one.document, "labels": one.disputed} for one in found]}


@router.get("/v1/corrections/export", response_class=StreamingResponse)
def export(service: ServiceOf, caller: CallerOf, disputed: bool = False) -> StreamingResponse:
    """All corrected texts as a corpus of JSON lines; texts that people disagree on are left out unless ``disputed``."""
    needs(caller, "correct")

    def lines() -> Iterator[bytes]:
        for one in verdicts(service.store.standing()):
            if disputed or not one.disputed:
                yield msgspec.json.encode({"id": one.document, "text": one.text, "labels": one.labels}) + b"\n"

    headers = {"Content-Disposition": 'attachment; filename="corrections.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


@router.get("/v1/corrections/{number}")
def correction(number: Annotated[int, Field(ge=1, le=_LARGEST)], service: ServiceOf, caller: CallerOf) -> dict[str, Any]:
    """One correction."""
    needs(caller, "correct")
    return service.store.get(number)


@router.delete("/v1/corrections/{number}")
def undo(number: Annotated[int, Field(ge=1, le=_LARGEST)], service: ServiceOf, caller: CallerOf) -> dict[str, Any]:
    """Undo a correction; it stays in the list, with the time and who undid it."""
    needs(caller, "correct")
    if caller.name and not caller.may("admin") and service.store.get(number)["user"] != caller.name:
        raise Problem(403, "only administrators undo the corrections of others")
    return service.store.undo(number, caller.name or "anonymous")
