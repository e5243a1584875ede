"""The routes of the documentation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.ui.docs import renderer
from sixfold.ui.docs import repository as docs_repository
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.openapi import OpenApiDocument
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_IMMUTABLE = {"Cache-Control": "public, max-age=31536000, immutable"}


class DocsPages:
    """The documentation pages, and the operations of each API from its OpenAPI document."""

    def __init__(
        self, services: WebServices, pages: PageTemplates, documents: Mapping[str, OpenApiDocument]
    ) -> None:
        self._services = services
        self._pages = pages
        self._documents = documents
        self._repository = docs_repository.installed()

    async def show_contents(self, request: Request) -> Response:
        """Show the contents: all pages and API operations with a description."""
        return self._pages.render(
            "docs/contents.html",
            await self._services.sessions.admitted(request),
            documents=self._documents,
            # Reading all pages takes 0.1 s.
            groups=(await asyncio.to_thread(self._repository.snapshot)).groups(),
            anchor=docs_repository.anchor,
            url=renderer.url,
        )

    async def show_guide(self, request: Request) -> Response:
        session = await self._services.sessions.admitted(request)
        snapshot = await asyncio.to_thread(self._repository.snapshot)
        name = requests.path_value(request, "name")
        if name not in snapshot.guides:
            raise errors.NotFound
        previous, following = snapshot.neighbors(name)
        return self._pages.render(
            "docs/guide.html",
            session,
            guide=snapshot.guides[name],
            rendered=await asyncio.to_thread(snapshot.rendered, name),
            group=snapshot.group_of(name),
            anchor=docs_repository.anchor,
            previous=previous,
            following=following,
            url=renderer.url,
        )

    async def image(self, request: Request) -> Response:
        """Return an image; its URL contains a content hash, so it may be cached forever."""
        snapshot = await asyncio.to_thread(self._repository.snapshot)
        image = await asyncio.to_thread(snapshot.bytes_of, requests.path_value(request, "name"))
        if image is None:
            raise errors.NotFound
        return Response(image[0], 200, _IMMUTABLE, image[1])


def routes(
    services: WebServices, pages: PageTemplates, documents: Mapping[str, OpenApiDocument]
) -> tuple[RouteEntry, ...]:
    docs_pages = DocsPages(services, pages, documents)
    return (
        RouteEntry("/docs", {"GET": docs_pages.show_contents}, access=rights.PUBLIC),
        RouteEntry(
            "/docs/pictures/{name}", {"GET": docs_pages.image, "HEAD": docs_pages.image}, access=rights.PUBLIC
        ),
        RouteEntry("/docs/{name:path}", {"GET": docs_pages.show_guide}, access=rights.PUBLIC),
    )
