"""What the dispatcher tells a handler about its request."""

from __future__ import annotations

from starlette.requests import Request


def request_id(request: Request) -> str:
    """The id that the answer carries in `X-Request-Id`."""
    return str(request.scope["sixfold.request_id"])


def path_value(request: Request, name: str) -> str:
    """A value of the path's template."""
    return str(request.scope["path_params"][name])
