"""What a failed request has read is freed when it ends."""

from __future__ import annotations

import weakref

import httpx2
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts.rights import PUBLIC
from sixfold.web import responses
from sixfold.web.app import WebApp
from sixfold.web.metrics import Metrics
from sixfold.web.routing import ApiGroup, RouteEntry


class Content:
    """Something large that a request has read."""


async def test_content_of_a_failed_request_is_freed(without_gc: None) -> None:
    contents: list[weakref.ref[Content]] = []

    async def fail(_request: Request) -> Response:
        content = Content()
        contents.append(weakref.ref(content))
        raise errors.BadRequest("no")

    route = RouteEntry("/fail", {"GET": fail}, access=PUBLIC)
    app = WebApp((ApiGroup("a", responses.error_response, (route,)),), Metrics())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://x") as client:
        assert (await client.get("/fail")).status_code == 400
    assert [content() for content in contents] == [None]
