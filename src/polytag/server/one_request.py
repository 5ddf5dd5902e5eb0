"""Answers one request without a port, as ``polytag serve --get`` does."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote, urlsplit


def get(app: Any, path: str) -> tuple[int, bytes]:
    """The status and the body of ``GET path``."""
    parts = urlsplit(path)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode("ascii", "replace"),
        "query_string": parts.query.encode("ascii", "replace"),
        "root_path": "",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 0),
        "server": ("localhost", 80),
        "state": {},
    }
    status, body = 500, b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    asyncio.run(app(scope, receive, send))
    return status, body
