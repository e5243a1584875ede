"""Whose memory a key opens, and how much of it."""

from __future__ import annotations

from starlette.requests import Request

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.memory.model import Caller
from sixfold.web.services import Services


async def caller_of(services: Services, request: Request) -> Caller:
    """Whoever sends a request with the bearer header."""
    return of(await services.doors.bearer(request))


def of(principal: Principal) -> Caller:
    """A key's holder as the memory knows him; raises `Forbidden` for a key of other services."""
    if principal.scope.services:
        raise errors.Forbidden("This key may not use the memory")
    return Caller(
        account_id=principal.account_id,
        name=principal.key_id or principal.email,
        collections=principal.scope.collections,
        read_only=principal.scope.read_only,
    )
