"""Who may do what: tokens with roles, hashed at rest, and a rate limit for each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from polytag.server.limits import Limits
from polytag.server.problem import Problem

ROLES = ("read", "correct", "admin")  # each may do what those before it may


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
    """The tokens of a service; none = everybody may do everything."""

    def __init__(self, callers: dict[str, Caller] | None = None) -> None:
        """Keep callers by the hash of their token."""
        self.callers = callers
        self._buckets: dict[str, Bucket] = {}

    def caller(self, authorization: str | None, limits: Limits) -> Caller:
        """Who sent a request, within the rate that is allowed."""
        if self.callers is None:
            return Caller()
        raise Problem(401, "this service needs a token", {"WWW-Authenticate": "Bearer"})
