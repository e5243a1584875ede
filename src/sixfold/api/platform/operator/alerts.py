"""`/api/operator/alerts`: the cost alerts of all accounts."""

from __future__ import annotations

from typing import Literal, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.platform.operator.schemas import MAX_PAGE, MAX_TEXT, PAGE
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions
from sixfold.core.alerts import alerts, operation
from sixfold.core.alerts.alerts import CostAlert
from sixfold.core.database import Row
from sixfold.web import bodies, openapi, requests, responses
from sixfold.web.openapi import OperationSpec
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_ROOT = "/api/operator/alerts"


class AccountAlertSchema(TypedDict):
    """An alert of an account; `receiver` is the origin of its URL, which may contain a secret."""

    id: str
    account_id: str
    email: str | None
    key: str | None
    period: Literal["day", "month"]
    threshold_usd: str
    spent_usd: str
    receiver: str
    sent_for: str | None
    error: str | None
    created_at: str


class OperatorAlertRoutes(ServiceHandlers):
    """Handlers of the alerts of all accounts."""

    async def page(self, request: Request) -> Response:
        """List the alerts of all accounts, newest first."""
        await self._enter(request)
        limit = requests.page_size(request, PAGE, MAX_PAGE, MAX_TEXT)
        cursor = requests.query_text(request, "cursor", MAX_TEXT) or None
        page = await self._services.database.read(operation.page(limit, cursor))
        rows = [_alert(row) for row in page.alerts]
        return responses.unstored_json({"alerts": rows, "next_cursor": page.next_cursor})

    async def create(self, request: Request, principal: Principal) -> Response:
        """Create an alert of an account."""
        body = bodies.parse_object(await request.body())
        account_id = body.pop("account_id", None)
        if not isinstance(account_id, str):
            raise errors.InvalidInput.of("account_id", "account_id must be the id of an account")
        alert = CostAlert(body)
        alerts.check_receiver(self._services.outbox.sender, alert.url)
        row = await self._write(principal, operation.create(principal, account_id, alert))
        return responses.unstored_json(_alert(row), 201)

    async def delete(self, request: Request) -> Response:
        principal = await self._enter(request)
        alert_id = requests.path_value(request, "alert_id")
        await self._write(principal, operation.delete(principal, alert_id))
        return Response(status_code=204)


def _alert(row: Row) -> AccountAlertSchema:
    document = alerts.to_json(row)
    return {
        "id": document["id"],
        "account_id": str(row["account_id"]),
        "email": None if row["email"] is None else str(row["email"]),
        "key": document["key"],
        "period": document["period"],
        "threshold_usd": document["threshold_usd"],
        "spent_usd": document["spent_usd"],
        "receiver": actions.url_origin(str(row["url"])),
        "sent_for": document["sent_for"],
        "error": document["error"],
        "created_at": document["created_at"],
    }


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers, small = OperatorAlertRoutes(services), services.settings.json_body_bytes
    see, change = rights.OPERATE_READ, rights.OPERATE_CHANGES
    create = services.idempotency.once(services.authenticator.bearer, handlers.create)
    return (
        RouteEntry(_ROOT, {"GET": handlers.page, "POST": create}, small, access={"GET": see, "POST": change}),
        RouteEntry(f"{_ROOT}/{{alert_id}}", {"DELETE": handlers.delete}, access=change),
    )


def operations() -> dict[str, OperationSpec]:
    page = openapi.shape("AccountAlerts", alerts=list[AccountAlertSchema], next_cursor=str | None)
    body = msgspec.defstruct(
        "AccountAlertRequestSchema",
        [
            ("account_id", str),
            ("period", Literal["day", "month"]),
            ("threshold_usd", str | float),
            ("url", str),
            ("key", str | None, None),
        ],
    )
    paging = (openapi.limit(MAX_PAGE, PAGE), openapi.text("cursor", MAX_TEXT))
    return {
        f"GET {_ROOT}": OperationSpec(
            "The cost alerts of all accounts",
            {200: openapi.response("Newest first", page)},
            (400,),
            parameters=paging,
        ),
        f"POST {_ROOT}": OperationSpec(
            "Create a cost alert of an account",
            {201: openapi.response("The alert", AccountAlertSchema)},
            (400, 404, 409),
            body,
            (openapi.IDEMPOTENCY,),
        ),
        f"DELETE {_ROOT}/{{alert_id}}": OperationSpec(
            "Delete a cost alert", {204: {"description": "Deleted"}}, (404,)
        ),
    }
