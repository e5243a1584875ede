"""`/api/account/alerts`: webhooks that are sent when spending reaches a threshold."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.alerts import alerts
from sixfold.core.alerts.alerts import CostAlert
from sixfold.web import bodies, requests, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

PATH = "/api/account/alerts"


class NewAlertSchema(TypedDict):
    """An alert to create; `key` is the id of a key, or null for the account."""

    key: NotRequired[str | None]
    period: Literal["day", "month"]
    threshold_usd: str | float
    url: str


class AlertSchema(TypedDict):
    """An alert; `spent_usd` is as of the last count, `sent_for` the day or month of the last message."""

    id: str
    key: str | None
    period: Literal["day", "month"]
    threshold_usd: str
    url: str
    spent_usd: str
    sent_for: str | None
    error: str | None
    created_at: str


class AlertRoutes(ServiceHandlers):
    """Handlers of an account's cost alerts."""

    async def page(self, request: Request) -> Response:
        """List the alerts, oldest first."""
        principal = await self._enter(request)
        rows = await self._services.database.read(alerts.of_account(principal.account_id))
        return responses.unstored_json({"alerts": [alerts.to_json(row) for row in rows]})

    async def create(self, request: Request, principal: Principal) -> Response:
        alert = CostAlert(bodies.parse_object(await request.body()))
        alerts.check_receiver(self._services.outbox.sender, alert.url)
        creation = alerts.create(principal.account_id, alert, principal.member_id)
        row = await self._write(principal, creation)
        return responses.unstored_json(alerts.to_json(row), 201)

    async def delete(self, request: Request) -> Response:
        principal = await self._enter(request)
        alert_id = requests.path_value(request, "alert_id")
        deletion = alerts.delete(principal.account_id, alert_id)
        await self._write(principal, deletion)
        return Response(status_code=204)


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers, small, manage = AlertRoutes(services), services.settings.json_body_bytes, rights.ADMIN
    create = services.idempotency.once(services.authenticator.bearer, handlers.create)
    return (
        RouteEntry(PATH, {"GET": handlers.page, "POST": create}, small, access=manage),
        RouteEntry(f"{PATH}/{{alert_id}}", {"DELETE": handlers.delete}, access=manage),
    )
