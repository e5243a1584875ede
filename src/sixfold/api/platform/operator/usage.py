"""`GET /api/operator/usage`: the usage of all accounts or of single accounts, as JSON or CSV."""

from __future__ import annotations

from typing import Required, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.platform import accounts
from sixfold.core.accounts import rights, usage_report
from sixfold.core.accounts.operation import customers, server_usage
from sixfold.web import openapi, requests
from sixfold.web.openapi import OperationSpec
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_PATH = "/api/operator/usage"
_ACCOUNT_PATH = "/api/operator/accounts/{account_id}/usage"
_DIMENSIONS = ("day", "account", "email", "model")


class ServerUsageRowSchema(TypedDict, total=False):
    """Requests, tokens and amounts for one combination of the requested dimensions."""

    day: str
    account: str
    email: str
    model: str
    requests: Required[int]
    input_tokens: Required[int]
    output_tokens: Required[int]
    amount_usd: Required[str]
    provider_cost_usd: Required[str]


class OperatorUsageRoutes(ServiceHandlers):
    """Handlers of the usage reports."""

    async def show(self, request: Request) -> Response:
        """Return the usage by day, account, e-mail address and model."""
        await self._enter(request)
        days = accounts.usage_days(request)
        names = accounts.usage_dimensions(request, _DIMENSIONS, _DIMENSIONS)
        report = server_usage.report(days, names)
        return await accounts.usage_response(self._services, request, days, report)

    async def show_one(self, request: Request) -> Response:
        """Return the usage of an account by day, kind, model, key, member, team and tag."""
        await self._enter(request)
        days = accounts.usage_days(request)
        names = accounts.usage_dimensions(request, usage_report.DIMENSIONS, usage_report.USUAL)
        account_id = requests.path_value(request, "account_id")
        account = await self._services.database.read(customers.find(account_id), snapshot=False)
        report = usage_report.report(account.id, days, names, with_costs=True)
        return await accounts.usage_response(self._services, request, days, report)


def operations() -> dict[str, OperationSpec]:
    """Return the operations of the OpenAPI document."""
    server_usage_shape = openapi.shape("ServerUsage", days=int, usage=list[ServerUsageRowSchema])
    return {
        f"GET {_PATH}": OperationSpec(
            "The usage of all accounts by day, account, e-mail address and model",
            {200: accounts.usage_content(server_usage_shape)},
            (400,),
            parameters=accounts.USAGE_PARAMETERS,
        ),
        f"GET {_ACCOUNT_PATH}": OperationSpec(
            "The usage of an account by day, kind, model, key, member and team",
            {200: accounts.usage_content(accounts.USAGE)},
            (400, 404),
            parameters=accounts.USAGE_PARAMETERS,
        ),
    }


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers = OperatorUsageRoutes(services)
    return (
        RouteEntry(_PATH, {"GET": handlers.show}, access=rights.OPERATE_READ),
        RouteEntry(_ACCOUNT_PATH, {"GET": handlers.show_one}, access=rights.OPERATE_READ),
    )
