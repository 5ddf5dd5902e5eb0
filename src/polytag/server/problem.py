"""Errors as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """A request that cannot be answered: the status, one line that says why, and headers such as Retry-After."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        """Keep what the answer needs."""
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})

    def body(self) -> bytes:
        """The answer's body."""
        title = HTTPStatus(self.status).phrase
        return msgspec.json.encode({"type": "about:blank", "title": title, "status": self.status, "detail": self.detail})

    def response(self) -> Response:
        """The answer."""
        return Response(self.body(), self.status, self.headers, MEDIA_TYPE)


def busy(seconds: float) -> Problem:
    """The queue is full; the client may come back after some seconds."""
    return Problem(503, "too many requests are waiting; try again later", {"Retry-After": str(max(1, round(seconds)))})


def readable(text: str) -> str:
    """A text that can be encoded as UTF-8: half a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
