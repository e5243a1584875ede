"""The routes of the documentation."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.ui.docs import renderer
from sixfold.ui.docs import repository as docs_repository
from sixfold.ui.docs.repository import DocsRepository
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.openapi import OpenApiDocument
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}


class DocsPages:
    """The documentation pages, and the operations of each API from its OpenAPI document."""

    def __init__(
        self, services: WebServices, pages: PageTemplates, documents: Mapping[str, OpenApiDocument]
    ) -> None:
        self._services = services
        self._pages = pages
        self._documents = documents
        self._shelf = DocsRepository()

    async def contents(self, request: Request) -> Response:
        """Show the contents: all pages and API operations with a description."""
        return self._pages.render(
            "docs/contents.html",
            await self._services.sessions.admitted(request),
            documents=self._documents,
            sections=self._shelf.edition().sections(),
            titles=docs_repository.SECTIONS,
            url=renderer.url,
        )

    async def one(self, request: Request) -> Response:
        """Show a page."""
        session, edition = await self._services.sessions.admitted(request), self._shelf.edition()
        name = requests.path_value(request, "name")
        if name not in edition.guides:
            raise errors.NotFound
        section = posixpath.dirname(name)
        before, after = edition.neighbours(name)
        return self._pages.render(
            "docs/guide.html",
            session,
            guide=edition.guides[name],
            laid=edition.laid(name),
            section=section,
            titles=docs_repository.SECTIONS,
            before=before,
            after=after,
            url=renderer.url,
        )

    async def picture(self, request: Request) -> Response:
        """Return an image; its URL has a content hash, so it is cached forever."""
        found = self._shelf.edition().bytes_of(requests.path_value(request, "name"))
        if found is None:
            raise errors.NotFound
        return Response(found[0], 200, _KEPT, found[1])


def routes(
    services: WebServices, pages: PageTemplates, documents: Mapping[str, OpenApiDocument]
) -> tuple[RouteEntry, ...]:
    """Return the routes of `/docs`."""
    reading = DocsPages(services, pages, documents)
    return (
        RouteEntry("/docs", {"GET": reading.contents}, access=rights.PUBLIC),
        RouteEntry(
            "/docs/pictures/{name}", {"GET": reading.picture, "HEAD": reading.picture}, access=rights.PUBLIC
        ),
        RouteEntry("/docs/{name:path}", {"GET": reading.one}, access=rights.PUBLIC),
    )
