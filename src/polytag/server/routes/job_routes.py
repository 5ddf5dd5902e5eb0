"""Routes of jobs: send a corpus, watch it, fetch the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse

from polytag.server.hosting.hosted_model import PLAIN, Want
from polytag.server.problem import Problem
from polytag.server.routes.dependencies import CallerOf, ServiceOf

router = APIRouter()
_CORPUS = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string"}}}}}


@router.post("/v1/jobs", status_code=202, openapi_extra=_CORPUS)
async def send(
    request: Request,
    service: ServiceOf,
    caller: CallerOf,
    format: Literal["jsonl", "csv", "tsv", "text", "fasttext"] = "jsonl",
    model: str | None = None,
    top: Annotated[int | None, Query(ge=1, le=100_000)] = None,
) -> dict[str, Any]:
    """Label a corpus, which is the body of the request, in the background."""
    job = service.jobs.open(service.shelf.model(model), format, PLAIN if top is None else Want(top=top), caller.name)
    try:
        size = 0
        with open(job.folder / "corpus", "wb") as out:
            async for chunk in _timed(request.stream(), service.limits.time_s):
                size += len(chunk)
                if size > service.limits.file:
                    raise Problem(413, f"a corpus has at most {service.limits.file:,} bytes; send it in parts")
                await run_in_threadpool(out.write, chunk)
    except BaseException:
        service.jobs.delete(job)
        raise
    service.jobs.start(job)
    return job.describe()


async def _timed(chunks: AsyncGenerator[bytes, None], seconds: float) -> AsyncIterator[bytes]:
    """The pieces of a body, each within a time."""
    while True:
        try:
            async with asyncio.timeout(seconds):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Problem(408, f"nothing of the corpus arrived for {seconds:g} seconds") from None
        yield chunk


@router.get("/v1/jobs/{number}")
def watch(number: str, service: ServiceOf, caller: CallerOf) -> dict[str, Any]:
    """How far a job is: its state (waiting, running, finished, failed, stopped), documents done, share of the file."""
    return service.jobs.get(number, caller.name).describe()


@router.get("/v1/jobs/{number}/result", response_class=FileResponse)
def result(number: str, service: ServiceOf, caller: CallerOf) -> FileResponse:
    """The predictions as JSON lines: id, labels, scores."""
    path = service.jobs.result(service.jobs.get(number, caller.name))
    return FileResponse(path, media_type="application/x-ndjson", filename="predictions.jsonl")


@router.delete("/v1/jobs/{number}", status_code=204, response_model=None)
def stop(number: str, service: ServiceOf, caller: CallerOf) -> None:
    """Stop a job and delete its corpus and its result."""
    service.jobs.delete(service.jobs.get(number, caller.name))
