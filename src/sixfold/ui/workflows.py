"""`/workflows`: the graphs that are typed APIs, each with its picture, its inputs and its verification."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.graphs.spaces import PATH
from sixfold.ui.guests import Guests
from sixfold.ui.pages import Pages
from sixfold.web import calls
from sixfold.web.routing import Route
from sixfold.web.services import Services


class Workflows:
    """The built-in spaces. An account's own stand in the catalogue."""

    def __init__(self, services: Services, pages: Pages, guests: Guests) -> None:
        self._spaces = services.workshop.spaces
        self._pages = pages
        self._guests = guests

    async def show(self, request: Request) -> Response:
        """All of them."""
        guest = await self._guests.of(request)
        session = guest.session if guest is not None else None
        return self._pages.render("workflows.html", session, spaces=self._spaces.values(), base=PATH)

    async def one(self, request: Request) -> Response:
        """One graph, to be looked at closely."""
        guest = await self._guests.of(request)
        session = guest.session if guest is not None else None
        slug = calls.path_value(request, "slug")
        if slug not in self._spaces:
            raise errors.NotFound(f"There is no space {slug[:100]}")
        return self._pages.render("workflow.html", session, space=self._spaces[slug], base=PATH)


def routes(services: Services, pages: Pages, guests: Guests) -> tuple[Route, ...]:
    """The list, and one of it."""
    if "workflows" not in services.settings.areas:
        return ()
    workflows = Workflows(services, pages, guests)
    return (
        Route("/workflows", {"GET": workflows.show}),
        Route("/workflows/{slug}", {"GET": workflows.one}),
    )
