"""What routes get from the application: the service, and who asks."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from polytag.server.access import Caller
from polytag.server.problem import Problem
from polytag.server.service import Service


def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def _caller(request: Request) -> Caller:
    found: Caller = request.scope["polytag.caller"]
    return found


ServiceOf = Annotated[Service, Depends(_service)]
CallerOf = Annotated[Caller, Depends(_caller)]


def needs(caller: Caller, role: str) -> None:
    """Raise a Problem unless the caller has a role."""
    if not caller.may(role):
        raise Problem(403, f"this needs the role {role!r}, and the token has {caller.role!r}")
