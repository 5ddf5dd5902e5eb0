"""Routes for probes and counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from polytag.server.routes.dependencies import ServiceOf
from polytag.server.service import Service
from polytag.server.telemetry import MEDIA_TYPE, block, escaped

router = APIRouter()


@router.get("/health")
async def health() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(service: ServiceOf) -> dict[str, Any]:
    """All models are loaded and warm."""
    return {"status": "ready", "models": {place.live.model.name: place.live.model.version for place in service.shelf}}


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(service: ServiceOf) -> PlainTextResponse:
    """Counters in the text format of Prometheus."""
    lines = [*service.telemetry.lines(), *_models(service)]
    return PlainTextResponse("\n".join(lines) + "\n", media_type=MEDIA_TYPE)


def _models(service: Service) -> Iterator[str]:
    places = {f'model="{escaped(place.live.model.name)}"': place for place in service.shelf}
    yield from block("polytag_queue_texts", "gauge", "texts that wait or are being scored", {
        key: place.live.texts for key, place in places.items()
    })  # fmt: skip
    yield from block("polytag_seconds_per_text", "gauge", "recent mean time to score a text", {
        key: place.live.seconds for key, place in places.items()
    })  # fmt: skip
    yield from block("polytag_swaps_total", "counter", "versions that were put in service", {
        key: place.swaps for key, place in places.items()
    })  # fmt: skip
    drifts = {key: service.drift(place.live.model).report() for key, place in places.items()}
    for name, text in (
        ("scores", "stability index of sureness against training; above 0.25 = drifted"),
        ("words", "stability index of word frequencies against training; above 0.25 = drifted"),
        ("unknown_words", "share of words that were not in training"),
    ):
        found = {key: report[name] for key, report in drifts.items() if report[name] is not None}
        yield from block(f"polytag_drift_{name}", "gauge", text, found)
    yield from block("polytag_drifted", "gauge", "1 = texts differ from those of training; a promise no longer stands", {
        key: int(report["drifted"]) for key, report in drifts.items()
    })  # fmt: skip
