"""`/admin/backups`: start, download and delete backups on this machine."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import humanize
from sixfold.core.accounts import rights
from sixfold.core.clock import SECOND_US
from sixfold.core.database import one
from sixfold.ui.admin.entry_forms import form_route
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web import files, requests
from sixfold.web.files import ServedFile
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

PATH = "/admin/backups"
# Units of ages by their minutes; one is used from two of it.
_UNITS = ((24 * 60, "day"), (60, "hour"), (1, "minute"))
_MINUTE_US = 60 * SECOND_US


class BackupsPage:
    """The page of backups, and its forms."""

    def __init__(self, services: WebServices, pages: PageTemplates, auth: PageAuth) -> None:
        self._services, self._backups = services, services.backups
        self._pages, self._auth = pages, auth

    async def show(self, _request: Request, user: PageUser) -> Response:
        return await self._render(user)

    async def start(self, request: Request, user: PageUser) -> Response:
        """Begin a backup, unless one is being written."""
        await self._auth.read_form(request, user)
        try:
            await self._backups.start(user.principal)
        except errors.Conflict as error:
            return await self._render(user, error.message)
        return RedirectResponse(PATH, 303)

    async def remove(self, request: Request, user: PageUser) -> Response:
        """Delete a backup, or stop one that is being written."""
        await self._auth.read_form(request, user)
        await self._backups.remove(user.principal, requests.path_value(request, "name"))
        return RedirectResponse(PATH, 303)

    async def download(self, request: Request, user: PageUser) -> Response:
        """Return the file of a complete backup."""
        file = await self._backups.open(user.principal, requests.path_value(request, "name"))
        served = ServedFile(
            file.store, file.key, file.size, file.media_type, file.tag, "private, no-store", file.key
        )
        return await files.serve(request, served)

    async def _render(self, user: PageUser, problem: str = "") -> Response:
        backups = await self._backups.view()
        clock = await self._services.database.read(one("clock"))
        now = int(clock["now"]) if clock is not None else 0
        return self._pages.render(
            "admin/backups.html",
            user.session,
            status=409 if problem else 200,
            problem=problem,
            folder=self._backups.folder,
            running=any(view.state == "running" for view in backups),
            backups=[(view, _age(now - view.created_at)) for view in backups],
        )


def _age(micros: int) -> str:
    minutes = micros // _MINUTE_US
    if minutes < 1:
        return "less than a minute ago"
    length, noun = next((size, noun) for size, noun in _UNITS if minutes >= 2 * size or size == 1)
    return f"{humanize.count(minutes // length, noun)} ago"


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    page = BackupsPage(services, pages, auth)
    return (
        RouteEntry(PATH, {"GET": auth.page(page.show)}, access=rights.OPERATE_READ),
        form_route(f"{PATH}/start", auth.page(page.start)),
        RouteEntry(f"{PATH}/{{name}}", {"GET": auth.page(page.download)}, access=rights.OPERATE_CHANGES),
        form_route(f"{PATH}/{{name}}/remove", auth.page(page.remove)),
    )
