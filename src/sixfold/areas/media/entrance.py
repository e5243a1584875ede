"""Whose key comes with a request of Area A: in the body, or in the bearer header."""

from __future__ import annotations

from starlette.requests import Request

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.web import auth, bodies
from sixfold.web.auth import Doors
from sixfold.web.bodies import Fields


async def enter(request: Request, doors: Doors, service: str) -> tuple[Principal, Fields]:
    """Whose key came, which may use `service`, and the other fields of the body.

    Raises `Unauthenticated`, `Forbidden` and `BadRequest`. A body that cannot be read carries no key: a wrong
    one in the header is told first.
    """
    try:
        given = await bodies.fields(request)
    except errors.BadRequest:
        header = auth.bearer_token(request)
        if header is not None:
            await doors.key(header)
        raise
    api_key = given.values.pop("api_key", None)
    principal = await doors.key(auth.bearer_token(request) if api_key is None else api_key)
    principal.require_service(service)
    return principal, given
