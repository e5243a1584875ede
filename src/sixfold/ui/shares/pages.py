"""`/s/{token}`: the page of a share, readable without signing in, and its files."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.media import drawings
from sixfold.core.media.drawings import ShareCard
from sixfold.core.shares import objects, shares
from sixfold.core.shares.shares import Share
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.shares import cards, files
from sixfold.ui.shares.content import DOWNLOAD, GRAPH, SharedContents
from sixfold.ui.templating import PageTemplates
from sixfold.ui.workflows import WorkflowCards
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

_NO_INDEX = "noindex, nofollow"
_SVG_HEADERS = {
    "Cache-Control": files.PRIVATE,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
}
_ENDINGS = {"image/png": "png", "image/webp": "webp", "image/jpeg": "jpg"}
CARD = "card.jpg"
_FORM_BYTES, _MAX_NAME = 4096, 200


class SharedPages:
    """The public page of a share."""

    def __init__(
        self,
        services: WebServices,
        pages: PageTemplates,
        auth: PageAuth,
        workflow_list: WorkflowCards | None,
    ) -> None:
        self._services = services
        self._pages = pages
        self._auth = auth
        self._workflows = workflow_list
        self._contents = SharedContents(services, workflow_list)

    async def show(self, request: Request) -> Response:
        """Show a shared object, and count the view unless the visitor is its owner."""
        session = await self._services.sessions.admitted(request)
        try:
            share, path = await self._share(request, session)
        except errors.Unauthenticated:
            return RedirectResponse(f"/signin?{urlencode({'next': request.url.path})}", 303)
        content = await self._contents.read(share, path)
        if request.method == "GET" and (session is None or session.account.id != share.account_id):
            await self._services.database.write(shares.count_view(share), durable=False)
        base = self._services.settings.base_url
        response = self._pages.render(
            "shares/shared.html",
            session,
            share=share,
            path=path,
            url=f"{base}{path}",
            content=content,
            card_url=f"{base}{path}/{CARD}",
            card_size=(drawings.CARD_WIDTH, drawings.CARD_HEIGHT),
            title=content.title,
            before="",
            **content.values,
        )
        if not share.is_indexed:
            response.headers["X-Robots-Tag"] = _NO_INDEX
        return response

    async def file(self, request: Request) -> Response:
        share, path = await self._share(request, await self._services.sessions.admitted(request))
        name = requests.path_value(request, "name")
        content = await self._contents.read(share, path)
        if content.workflow is not None and name == GRAPH:
            return Response(self._contents.draw(content.workflow), 200, _SVG_HEADERS, "image/svg+xml")
        if content.workflow is not None and name == DOWNLOAD:
            workflow = content.workflow
            ending = _ENDINGS.get(workflow.content_type, "json")
            disposition = f'attachment; filename="{workflow.slug}.{ending}"'
            headers = {"Cache-Control": files.PRIVATE, "Content-Disposition": disposition}
            return Response(workflow.content, 200, headers, workflow.content_type)
        source = content.files.sources.get(name)
        if source is None:
            raise errors.NotFound("The file was not found")
        return await files.serve(self._services, request, share.account_id, source)

    async def card(self, request: Request) -> Response:
        """Return the picture of a share, which other sites show beside its link."""
        share, path = await self._share(request, await self._services.sessions.admitted(request))
        store, database = self._services.media.drawings, self._services.database

        async def build() -> ShareCard:
            content = await self._contents.read(share, path)
            return await cards.card_of(self._services, share.kind, share.account_id, content)

        if share.kind == "run":
            await database.read(objects.run_size(share.tenant, share.object_id), snapshot=False)
            image = await store.of_shared_run(share.id, share.object_id, build)
        else:
            image = await store.of_share(share.id, await build())
        return Response(image, headers={"Cache-Control": files.PRIVATE}, media_type=drawings.CARD_TYPE)

    async def import_workflow(self, request: Request, user: PageUser) -> Response:
        """Copy a shared workflow into the user's workflows and show it."""
        await self._auth.read_form(request, user)
        share, path = await self._share(request, user.session)
        content = await self._contents.read(share, path)
        if content.workflow is None or self._workflows is None:
            raise errors.NotFound("The link does not share a workflow")
        name = content.workflow.name[:_MAX_NAME]
        copy = await self._workflows.import_file(user.account_id, content.workflow.content, name)
        return RedirectResponse(f"/workflows/{quote(copy.slug)}", 303)

    async def withdraw(self, request: Request, user: PageUser) -> Response:
        """End a share of any account, as an operator."""
        await self._auth.read_form(request, user)
        token = requests.path_value(request, "token")
        await self._services.database.write(shares.withdraw(user.principal, token))
        return RedirectResponse("/admin/audit", 303)

    async def _share(self, request: Request, session: SessionCookie | None) -> tuple[Share, str]:
        token = requests.path_value(request, "token")
        viewer = None if session is None else session.principal
        share = await self._services.database.read(shares.opened(token, viewer), snapshot=False)
        return share, shares.path_of(token)


def routes(
    services: WebServices, pages: PageTemplates, auth: PageAuth, workflow_list: WorkflowCards | None
) -> tuple[RouteEntry, ...]:
    shared = SharedPages(services, pages, auth, workflow_list)
    import_workflow = auth.signed_in(shared.import_workflow)
    return (
        RouteEntry("/s/{token}", {"GET": shared.show}, access=rights.PUBLIC),
        RouteEntry(f"/s/{{token}}/{CARD}", {"GET": shared.card}, access=rights.PUBLIC),
        RouteEntry("/s/{token}/import", {"POST": import_workflow}, _FORM_BYTES, access=rights.RUN),
        RouteEntry(
            "/s/{token}/withdraw",
            {"POST": auth.page(shared.withdraw)},
            _FORM_BYTES,
            access=rights.OPERATE_CHANGES,
        ),
        RouteEntry("/s/{token}/files/{name}", {"GET": shared.file}, access=rights.PUBLIC),
    )
