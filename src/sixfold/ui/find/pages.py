"""`/find`: the search page for the whole site, and its results as JSON for the script."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import rights
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.find.search import MAX_QUERY_CHARS, FindSearch
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices


class FindPages:
    """The search page, which works without JavaScript, and its results as JSON."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._search = FindSearch(services)
        self._pages = pages

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show the form and the results for `q`."""
        query = _query(request)
        groups = await self._search.find(user, query)
        return self._pages.render("find/page.html", user.session, query=query, groups=groups)

    async def results(self, request: Request, user: PageUser) -> Response:
        """Return the results for `q` by kind, for the palette."""
        query = _query(request)
        groups = await self._search.find(user, query)
        return responses.json({"query": query, "groups": [group.document for group in groups]})


def _query(request: Request) -> str:
    return requests.query_text(request, "q", MAX_QUERY_CHARS).strip()


def page_routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    show = auth.page(FindPages(services, pages).show)
    return (RouteEntry("/find", {"GET": show}, access=rights.RUN_MEMORY_READ),)


def script_routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    results = auth.script(FindPages(services, pages).results)
    return (RouteEntry("/pages/find", {"GET": results}, access=rights.RUN_MEMORY_READ),)
