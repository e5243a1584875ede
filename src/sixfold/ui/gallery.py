"""`/gallery` and `/characters`: public posts and characters of all accounts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import rights
from sixfold.core.gallery import Gallery
from sixfold.core.media.media import MEDIA_PATH
from sixfold.ui.templating import PageTemplates
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_PAGE = 30
_MAX_TEXT = 100


class GalleryPages:
    """The public lists, newest first."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages
        self._gallery = Gallery(services.database, services.media)

    async def posts(self, request: Request) -> Response:
        """Show the posts of all accounts, optionally with one tag."""
        session = await self._services.sessions.admitted(request)
        tag = request.query_params.get("tag", "")[:_MAX_TEXT]
        page = await self._gallery.posts(_PAGE, _cursor(request), tag)
        return self._pages.render("gallery.html", session, page=page, tag=tag, media=MEDIA_PATH)

    async def characters(self, request: Request) -> Response:
        """Show the characters of all accounts."""
        session = await self._services.sessions.admitted(request)
        page = await self._gallery.characters(_PAGE, _cursor(request))
        return self._pages.render("characters.html", session, page=page, media=MEDIA_PATH)


def _cursor(request: Request) -> str | None:
    return request.query_params.get("cursor", "")[:_MAX_TEXT] or None


def routes(services: WebServices, pages: PageTemplates) -> tuple[RouteEntry, ...]:
    """Return the routes of both lists."""
    gallery = GalleryPages(services, pages)
    return (
        RouteEntry("/gallery", {"GET": gallery.posts}, access=rights.PUBLIC),
        RouteEntry("/characters", {"GET": gallery.characters}, access=rights.PUBLIC),
    )
