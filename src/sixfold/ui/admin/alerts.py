"""`/admin/alerts`: the cost alerts of all accounts, with a form for another one."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import accounts, rights
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.operation import actions
from sixfold.core.alerts import alerts, operation
from sixfold.core.alerts.alerts import CostAlert
from sixfold.ui.admin.entry_forms import FormState, form_route
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

PATH = "/admin/alerts"
_PAGE, _MAX_TEXT = 50, 200
_FIELDS = ("key", "period", "threshold_usd", "url")


class AlertsPage:
    """The page of cost alerts, and its forms."""

    def __init__(self, services: WebServices, pages: PageTemplates, auth: PageAuth) -> None:
        self._services = services
        self._pages = pages
        self._auth = auth

    async def show(self, request: Request, user: PageUser) -> Response:
        """List the alerts, newest first; `account` fills the form."""
        cursor = requests.query_text(request, "cursor", _MAX_TEXT) or None
        email = requests.query_text(request, "account", _MAX_TEXT)
        return await self._render(user, FormState(values={"account": email}), cursor)

    async def create(self, request: Request, user: PageUser) -> Response:
        """Create an alert, or show the form again with the problem."""
        form = await self._auth.read_form(request, user)
        state = FormState("alert", "", form)
        try:
            alert = CostAlert({name: form.get(name, "").strip() or None for name in _FIELDS})
            alerts.check_receiver(self._services.outbox.sender, alert.url)
            account_id = await self._account_id(form)
            creation = operation.create(user.principal, account_id, alert)
            await self._services.database.write(access_checks.while_unchanged(creation))
        except errors.BadRequest as error:
            return await self._render(user, state.refused(error, "account"))
        except (errors.Conflict, errors.NotFound) as error:
            name = "key" if isinstance(error, errors.NotFound) else "account"
            return await self._render(user, state.refused(errors.InvalidInput.of(name, error.message), name))
        return RedirectResponse(PATH, 303)

    async def delete(self, request: Request, user: PageUser) -> Response:
        form = await self._auth.read_form(request, user)
        deletion = operation.delete(user.principal, form.get("id", "")[:_MAX_TEXT])
        await self._services.database.write(access_checks.while_unchanged(deletion))
        return RedirectResponse(PATH, 303)

    async def _account_id(self, form: Mapping[str, str]) -> str:
        name = form.get("account", "").strip()[:_MAX_TEXT]
        try:
            return (await self._services.database.read(accounts.by_email(name))).id
        except errors.NotFound:
            raise errors.InvalidInput.of(
                "account", f"No account has the address or name {name!r}" if name else "Enter an account"
            ) from None

    async def _render(self, user: PageUser, state: FormState, cursor: str | None = None) -> Response:
        page = await self._services.database.read(operation.page(_PAGE, cursor))
        return self._pages.render(
            "admin/alerts.html",
            user.session,
            status=400 if state.problem else 200,
            state=state,
            rows=[(row, alerts.to_json(row), actions.url_origin(str(row["url"]))) for row in page.alerts],
            next_cursor=page.next_cursor,
        )


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    page = AlertsPage(services, pages, auth)
    return (
        RouteEntry(PATH, {"GET": auth.page(page.show)}, access=rights.OPERATE_READ),
        form_route(f"{PATH}/create", auth.page(page.create)),
        form_route(f"{PATH}/delete", auth.page(page.delete)),
    )
