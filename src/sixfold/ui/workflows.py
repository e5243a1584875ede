"""`/workflows`: list, show, run and import workflows."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from typing import Protocol

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import rights
from sixfold.core.workflows.workflows import PATH, Workflow
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.catalog import example_outputs as specimens
from sixfold.ui.catalog.pages import fields_of, price_shown
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

_STYLE = re.compile("<style>.*?</style>", re.DOTALL)
_MAX_NAME = 200
_PICTURE = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
}


class WorkflowCards(Protocol):
    """The workflow operations that the pages need; `account_id` is None for anonymous users."""

    async def listed(self, request: Request, account_id: str | None) -> tuple[list[Workflow], str | None]:
        """Return a page of workflows and the cursor of the next page."""
        ...

    async def find(self, slug: str, account_id: str | None) -> Workflow:
        """Return a workflow; raises `NotFound`."""
        ...

    def drawn(self, space: Workflow) -> str:
        """Return the graph as SVG."""
        ...

    def sketched(self, space: Workflow) -> str:
        """Return a small SVG of the graph, styled by the page."""
        ...

    async def bring(self, account_id: str, content: bytes, name: str) -> Workflow:
        """Import a workflow from a JSON file or an image's metadata; raises `BadRequest`."""
        ...


class WorkflowPages:
    """The pages for built-in workflows and those of the signed-in user."""

    def __init__(
        self, services: WebServices, pages: PageTemplates, auth: PageAuth, spaces: WorkflowCards
    ) -> None:
        self._services = services
        self._pages = pages
        self._auth = auth
        self._spaces = spaces
        self.part = auth.script(self.bring)
        self.most_bytes = services.settings.inline_body_bytes

    async def show(self, request: Request) -> Response:
        """List the workflows."""
        user = await self._auth.user(request)
        await self._services.workflows.load()
        found, following = await self._spaces.listed(request, _account(user))
        built_in = self._services.workflows.spaces
        return self._pages.render(
            "workflows.html",
            _session(user),
            own=[space for space in found if space.slug not in built_in],
            spaces=[space for space in found if space.slug in built_in],
            sketches=await self._sketches(found),
            next_cursor=following,
            user=user,
        )

    async def one(self, request: Request) -> Response:
        """Show one workflow with its graph and form."""
        user = await self._auth.user(request)
        space = await self._found(request, user)
        await self._services.workflows.load()
        model = (
            self._services.catalog[space.model]
            if user is None
            else await self._services.predictions.find(space.model, user.account_id)
        )
        nodes: dict[str, list[str]] = defaultdict(list)
        for each in space.inputs or ():
            nodes[each.node_id].append(each.name)
        return self._pages.render(
            "workflow.html",
            _session(user),
            space=space,
            own=space.slug not in self._services.workflows.spaces,
            drawing=Markup(_STYLE.sub("", self._spaces.drawn(space), count=1)),  # noqa: S704 - escaped by `draw`
            nodes=nodes,
            model=model,
            fields=fields_of(model, {}),
            price=price_shown(self._services.predictions, model),
            here=f"/workflows/{space.slug}",
            specimen=specimens.known().get(space.model),
            hue="workflows",
            user=user,
            base=PATH,
        )

    async def _sketches(self, found: list[Workflow]) -> dict[str, Markup]:
        sketches: dict[str, Markup] = {}
        for space in found:
            sketches[space.slug] = Markup(self._spaces.sketched(space))  # noqa: S704 - escaped by `sketch`
            await asyncio.sleep(0)
        return sketches

    async def picture(self, request: Request) -> Response:
        """Return the SVG of a workflow's graph, for a card."""
        space = await self._found(request, await self._auth.user(request))
        await self._services.workflows.load()
        return Response(self._spaces.drawn(space), 200, _PICTURE, "image/svg+xml")

    async def download(self, request: Request) -> Response:
        """Return the original file of a workflow."""
        space = await self._found(request, await self._auth.user(request))
        ending = {"image/png": "png", "image/webp": "webp", "image/jpeg": "jpg"}.get(
            space.content_type, "json"
        )
        headers = {"Content-Disposition": f'attachment; filename="{space.slug}.{ending}"'}
        return Response(space.content, 200, headers, space.content_type)

    async def bring(self, request: Request, user: PageUser) -> Response:
        """Import a file that was dropped on a page and return the path of its page."""
        name = requests.query_text(request, "name", _MAX_NAME)
        space = await self._spaces.bring(user.account_id, await request.body(), name)
        return responses.json({"path": f"/workflows/{space.slug}", "slug": space.slug}, 201)

    async def _found(self, request: Request, user: PageUser | None) -> Workflow:
        self._services.trusted_hosts.admit(request)
        return await self._spaces.find(requests.path_value(request, "slug"), _account(user))


def _account(user: PageUser | None) -> str | None:
    return None if user is None else user.account_id


def _session(user: PageUser | None) -> SessionCookie | None:
    return None if user is None else user.session


def page_routes(workflows: WorkflowPages | None) -> tuple[RouteEntry, ...]:
    """Return the routes of the pages and files."""
    if workflows is None:
        return ()
    return (
        RouteEntry("/workflows", {"GET": workflows.show}, access=rights.PUBLIC),
        RouteEntry("/workflows/{slug}", {"GET": workflows.one}, access=rights.PUBLIC),
        RouteEntry("/workflows/{slug}/graph.svg", {"GET": workflows.picture}, access=rights.PUBLIC),
        RouteEntry("/workflows/{slug}/download", {"GET": workflows.download}, access=rights.PUBLIC),
    )


def script_routes(workflows: WorkflowPages | None) -> tuple[RouteEntry, ...]:
    """Return the route that imports a dropped file."""
    if workflows is None:
        return ()
    return (
        RouteEntry("/pages/workflows", {"POST": workflows.part}, workflows.most_bytes, access=rights.RUN),
    )
