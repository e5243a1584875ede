"""Export of an account's data, and deletion of the account."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TypedDict

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold.api.platform import alerts, content_log
from sixfold.api.platform.accounts import AccountRoutes
from sixfold.core.account_data import deletion, export
from sixfold.core.accounts import accounts, rights
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.clock import rfc3339
from sixfold.web import bodies, idempotency, openapi, responses
from sixfold.web.admission import Attempts
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_FIVE_MINUTES = 300.0
_EXPORTS = 10


class ClosedAccountSchema(TypedDict):
    """The time at which a closed account is erased."""

    account_id: str
    erased_at: str


CONFIRMATION = openapi.shape("Confirmation", confirm=str)


class AccountDataRoutes(ServiceHandlers):
    """Handlers that export the data of an account, and close it."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._taking = Attempts(_EXPORTS, _FIVE_MINUTES, time.monotonic)

    async def export_account(self, request: Request) -> Response:
        """Export the data as a zip, which is streamed while it is written."""
        principal = await self._enter(request)
        self._taking.spend(principal.account_id)
        self._services.admission.export(request, principal.account_id)
        return archive(self._services, principal.account_id)

    async def close(self, request: Request) -> Response:
        """Close the account: disable its keys at once, and erase its data after a grace period."""
        principal = await self._enter(request)
        fields = bodies.parse_object(await request.body() or b"{}")
        account = await self._services.database.read(accounts.by_id(principal.account_id))
        deletion.confirm(account, fields.get("confirm", request.query_params.get("confirm")))
        days = self._services.settings.deletion_days
        closing = access_checks.while_permitted(principal, deletion.close(account, days))
        moment = await self._services.database.write(closing)
        await self._services.account_deletion.sweep()
        document: ClosedAccountSchema = {"account_id": account.id, "erased_at": rfc3339(moment)}
        return responses.json(document, 202)


def archive(services: WebServices, account_id: str) -> Response:
    """Return the export of an account as a download."""
    name = f"sixfold-{datetime.now(UTC).date().isoformat()}.zip"
    return StreamingResponse(
        export.export_account(services.database, services.blobs, account_id, services.content_log),
        headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
        media_type="application/zip",
    )


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    data_routes, account_routes = AccountDataRoutes(services), AccountRoutes(services)
    small, bearer = services.settings.json_body_bytes, services.authenticator.bearer
    return (
        RouteEntry(
            "/api/account",
            {"GET": account_routes.show, "DELETE": data_routes.close},
            small,
            access={"GET": rights.ACCOUNT_READ, "DELETE": rights.OWNER},
        ),
        RouteEntry(
            "/api/account/webhook-secret",
            {"POST": idempotency.refused(bearer, account_routes.replace_webhook_secret)},
            access=rights.ADMIN,
        ),
        RouteEntry("/api/account/ledger", {"GET": account_routes.entries}, access=rights.ADMIN_READ),
        RouteEntry("/api/account/usage", {"GET": account_routes.usage}, access=rights.ACCOUNT_READ),
        *content_log.routes(services),
        *alerts.routes(services),
        RouteEntry("/api/account/export", {"GET": data_routes.export_account}, access=rights.OWNER),
    )
