"""`/account/data`: export of an account as a zip, deletion, and its cancellation."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from sixfold import errors
from sixfold.core.account_data import deletion, export
from sixfold.core.accounts import rights
from sixfold.core.accounts.authentication import access_checks
from sixfold.ui import forms
from sixfold.ui.auth import session_page
from sixfold.ui.templating import PageTemplates
from sixfold.web.admission import Attempts
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

PATH = "/account/data"
_FORM_BYTES = 16_384
_FIVE_MINUTES = 300.0
_EXPORTS = 10


class AccountDataPages:
    """The page for export and deletion, and its forms."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages
        self._export_attempts = Attempts(_EXPORTS, _FIVE_MINUTES, time.monotonic)

    async def show(self, request: Request, session: SessionCookie) -> Response:
        return self._render(session)

    async def download(self, request: Request) -> Response:
        """Stream the zip export."""
        session, _form = await forms.read_with_session(request, self._services.sessions)
        self._export_attempts.spend(session.account.id)
        self._services.admission.export(request, session.account.id)
        name = f"sixfold-{datetime.now(UTC).date().isoformat()}.zip"
        chunks = export.export_account(
            self._services.database, self._services.blobs, session.account.id, self._services.content_log
        )
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        return StreamingResponse(chunks, headers=headers, media_type="application/zip")

    async def close(self, request: Request) -> Response:
        """Close the account; it is erased at once, or after the configured number of days."""
        session, form = await forms.read_with_session(request, self._services.sessions)
        try:
            deletion.confirm(session.account, form.get("confirm"))
        except errors.InvalidInput:
            return self._render(session, "The e-mail address does not match: nothing was changed")
        days = self._services.settings.deletion_days
        try:
            closing = deletion.close(session.account, days, session.token)
            await self._services.database.write(access_checks.while_unchanged(closing))
        except errors.Conflict as error:
            return self._render(session, error.message)
        await self._services.account_deletion.sweep()
        if days:
            return RedirectResponse(PATH, 303)
        response = RedirectResponse("/", 303)
        self._services.sessions.clear(response)
        return response

    async def cancel_deletion(self, request: Request) -> Response:
        session, _form = await forms.read_with_session(request, self._services.sessions)
        try:
            reopening = deletion.reopen(session.account.id)
            await self._services.database.write(access_checks.while_unchanged(reopening))
        except errors.Conflict as error:
            return self._render(session, error.message)
        return RedirectResponse(PATH, 303)

    def _render(self, session: SessionCookie, problem: str = "") -> Response:
        days = self._services.settings.deletion_days
        return self._pages.render(
            "account/data.html", session, status=400 if problem else 200, problem=problem, days=days
        )


def routes(services: WebServices, pages: PageTemplates) -> tuple[RouteEntry, ...]:
    page = AccountDataPages(services, pages)
    return (
        RouteEntry(PATH, {"GET": session_page(services, page.show)}, access=rights.OWNER_READ),
        RouteEntry("/account/export", {"POST": page.download}, _FORM_BYTES, access=rights.OWNER),
        RouteEntry("/account/close", {"POST": page.close}, _FORM_BYTES, access=rights.OWNER),
        RouteEntry("/account/keep", {"POST": page.cancel_deletion}, _FORM_BYTES, access=rights.OWNER),
    )
