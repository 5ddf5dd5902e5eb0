"""Puts the service together: routes, errors, static files, the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response

from polytag.errors import PolytagError, brief
from polytag.server.gate import Gate
from polytag.server.hosting.messages import PredictAnswer, PredictRequest
from polytag.server.problem import MEDIA_TYPE, Problem
from polytag.server.routes import (
    admin_routes,
    annif_routes,
    correction_routes,
    health_routes,
    hot_route,
    job_routes,
    model_routes,
    page_routes,
)
from polytag.server.routes.page_files import PageFiles
from polytag.server.service import Service
from polytag.storage.artefact import polytag_version

_REFS = "#/components/schemas/{name}"
_PROBLEM = {"type": "object", "properties": {key: {"type": "string"} for key in ("type", "title", "detail")}}


def create_app(service: Service) -> Gate:
    """The ASGI application."""
    app = FastAPI(title="Polytag", version=polytag_version(), lifespan=_lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    for routes in (health_routes, model_routes, page_routes, correction_routes, job_routes, annif_routes, admin_routes):
        app.include_router(routes.router)
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(PolytagError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _other)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    app.add_route("/{path:path}", PageFiles(service.page).__call__, methods=["GET", "HEAD"], include_in_schema=False)
    return Gate(app, service)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.service.close()


async def _problem(_: Request, error: Any) -> Response:
    found: Response = error.response()
    return found


async def _refused(_: Request, error: Exception) -> Response:
    return Problem(422, str(error)).response()


async def _invalid(_: Request, error: Any) -> Response:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    status = 400 if first["type"] == "json_invalid" else 422
    return Problem(status, f"{brief(where)}: {first['msg']}").response()


async def _other(_: Request, error: Any) -> Response:
    return Problem(error.status_code, str(error.detail), error.headers).response()


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the hot route, which FastAPI does not know."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, routes=app.routes)
        (request, answer), parts = msgspec.json.schema_components((PredictRequest, PredictAnswer), ref_template=_REFS)
        found["components"]["schemas"] |= {**parts, "Problem": _PROBLEM}
        found["paths"][hot_route.PATH] = {
            "post": {
                "summary": "Predict",
                "description": "The labels of texts.",
                "operationId": "predict",
                "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
                "responses": {"200": {"description": "the predictions", "content": {"application/json": {"schema": answer}}}},
            }
        }
        for operation in (method for path in found["paths"].values() for method in path.values()):
            problem = {"description": "a problem", "content": {MEDIA_TYPE: {"schema": {"$ref": _REFS.format(name="Problem")}}}}
            operation["responses"] = {**operation["responses"], "4XX": problem, "503": problem}
            operation["responses"].pop("422", None)
        app.openapi_schema = found
    return app.openapi_schema
