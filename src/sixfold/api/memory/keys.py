"""Whose memory a key opens, and how much of it."""

from __future__ import annotations

from starlette.requests import Request

from sixfold.core.memory.models import Caller
from sixfold.web.services import WebServices


async def caller_of(services: WebServices, request: Request) -> Caller:
    """The caller that a request's bearer header names."""
    return Caller.of(await services.doors.bearer(request))
