"""Who may do what: tokens with roles, hashed at rest, and a rate limit for each."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from polytag.errors import ConfigError, file_error, suggestion
from polytag.server.limits import Limits
from polytag.server.problem import Problem
from polytag.storage.atomic_text import replace_text

ROLES = ("read", "correct", "admin")  # each may do what those before it may
_CHECK_S = 2.0  # how often the file of tokens is looked at


class Caller(NamedTuple):
    """Who sent a request; without tokens everybody is an administrator without a name."""

    name: str = ""
    role: str = "admin"

    def may(self, role: str) -> bool:
        """Whether the caller's role includes another one."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass
class Bucket:
    """Requests that a caller may send now; it fills up again with time."""

    left: float
    since: float = field(default_factory=time.monotonic)

    def taken(self, rate: float, burst: int) -> float:
        """Take one request; returns the seconds to wait, 0 if it is allowed."""
        now = time.monotonic()
        self.left = min(float(burst), self.left + (now - self.since) * rate)
        self.since = now
        if self.left < 1:
            return (1 - self.left) / rate
        self.left -= 1
        return 0.0


class Tokens:
    """The tokens of a service; without a file everybody may do everything."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the file; it is read again when it changes, so that a token can be added or removed at any time."""
        self.path = path
        self._callers: dict[str, Caller] = {}
        self._seen, self._checked = (0, 0), 0.0
        self._buckets: dict[str, Bucket] = {}
        if path is not None:
            self._refresh()

    def caller(self, authorization: str | None, limits: Limits) -> Caller:
        """Who sent a request, within the rate that is allowed."""
        found = Caller()
        if self.path is not None:
            if time.monotonic() - self._checked > _CHECK_S:
                self._refresh()
            scheme, _, token = (authorization or "").partition(" ")
            known = self._callers.get(token_hash(token.strip())) if scheme.lower() == "bearer" else None
            if known is None:
                raise Problem(401, "this needs a token: send Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
            found = known
        if limits.rate:
            bucket = self._buckets.setdefault(found.name, Bucket(float(limits.burst)))
            wait = bucket.taken(limits.rate, limits.burst)
            if wait:
                raise Problem(429, "too many requests with this token", {"Retry-After": str(max(1, round(wait)))})
        return found

    def _refresh(self) -> None:
        assert self.path is not None
        self._checked = time.monotonic()
        try:
            state = self.path.stat()
            if (state.st_mtime_ns, state.st_size) == self._seen:
                return
            rows = read_tokens(self.path)
        except OSError as error:
            raise file_error(self.path, error) from None
        self._seen = (state.st_mtime_ns, state.st_size)
        self._callers = {row["sha256"]: Caller(row["name"], row["role"]) for row in rows}


def token_hash(token: str) -> str:
    """What is stored of a token; it is random and long, so that a plain hash cannot be reversed."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def read_tokens(path: Path) -> list[dict[str, str]]:
    """The rows of a file of tokens: JSON lines with name, role and hash."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line) if line.strip() else None
            if row is not None and not (set(row) >= {"name", "role", "sha256"} and row["role"] in ROLES and row["name"]):
                raise ValueError
        except (ValueError, TypeError):
            raise ConfigError(f"{path}, line {number}: not a token; make one with `polytag token add`") from None
        if row is not None:
            rows.append(row)
    return rows


def add_token(path: Path, name: str, role: str) -> str:
    """Add a token to a file, which only its owner can read, and return it; only its hash is kept."""
    if role not in ROLES:
        raise ConfigError(f"there is no role {role!r}; known: {', '.join(ROLES)}")
    rows = read_tokens(path) if path.exists() else []
    if not name.strip() or any(row["name"] == name for row in rows):
        raise ConfigError(f"{path}: the name {name!r} is empty or has a token; remove that one first")
    token = f"pt_{secrets.token_urlsafe(32)}"
    _write(path, [*rows, {"name": name, "role": role, "sha256": token_hash(token)}])
    return token


def remove_token(path: Path, name: str) -> None:
    """Remove the token with a name."""
    rows = read_tokens(path)
    left = [row for row in rows if row["name"] != name]
    if len(left) == len(rows):
        raise ConfigError(f"{path}: nobody has the name {name!r}; {suggestion(name, [row['name'] for row in rows])}")
    _write(path, left)


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    replace_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    path.chmod(0o600)
