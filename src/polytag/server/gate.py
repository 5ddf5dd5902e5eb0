"""The outermost layer: who asks, how much, how long it took, and the headers of every answer."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any

from polytag.server.access import Caller
from polytag.server.problem import MEDIA_TYPE, Problem
from polytag.server.routes import hot_route
from polytag.server.service import Service

log = logging.getLogger(__name__)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFE = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]
_JSON = [(b"content-type", b"application/json"), *_SAFE]
_CLOSED = ("/v1", "/metrics", "/openapi.json")  # these need a token; probes and the page's own files do not


class Gate:
    """An ASGI application around another one."""

    def __init__(self, inner: Any, service: Service) -> None:
        """Keep both."""
        self.inner, self.service = inner, service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return
        start, path = time.perf_counter(), scope["path"]
        status = 500
        try:
            caller = self._admitted(scope, path)
            if path == hot_route.PATH and scope["method"] == "POST":
                limits = self.service.limits
                body = await hot_route.read_body(receive, limits.body, limits.time_s)
                answer = await hot_route.predict(self.service, body)
                status = 200
                await _send(send, 200, _JSON, answer)
            else:
                status = await self._passed_on(scope, receive, send, caller)
        except Problem as problem:
            status = problem.status
            more = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
            await _send(send, status, [(b"content-type", MEDIA_TYPE.encode()), *more, *_SAFE], problem.body())
        except Exception:
            log.exception("%s %s failed", scope["method"], _route(scope, path))  # the text of a request is not logged
            with contextlib.suppress(Exception):  # the answer may have begun
                await _send(send, 500, [(b"content-type", MEDIA_TYPE.encode()), *_SAFE], Problem(500, "an internal error").body())
        finally:
            self.service.telemetry.count(_route(scope, path), status, time.perf_counter() - start)

    def _admitted(self, scope: Any, path: str) -> Caller:
        """Who asks; a foreign page, a foreign host name or a missing token is refused."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if self.service.hosts is not None and host.rsplit(":", 1)[0].lower() not in self.service.hosts:
            raise Problem(421, "this service does not answer under this host name; start it with --host")
        origin = headers.get(b"origin")
        if origin is not None and scope["method"] not in ("GET", "HEAD") and origin.split(b"//")[-1] != headers.get(b"host"):
            raise Problem(403, "requests from pages of another origin are refused")
        if not path.startswith(_CLOSED):
            return Caller(role="read")
        authorization = headers.get(b"authorization")
        return self.service.tokens.caller(None if authorization is None else authorization.decode("latin-1"), self.service.limits)

    async def _passed_on(self, scope: Any, receive: Any, send: Any, caller: Caller) -> int:
        """Let the application answer, with safe headers added and the body bounded."""
        limits, status = self.service.limits, 500
        streamed = scope["path"] == "/v1/jobs"  # its route writes the body to disk piece by piece
        body = None if streamed else await hot_route.read_body(receive, limits.body, limits.time_s)

        async def received() -> Any:
            nonlocal body
            if body is None:
                return await receive()  # the next news is that the client left
            message, body = {"type": "http.request", "body": body, "more_body": False}, None
            return message

        async def headed(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_SAFE]
            await send(message)

        scope["polytag.caller"] = caller
        await self.inner(scope, received, headed)
        return status


def _route(scope: Any, path: str) -> str:
    """The route's pattern, which has few values, instead of the path, which may have any."""
    if path == hot_route.PATH:
        return path
    return str(getattr(scope.get("route"), "path", "other"))


async def _send(send: Any, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
