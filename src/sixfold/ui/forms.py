"""What a page's form sends."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

from sixfold import errors
from sixfold.web import bodies
from sixfold.web.sessions import Session, Sessions

_MAX_FIELDS = 50


async def read(request: Request) -> dict[str, str]:
    """The fields of a form, none of an empty body; raises `UnsupportedMedia` or `BadRequest`."""
    raw = await request.body()
    if raw and bodies.media_type(request) != "application/x-www-form-urlencoded":
        raise errors.UnsupportedMedia("This takes a form")
    try:
        text = raw.decode("utf-8")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"))
    except ValueError as error:
        raise errors.BadRequest("Invalid form body") from error


async def signed(request: Request, sessions: Sessions) -> tuple[Session, dict[str, str]]:
    """The session and fields of a form from one of our pages; raises `Forbidden` and `Unauthenticated`."""
    session = await sessions.of(request)
    form = await read(request)
    sessions.guard(request, session, form.get("csrf"))
    if session is None:
        raise errors.Unauthenticated("Sign in first")
    return session, form
