"""The account of a key: its balance and its ledger."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from typing import Any, Required, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import accounts, ledger_queries, rights, usage_report
from sixfold.core.accounts.usage_report import UsageReport
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Transaction
from sixfold.web import openapi, requests, responses
from sixfold.web.openapi import Node
from sixfold.web.services import ServiceHandlers, WebServices

MAX_PAGE, PAGE = 200, 50
MAX_TEXT, USAGE_DAYS = 100, 30


class AccountSchema(TypedDict):
    """An account; `webhook_secret` is null for a key without the right `account.manage`."""

    account_id: str
    email: str
    balance_usd: str
    held_usd: str
    credits: int
    plan: str
    webhook_secret: str | None


class AccountSecretSchema(TypedDict):
    """The secret with which webhooks are signed from now on."""

    webhook_secret: str


class UsageRowSchema(TypedDict, total=False):
    """Requests, tokens and the amount for one combination of the requested dimensions."""

    day: str
    kind: str
    model: str
    key: str
    member: str
    team: str
    tag: str
    requests: Required[int]
    input_tokens: Required[int]
    output_tokens: Required[int]
    amount_usd: Required[str]
    provider_cost_usd: str


USAGE = openapi.shape("Usage", days=int, usage=list[UsageRowSchema])
USAGE_PARAMETERS = (
    openapi.query("days", {"type": "integer", "minimum": 1, "maximum": usage_report.MAX_DAYS}),
    openapi.text("by", MAX_TEXT),
    openapi.query("format", {"enum": ["json", "csv"]}),
)


def usage_content(shape: type[Any]) -> Node:
    """Return the response of a usage report in the OpenAPI document."""
    rows = openapi.response("The usage", shape)
    return {**rows, "content": {**rows["content"], "text/csv": {"schema": openapi.Text}}}


class AccountRoutes(ServiceHandlers):
    """Handlers for the caller's own account."""

    async def show(self, request: Request) -> Response:
        """Return the balance and the amount on hold."""
        principal = await self._enter(request)
        account = await self._services.database.read(accounts.by_id(principal.account_id))
        may_see = principal.has(rights.Rights.ACCOUNT_MANAGE)
        secret = None
        if may_see:
            with contextlib.suppress(errors.NotConfigured):
                secret = await self._services.webhook_secrets.of(account.id)
        result: AccountSchema = {
            "account_id": account.id,
            "email": account.email,
            "balance_usd": money.format_usd(account.posted),
            "held_usd": money.format_usd(account.held),
            "credits": account.posted // money.MICROS_PER_CREDIT,
            "plan": account.plan,
            "webhook_secret": secret,
        }
        return responses.unstored_json(result)

    async def replace_webhook_secret(self, request: Request) -> Response:
        """Replace the webhook secret, which a former admin or the holder of a revoked key may know."""
        principal = await self._enter(request)
        secret = await self._services.webhook_secrets.replace(principal.account_id)
        document: AccountSecretSchema = {"webhook_secret": secret}
        return responses.unstored_json(document)

    async def entries(self, request: Request) -> Response:
        """Return the ledger, newest entries first."""
        principal = await self._enter(request)
        limit = page_size(request)
        cursor = request.query_params.get("cursor")
        page = await self._services.database.read(ledger_queries.page(principal.account_id, limit, cursor))
        rows = [ledger_queries.to_json(row) for row in page.entries]
        return responses.unstored_json({"entries": rows, "next_cursor": page.next_cursor})

    async def usage(self, request: Request) -> Response:
        """Return the usage by day, kind, model, key, member, team and tag; members see their own."""
        principal = await self._enter(request)
        days = usage_days(request)
        dimensions = usage_dimensions(request, usage_report.DIMENSIONS, usage_report.USUAL)
        holder_id = (principal.member_id or principal.team_id) if principal.role == "member" else None
        report = usage_report.report(
            principal.account_id, days, dimensions, holder_id, with_costs=principal.is_operator
        )
        return await usage_response(self._services, request, days, report)


async def usage_response(
    services: WebServices, request: Request, days: int, report: Transaction[UsageReport]
) -> Response:
    """Return the report of `days` days as JSON, or as CSV if the parameter `format` requests it."""
    as_csv = requests.query_choice(request, "format", ("json", "csv"), MAX_TEXT) == "csv"
    result = await services.database.read(report, in_thread=True)
    if as_csv:
        text = await asyncio.to_thread(result.csv)
        return Response(text, media_type="text/csv", headers=responses.NO_STORE)
    content = await PARSER.run(responses.encode, {"days": days, "usage": result.rows})
    return Response(content, media_type="application/json", headers=responses.NO_STORE)


def usage_days(request: Request) -> int:
    """Return the number of days of a usage report; raises `BadRequest`."""
    text = request.query_params.get("days", str(USAGE_DAYS))
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= usage_report.MAX_DAYS):
        raise errors.BadRequest(f"days must be an integer from 1 to {usage_report.MAX_DAYS}")
    return int(text)


def usage_dimensions(request: Request, allowed: Collection[str], default: Collection[str]) -> tuple[str, ...]:
    """Return the dimensions in the parameter `by`; raises `BadRequest` for a name that is not allowed."""
    names = requests.query_text(request, "by", MAX_TEXT) or ",".join(default)
    dimensions = tuple(dict.fromkeys(names.split(",")))
    if unknown := [name for name in dimensions if name not in allowed]:
        text = ", ".join(allowed)
        raise errors.BadRequest(f"by must be one or more of {text}, separated by commas (got {unknown[0]!r})")
    return dimensions


def page_size(request: Request) -> int:
    """Return the number of entries of a page; raises `InvalidInput`."""
    return requests.page_size(request, PAGE, MAX_PAGE, MAX_TEXT)
