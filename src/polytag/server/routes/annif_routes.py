"""Annif's REST API, so that its clients work unchanged: every model is a project."""

from __future__ import annotations

import asyncio
import datetime
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field, ValidationError

from polytag.server.corrections.correction_record import Correction
from polytag.server.hosting.hosted_model import HostedModel, Want
from polytag.server.hosting.messages import TextPrediction, encode
from polytag.server.problem import Problem, readable
from polytag.server.routes.dependencies import CallerOf, ServiceOf
from polytag.server.routes.hot_route import check_texts
from polytag.server.service import Service
from polytag.storage.artefact import polytag_version

router = APIRouter(prefix="/v1")
_BATCH = 32  # documents of a batch, as in Annif
_LONGEST = 10_000  # suggestions of a document
Limit = Annotated[int, Query(ge=1, le=_LONGEST)]
Threshold = Annotated[float, Query(ge=0, le=1)]


class SuggestForm(BaseModel):
    """A text to find subjects for."""

    text: str
    limit: int = Field(10, ge=1, le=_LONGEST)
    threshold: float = Field(0.0, ge=0, le=1)
    language: str = ""


_CONTENT = {"application/x-www-form-urlencoded": {"schema": SuggestForm.model_json_schema()}}
_FORM = {"requestBody": {"required": True, "content": _CONTENT}}


class BatchDocument(BaseModel):
    """A text, with an id that comes back."""

    text: str
    document_id: str | None = None
    metadata: dict[str, Any] | None = None


class Batch(BaseModel):
    """Texts to find subjects for."""

    documents: list[BatchDocument] = Field(max_length=_BATCH)


class Subject(BaseModel):
    """A label by its uri, or by its name."""

    uri: str | None = None
    label: str | None = None


class Lesson(BaseModel):
    """A text with the subjects that it has."""

    text: str = Field(min_length=1)
    subjects: list[Subject] = Field(max_length=1_000)
    metadata: dict[str, Any] | None = None


@router.get("/")
async def about() -> dict[str, str]:
    """Title and version."""
    return {"title": "Polytag", "version": polytag_version()}


@router.get("/vocabs")
async def vocabs(service: ServiceOf) -> dict[str, Any]:
    """The label sets, one per model."""
    return {"vocabs": [_vocab(place.live.model) for place in service.shelf]}


@router.get("/projects")
async def projects(service: ServiceOf) -> dict[str, Any]:
    """The models."""
    return {"projects": [_project(place.live.model) for place in service.shelf]}


@router.get("/projects/{project}")
async def project(project: str, service: ServiceOf) -> dict[str, Any]:
    """A model."""
    return _project(service.shelf.model(project))


@router.post("/projects/{project}/suggest", openapi_extra=_FORM, response_model=dict[str, Any])
async def suggest(project: str, service: ServiceOf, request: Request) -> Response:
    """The best labels of a text, which is sent as a form."""
    try:
        fields = parse_qs((await request.body()).decode("utf-8"), keep_blank_values=True, strict_parsing=True, max_num_fields=20)
        form = SuggestForm.model_validate({name: values[-1] for name, values in fields.items()})
    except ValidationError as error:
        first = error.errors()[0]
        raise Problem(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except ValueError:
        raise Problem(400, "the body is not a form; send text=...&limit=10") from None
    (results,) = await _suggested(service, project, [form.text], form.limit, form.threshold)
    return Response(encode({"results": results}), media_type="application/json")


@router.post("/projects/{project}/suggest-batch")
async def suggest_batch(
    project: str, batch: Batch, service: ServiceOf, limit: Limit = 10, threshold: Threshold = 0.0, language: str = ""
) -> list[dict[str, Any]]:
    """The best labels of each of several texts."""
    texts = [document.text for document in batch.documents]
    found = await _suggested(service, project, texts, limit, threshold)
    rows = zip(batch.documents, found, strict=True)
    return [{"results": results, "document_id": document.document_id} for document, results in rows]


@router.post("/projects/{project}/learn", status_code=204)
async def learn(project: str, lessons: list[Lesson], service: ServiceOf, caller: CallerOf) -> Response:
    """Store texts with their subjects as corrections, which a model can learn from."""
    if not caller.may("correct"):
        raise Problem(403, "this needs the role 'correct'")
    model = service.shelf.model(project)
    check_texts([lesson.text for lesson in lessons], service.limits)
    for lesson in lessons:
        labels = tuple(dict.fromkeys(_label(model, subject) for subject in lesson.subjects))
        text = readable(lesson.text).replace("\0", "\N{REPLACEMENT CHARACTER}")
        correction = Correction(text, caller.name or "annif", model.name, model.version, accepted=labels)
        await asyncio.to_thread(service.store.add, correction)
    return Response(status_code=204)


def _label(model: HostedModel, subject: Subject) -> str:
    labels = model.classifier.labels
    for known in (subject.uri, subject.label):
        number = None if known is None else labels.find(known.removeprefix("<").removesuffix(">"))
        if number is not None:
            return labels[number]
    raise Problem(400, f"there is no subject {subject.uri or subject.label!r} in the vocabulary of {model.name!r}")


async def _suggested(service: Service, name: str, texts: list[str], limit: int, threshold: float) -> list[list[dict[str, Any]]]:
    check_texts(texts, service.limits)
    queue = service.shelf.place(name).live
    if not texts:
        return []
    service.telemetry.texts[name] += len(texts)
    found = await queue.submit(texts, Want(top=limit))
    return [_subjects(queue.model, one, threshold) for one in found]


def _subjects(model: HostedModel, one: TextPrediction, threshold: float) -> list[dict[str, Any]]:
    ids, rows = model.classifier.labels.ids, zip(one.labels, one.scores, strict=True)
    kept = [(name, score) for name, score in rows if score >= threshold and score > 0]
    return [{"uri": ids.get(name, name), "label": name, "notation": None, "score": score} for name, score in kept]


def _project(model: HostedModel) -> dict[str, Any]:
    time = datetime.datetime.fromtimestamp(model.loaded, datetime.UTC).isoformat()
    return {
        "project_id": model.name,
        "name": model.name,
        "language": "und",
        "backend": {"backend_id": model.classifier.recipe.model},
        "vocab": _vocab(model),
        "vocab_language": "und",
        "is_trained": True,
        "modification_time": time,
    }


def _vocab(model: HostedModel) -> dict[str, Any]:
    return {"vocab_id": model.name, "languages": ["und"], "size": len(model.classifier.labels), "loaded": True}
