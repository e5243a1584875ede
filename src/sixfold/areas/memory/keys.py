"""Whose memory a key opens, and how much of it."""

from __future__ import annotations

from starlette.requests import Request

from sixfold.core.memory.model import Caller
from sixfold.web.services import Services


async def caller_of(services: Services, request: Request) -> Caller:
    """Whoever sends a request with the bearer header."""
    return Caller.of(await services.doors.bearer(request))
