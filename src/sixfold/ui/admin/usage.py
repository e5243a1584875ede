"""`/admin/usage`: usage of all accounts and of each one, what the engines earn and cost, and CSV files."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import rights, usage_report
from sixfold.core.accounts.operation import customers, server_usage
from sixfold.core.clock import DAY_US
from sixfold.core.database import Transaction, now
from sixfold.core.predictions import queries
from sixfold.ui.account import usage as account_usage
from sixfold.ui.account import usage_chart
from sixfold.ui.account.usage import AccountUsage
from sixfold.ui.admin import people
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageHandlers, PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

PATH = "/admin/usage"
_DIMENSIONS = ("account", "model", "day")
_CSV = ("day", "account", "email", "model")
_MAX_TEXT = 200


class OperatorUsagePages(PageHandlers):
    """The usage of the server and of an account, as pages and as CSV."""

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show the usage of all accounts in a period, and what the engines earned and cost."""
        days = account_usage.span(request)
        by = requests.query_choice(request, "by", _DIMENSIONS, _MAX_TEXT) or "account"
        read = self._services.database.read
        return self._render(
            user,
            days,
            by,
            await read(_usage(days, by), in_thread=True),
            path=PATH,
            dimensions=_DIMENSIONS,
            account=None,
            engines=await read(queries.by_engine(days * DAY_US), in_thread=True),
        )

    async def download(self, request: Request, _user: PageUser) -> Response:
        """Return the usage of all accounts as CSV: a row for each day, account and model."""
        days = account_usage.span(request)
        report = await self._services.database.read(server_usage.report(days, _CSV), in_thread=True)
        return await account_usage.csv_response(report, f"sixfold-server-usage-{days}-days.csv")

    async def show_one(self, request: Request, user: PageUser) -> Response:
        """Show the usage of one account in a period."""
        account_id = requests.path_value(request, "account_id")
        account = await self._services.database.read(customers.find(account_id), snapshot=False)
        days = account_usage.span(request)
        by = requests.query_choice(request, "by", account_usage.DIMENSIONS, _MAX_TEXT) or "model"
        usage = account_usage.usage(account.id, None, days, by, with_costs=True)
        return self._render(
            user,
            days,
            by,
            await self._services.database.read(usage, in_thread=True),
            path=f"{people.PATH}/{account.id}/usage",
            dimensions=account_usage.DIMENSIONS,
            account=account,
            engines=(),
        )

    async def download_one(self, request: Request, _user: PageUser) -> Response:
        """Return the usage of one account as CSV: a row for each day, kind, model and key."""
        account_id = requests.path_value(request, "account_id")
        account = await self._services.database.read(customers.find(account_id), snapshot=False)
        days = account_usage.span(request)
        report = usage_report.report(account.id, days, usage_report.USUAL, with_costs=True)
        return await account_usage.csv_response(
            await self._services.database.read(report, in_thread=True), f"{account.id}-usage-{days}-days.csv"
        )

    def _render(
        self, user: PageUser, days: int, by: str, report: AccountUsage, *, path: str, **values: Any
    ) -> Response:
        return self._pages.render(
            "admin/usage.html",
            user.session,
            path=path,
            csv=f"{path}.csv",
            with_costs=any(line.spent for line in report.lines),
            by=by,
            days=days,
            spans=usage_chart.SPANS,
            lines=report.lines,
            max_lines=account_usage.MAX_LINES,
            chart=usage_chart.chart(report.spending),
            services=list(self._services.catalog.names()),
            **values,
        )


def _usage(days: int, by: str) -> Transaction[AccountUsage]:
    dimension = "model" if by == "day" else by
    today = (yield from now()) // DAY_US
    if dimension != "account":
        report = yield from server_usage.report(days, ("day", dimension))
        return account_usage.summarize(report, today, days, by, {})
    report = yield from server_usage.report(days, ("day", "account", "email"))
    # Erased accounts, which have no page, are one line.
    rows = tuple({**row, "account": row["account"] if row["email"] else ""} for row in report.rows)
    names = {row["account"]: row["email"] for row in rows}
    return account_usage.summarize(replace(report, rows=rows), today, days, by, names)


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    page = OperatorUsagePages(services, pages)
    account = f"{people.PATH}/{{account_id}}/usage"
    return tuple(
        RouteEntry(path, {"GET": auth.page(handler)}, access=rights.OPERATE_READ)
        for path, handler in (
            (PATH, page.show),
            (f"{PATH}.csv", page.download),
            (account, page.show_one),
            (f"{account}.csv", page.download_one),
        )
    )
