"""Authentication for the Media API, by the field `api_key` of the body or by a bearer token."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from starlette.requests import Request

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.web import auth, bodies
from sixfold.web.auth import Authenticator
from sixfold.web.bodies import BodyFields


class AuthenticatedBody(NamedTuple):
    """The body of an authenticated request, as received, and its fields without the key."""

    principal: Principal
    fields: BodyFields
    body: bytes


async def enter(request: Request, doors: Authenticator) -> AuthenticatedBody:
    """Authenticate a request, then decode its body.

    Raises `Unauthenticated`, `Forbidden`, `BadRequest` and `TooLarge`. Until the key is verified, nothing
    else of the body is decoded. An unreadable body counts as one without a key, so an invalid key in the
    header is reported first.
    """
    token = auth.bearer_token(request)
    principal = await _known(doors, token)
    if principal is None:
        with doors.unauthenticated(request) as receive:
            request = Request(request.scope, receive)
            principal = await _by_body(request, doors, token)
    elif (api_key := await _key(request)) is not None and api_key != token:
        principal = await doors.key(api_key)
    fields = await bodies.fields(request)
    fields.values.pop("api_key", None)
    return AuthenticatedBody(principal, fields, await request.body())


async def _known(doors: Authenticator, token: str | None) -> Principal | None:
    if token is None:
        return None
    try:
        return await doors.key(token)
    except errors.Unauthenticated:
        return None


async def _by_body(request: Request, doors: Authenticator, token: str | None) -> Principal:
    try:
        api_key = await _key(request)
    except errors.BadRequest as error:
        if token is not None:
            raise errors.Unauthenticated from error
        raise
    # The contract has one error for a key that is missing or unknown.
    return await doors.key("" if api_key is None else api_key)


async def _key(request: Request) -> Any:
    raw = await request.body()
    match bodies.form_type(request, raw):
        case "multipart/form-data":
            find = functools.partial(bodies.key_in_multipart, content_type=request.headers["content-type"])
            return await bodies.parse(find, raw)
        case "application/x-www-form-urlencoded":
            return await bodies.parse(bodies.key_in_urlencoded, raw)
        case _:
            return await bodies.parse(bodies.key_in_json, raw)
