"""`/api/operator`: accounts and the log of operators' actions.

The routes require `operate` together with `account.read` or `account.manage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.platform.operator import removals, schemas, usage
from sixfold.api.platform.operator.removals import RemovalRoutes
from sixfold.api.platform.organization import fields
from sixfold.core import money
from sixfold.core.accounts import rights
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions, customers
from sixfold.core.database import Transaction
from sixfold.web import idempotency, requests, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_BODY_BYTES = 16_384


class OperatorRoutes(ServiceHandlers):
    """Handlers of the operator's accounts and actions."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._read = services.database.read

    async def list_accounts(self, request: Request) -> Response:
        """List the accounts, newest first."""
        await self._enter(request)
        text, limit, cursor = _page(request, "q")
        result = await self._read(customers.page(text, limit, cursor))
        rows = [schemas.account(row) for row in result.accounts]
        return responses.unstored_json({"accounts": rows, "next_cursor": result.next_cursor})

    async def show(self, request: Request) -> Response:
        await self._enter(request)
        account = await self._read(customers.find(requests.path_value(request, "account_id")))
        return responses.unstored_json(schemas.of_account(account))

    async def invite(self, request: Request) -> Response:
        """Create an account, and return the link that signs in to it once."""
        principal, body = await self._fields(request, "email", "credit_usd", "reason")
        email, credit = fields.text(body, "email"), _amount(body, "credit_usd", "0")
        reason = _reason(body, customers.STARTING_CREDIT)
        invitation = await self._write(principal, customers.invite(principal, email, credit, reason))
        url = f"{self._services.settings.base_url}/signin?token={invitation.token}"
        return responses.unstored_json({**schemas.of_account(invitation.account), "url": url}, 201)

    async def credit(self, request: Request, principal: Principal) -> Response:
        """Add credit to an account, or withdraw a negative amount."""
        body = await fields.of_request(request, "amount_usd", "reason")
        amount, reason = _amount(body, "amount_usd"), _reason(body)
        account_id, once = requests.path_value(request, "account_id"), request.scope[idempotency.ONCE]
        return await self._changed(principal, customers.credit(principal, account_id, amount, reason, once))

    async def suspend(self, request: Request) -> Response:
        principal, body = await self._fields(request, "reason")
        account_id = requests.path_value(request, "account_id")
        reason = _reason(body, "")
        return await self._changed(
            principal, customers.suspend(principal, account_id, suspended=True, reason=reason)
        )

    async def resume(self, request: Request) -> Response:
        """End the suspension of an account."""
        principal, body = await self._fields(request, "reason")
        _reason(body, "")
        account_id = requests.path_value(request, "account_id")
        return await self._changed(principal, customers.suspend(principal, account_id, suspended=False))

    async def budgets(self, request: Request) -> Response:
        """Set the budgets of an account; a budget that is missing from the request is unchanged."""
        principal, body = await self._fields(request, *fields.BUDGETS)
        account_id = requests.path_value(request, "account_id")
        return await self._changed(principal, _change_budgets(principal, account_id, fields.changes(body)))

    async def list_actions(self, request: Request) -> Response:
        """List the actions of operators, newest first."""
        await self._enter(request)
        target, limit, cursor = _page(request, "target")
        result = await self._read(actions.page(limit, cursor, target))
        rows = [schemas.action(action) for action in result.actions]
        return responses.unstored_json({"actions": rows, "next_cursor": result.next_cursor})

    async def _fields(self, request: Request, *names: str) -> tuple[Principal, dict[str, Any]]:
        return await self._enter(request), await fields.of_request(request, *names)

    async def _changed(self, principal: Principal, transaction: Transaction[Account]) -> Response:
        account = await self._write(principal, transaction)
        return responses.unstored_json(schemas.of_account(account))


def _change_budgets(
    principal: Principal, account_id: str, changed: Mapping[str, Any]
) -> Transaction[Account]:
    account = yield from customers.find(account_id)
    day = changed.get("budget_day", account.operator_day)
    month = changed.get("budget_month", account.operator_month)
    return (yield from customers.set_budgets(principal, account_id, _micros(day), _micros(month)))


def _page(request: Request, name: str) -> tuple[str, int, str | None]:
    """Return the text to search for, the limit and the cursor of a list."""
    limit = requests.page_size(request, schemas.PAGE, schemas.MAX_PAGE, schemas.MAX_TEXT)
    cursor = requests.query_text(request, "cursor", schemas.MAX_TEXT) or None
    return requests.query_text(request, name, schemas.MAX_TEXT), limit, cursor


def _reason(body: dict[str, Any], default: str | None = None) -> str:
    return fields.text(body, "reason", default, max_chars=customers.MAX_REASON)


def _amount(body: dict[str, Any], name: str, default: str | None = None) -> int:
    """Return an amount in micro-dollars, which may be negative; raises `InvalidInput`."""
    value = default if body.get(name) is None else body[name]
    if value is None:
        raise errors.InvalidInput.of(name, f"{name} is required")
    try:
        return money.parse_usd(str(value))
    except ValueError as error:
        raise errors.InvalidInput.of(name, f"{name}: {error}") from None


def _micros(value: Any) -> int | None:
    return None if value is None else int(value)


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers, removing, root = OperatorRoutes(services), RemovalRoutes(services), "/api/operator"
    account_path = f"{root}/accounts/{{account_id}}"
    see, change = rights.OPERATE_READ, rights.OPERATE_CHANGES
    credit = services.idempotency.once(services.authenticator.bearer, handlers.credit)
    invite = idempotency.refused(services.authenticator.bearer, handlers.invite)
    posts = {"credit": credit, "suspend": handlers.suspend, "resume": handlers.resume}
    return (
        RouteEntry(
            f"{root}/accounts",
            {"GET": handlers.list_accounts, "POST": invite},
            _BODY_BYTES,
            access={"GET": see, "POST": change},
        ),
        RouteEntry(
            account_path,
            {"GET": handlers.show, "PATCH": handlers.budgets, "DELETE": removing.close},
            _BODY_BYTES,
            access={"GET": see, "PATCH": change, "DELETE": change},
        ),
        *(
            RouteEntry(f"{account_path}/{name}", {"POST": post}, _BODY_BYTES, access=change)
            for name, post in posts.items()
        ),
        RouteEntry(f"{root}/actions", {"GET": handlers.list_actions}, access=see),
        *removals.routes(removing),
        *usage.routes(services),
    )
