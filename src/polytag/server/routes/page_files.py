"""The page's files, read once at the start: no path of a request reaches the file system."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from polytag.server.problem import Problem

_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}


class PageFile(NamedTuple):
    """A file of the page."""

    body: bytes
    media_type: str
    tag: str


class PageFiles:
    """All files of the page by their path, such as ``/app.js``; ``/`` is ``index.html``."""

    def __init__(self, folder: Path) -> None:
        """Read them."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
        self.files = {f"/{path.relative_to(folder).as_posix()}": _read(path) for path in paths}
        if "/index.html" in self.files:
            self.files["/"] = self.files["/index.html"]

    async def __call__(self, request: Request) -> Response:
        """Answer with a file; a client that has it already gets no body."""
        found = self.files.get(request.url.path)
        if found is None:
            raise Problem(404, "there is nothing at this address; /openapi.json lists the routes")
        headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.body, headers=headers, media_type=found.media_type)


def _read(path: Path) -> PageFile:
    body = path.read_bytes()
    known = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return PageFile(body, known, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
