"""``POST /v1/predict``: plain ASGI and msgspec, because most requests are of this kind."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from polytag.errors import PolytagError
from polytag.server.hosting.hosted_model import PLAIN, HostedModel, Want
from polytag.server.hosting.messages import PredictAnswer, PredictRequest, decode_predict, encode
from polytag.server.limits import Limits
from polytag.server.problem import Problem
from polytag.server.service import Service

PATH = "/v1/predict"


async def read_body(receive: Any, most: int, seconds: float) -> bytes:
    """The body of a request, up to a size and within a time."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        try:
            async with asyncio.timeout(seconds):
                parts, size = [body], len(body)
                while message.get("more_body") and size <= most:
                    message = await receive()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                body = b"".join(parts)
        except TimeoutError:
            raise Problem(408, f"the request did not arrive within {seconds:g} seconds") from None
    if message["type"] == "http.disconnect":
        raise Problem(400, "the client left before the request was complete")
    if len(body) > most:
        raise Problem(413, f"the request is larger than {most:,} bytes; send it in parts, or as a job")
    return body


async def predict(service: Service, body: bytes) -> bytes:
    """The answer to a request."""
    request = _decoded(body)
    check_texts(request.texts, service.limits)
    queue = service.shelf.place(request.model).live
    want = _want(request, queue.model)
    if not request.texts:
        return encode(PredictAnswer(queue.model.name, queue.model.version, []))
    found = await queue.submit(request.texts, want)
    service.telemetry.texts[queue.model.name] += len(found)
    service.drift(queue.model).see(request.texts)
    return encode(PredictAnswer(queue.model.name, queue.model.version, found))


def _decoded(body: bytes) -> PredictRequest:
    try:
        return decode_predict(body)
    except msgspec.ValidationError as error:
        raise Problem(422, f'{error}; send {{"texts": ["..."]}}') from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None


def check_texts(texts: list[str], limits: Limits) -> None:
    """Raise a Problem for too many texts, or one that is too long."""
    if len(texts) > limits.texts:
        raise Problem(413, f"a request has at most {limits.texts} texts, not {len(texts)}; send a job for more")
    for text in texts:
        if len(text) > limits.text:
            raise Problem(413, f"a text has at most {limits.text:,} characters, not {len(text):,}")


def _want(request: PredictRequest, model: HostedModel) -> Want:
    """What is wanted, checked for this model."""
    if request.top is None and request.ask is None and request.floor is None:
        return PLAIN
    try:
        ask = None if request.ask is None else model.classifier.asking(request.ask)
    except PolytagError as error:
        raise Problem(422, str(error)) from None
    return Want(request.top, ask, request.floor)
