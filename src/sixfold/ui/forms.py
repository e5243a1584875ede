"""What a page's form sends."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

from sixfold import errors
from sixfold.web import bodies

_MAX_FIELDS = 50


async def read(request: Request) -> dict[str, str]:
    """The fields of a form; raises `UnsupportedMedia` or `BadRequest`."""
    if bodies.media_type(request) != "application/x-www-form-urlencoded":
        raise errors.UnsupportedMedia("This takes a form")
    try:
        text = (await request.body()).decode("utf-8")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"))
    except ValueError as error:
        raise errors.BadRequest("Invalid form body") from error
