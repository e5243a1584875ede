"""Parsing of HTML forms."""

from __future__ import annotations

import functools

from starlette.requests import Request

from sixfold import errors
from sixfold.web import bodies
from sixfold.web.sessions import SessionCookie, SessionCookies

_MAX_FIELDS = 50


async def read(request: Request) -> dict[str, str]:
    """Return the fields of a form; raises `UnsupportedMedia` or `BadRequest`."""
    raw = await request.body()
    if raw and bodies.media_type(request) != "application/x-www-form-urlencoded":
        raise errors.UnsupportedMedia("The content type must be application/x-www-form-urlencoded")
    decode = functools.partial(bodies.decode_urlencoded, max_fields=_MAX_FIELDS, keep_blank=True)
    return await bodies.parse(decode, raw)


async def read_with_session(
    request: Request, sessions: SessionCookies
) -> tuple[SessionCookie, dict[str, str]]:
    """Return session and fields after the CSRF check; raises `Forbidden` or `Unauthenticated`."""
    session = await sessions.of(request)
    form = await read(request)
    sessions.check_csrf(request, session, form.get("csrf"))
    if session is None:
        raise errors.Unauthenticated("Sign in first")
    return session, form
