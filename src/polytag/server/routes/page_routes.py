"""Routes that the page needs: texts of files, errors, promises, the label map, what to label next."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request

from polytag.server.routes.dependencies import ServiceOf
from polytag.server.uploaded_file import texts_of_file

router = APIRouter()
_FILE = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string"}}}}}


@router.post("/v1/extract", openapi_extra=_FILE)
async def extract(
    request: Request, service: ServiceOf, kind: Literal["txt", "csv", "tsv", "jsonl", "docx", "pdf"] = "txt"
) -> dict[str, Any]:
    """The texts of a file, which is the body of the request."""
    from starlette.concurrency import run_in_threadpool

    body = await request.body()
    return {"documents": await run_in_threadpool(texts_of_file, body, kind, service.limits)}


@router.get("/v1/models/{name}/errors")
def errors(
    name: str,
    service: ServiceOf,
    label: Annotated[str | None, Query(description="only errors about this label")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
) -> dict[str, Any]:
    """Documents of the test file with missed or wrong labels, most errors first."""
    model = service.shelf.model(name)
    return {"model": model.name, "version": model.version, **service.evaluation.errors(model, label, limit)}


@router.get("/v1/models/{name}/promise")
def promise(name: str, service: ServiceOf, goal: Annotated[str, Query(max_length=100, examples=["recall=.9"])]) -> dict[str, Any]:
    """The threshold that keeps a promise such as ``recall=.9``, from the documents of the test file."""
    model = service.shelf.model(name)
    return {"model": model.name, "version": model.version, **service.evaluation.promise(model, goal)}


@router.get("/v1/models/{name}/map")
def label_map(name: str, service: ServiceOf) -> dict[str, Any]:
    """Labels as points in the plane, similar ones near each other."""
    model = service.shelf.model(name)
    return {"model": model.name, "version": model.version, **service.evaluation.label_map(model)}


@router.get("/v1/next")
def label_next(service: ServiceOf, model: str | None = None, limit: Annotated[int, Query(ge=1, le=200)] = 20) -> dict[str, Any]:
    """Unlabelled texts of the pool that are most useful to label next."""
    hosted = service.shelf.model(model)
    texts = service.queue.next(hosted, service.store.texts(), limit)
    return {"model": hosted.name, "version": hosted.version, "texts": texts}
