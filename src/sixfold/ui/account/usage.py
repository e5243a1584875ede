"""`/account/usage`: requests, tokens and amounts by model, key, day or kind, with a chart and as CSV."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold.core import money
from sixfold.core.accounts import keys, rights, usage_report
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.ledger_queries import Spending
from sixfold.core.accounts.usage_report import UsageReport, iso_day
from sixfold.core.clock import DAY_US
from sixfold.core.database import Transaction, now
from sixfold.ui.account import usage_chart
from sixfold.ui.auth import session_page
from sixfold.ui.templating import PageHandlers, PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

PATH = "/account/usage"
DIMENSIONS = ("model", "key", "day", "kind")
_MAX_TEXT = 20
# Maximum number of lines on the page; the CSV has all of them.
MAX_LINES = 500
_COLUMNS = ("requests", "input_tokens", "output_tokens", "micros", "spent")


class UsageLine(msgspec.Struct, frozen=True):
    """The usage of a model, key, day, kind or account; `key` is its name in the report.

    `spent` is what providers charged, in micro-dollars, which only operators see.
    """

    key: str
    label: str
    requests: int
    input_tokens: int
    output_tokens: int
    micros: int
    spent: int = 0


class AccountUsage(msgspec.Struct, frozen=True):
    """The lines, most expensive first or newest day first, and the spending for the chart."""

    lines: tuple[UsageLine, ...]
    spending: Spending


class UsagePage(PageHandlers):
    """The usage page and its CSV."""

    async def show(self, request: Request, session: SessionCookie) -> Response:
        """Show the chart and the table of a period."""
        days = span(request)
        by = requests.query_choice(request, "by", usage_report.USUAL, _MAX_TEXT) or "model"
        account_id, holder = session.account.id, _holder(session.principal)
        report = await self._services.database.read(usage(account_id, holder, days, by), in_thread=True)
        return self._pages.render(
            "account/usage.html",
            session,
            path=PATH,
            csv=f"{PATH}.csv",
            with_costs=False,
            by=by,
            dimensions=DIMENSIONS,
            days=days,
            spans=usage_chart.SPANS,
            lines=report.lines,
            max_lines=MAX_LINES,
            chart=usage_chart.chart(report.spending),
            services=list(self._services.catalog.names()),
        )

    async def download(self, request: Request, session: SessionCookie) -> Response:
        """Return the period as CSV: a row for each day, kind, model and key."""
        days = span(request)
        report = await self._services.database.read(
            usage_report.report(
                session.account.id,
                days,
                usage_report.USUAL,
                _holder(session.principal),
                with_costs=session.account.is_operator,
            ),
            in_thread=True,
        )
        return await csv_response(report, f"sixfold-usage-{days}-days.csv")


async def csv_response(report: UsageReport, name: str) -> Response:
    """Return a report as the CSV file `name`."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(await asyncio.to_thread(report.csv), headers=headers, media_type="text/csv")


def span(request: Request) -> int:
    """Return the number of days in the query if the page offers this period, or else the shortest one."""
    text = request.query_params.get("days")
    return next((days for days in usage_chart.SPANS if text == str(days)), usage_chart.SPANS[0])


def usage(
    account_id: str, holder_id: str | None, days: int, by: str, *, with_costs: bool = False
) -> Transaction[AccountUsage]:
    """Return the usage in the last `days` days, of the whole account or only of a member or team."""
    dimension = "model" if by == "day" else by
    report = yield from usage_report.report(
        account_id, days, ("day", dimension), holder_id, with_costs=with_costs
    )
    names = (yield from _key_names(account_id)) if by == "key" else {}
    return summarize(report, (yield from now()) // DAY_US, days, by, names)


def summarize(report: UsageReport, today: int, days: int, by: str, names: Mapping[str, str]) -> AccountUsage:
    """Add up a report by day and one more dimension; `names` are the labels of its values."""
    dimension = report.columns[1]
    days_of = {iso_day(today - back): Counter[str]() for back in reversed(range(days))}
    sums: dict[str, Counter[str]] = {}
    for row in report.rows:
        amounts = Counter({name: int(row[name]) for name in usage_report.COUNTS})
        amounts["micros"] = money.parse_usd(row["amount_usd"])
        amounts["spent"] = money.parse_usd(row.get("provider_cost_usd", "0"))
        sums.setdefault(row["day"] if by == "day" else row[dimension], Counter()).update(amounts)
        if row["day"] in days_of:
            label = names.get(row[dimension], row[dimension]) or _unnamed(dimension)
            days_of[row["day"]][label] += amounts["micros"]
    lines = [
        UsageLine(key, names.get(key, key) or _unnamed(dimension), *(total[name] for name in _COLUMNS))
        for key, total in sums.items()
    ]
    lines.sort(key=lambda line: line.key if by == "day" else (line.micros, line.requests), reverse=True)
    models: Counter[str] = Counter()
    for labels in days_of.values():
        models.update(labels)
    labels_of_starts = {
        (today - back) * DAY_US: days_of[iso_day(today - back)] for back in reversed(range(days))
    }
    return AccountUsage(tuple(lines), Spending(labels_of_starts, dict(models.most_common())))


def _unnamed(dimension: str) -> str:
    return "deleted accounts" if dimension == "account" else "no key"


def _holder(principal: Principal) -> str | None:
    """Return the ID of the member whose usage is shown, or None for the whole account."""
    return (principal.member_id or principal.team_id) if principal.role == "member" else None


def _key_names(account_id: str) -> Transaction[dict[str, str]]:
    rows = yield from keys.of_account(account_id)
    return {
        row["id"]: f"{row['name']} (…{row['hint']})" if row["name"] else f"…{row['hint']}" for row in rows
    }


def routes(services: WebServices, pages: PageTemplates) -> tuple[RouteEntry, ...]:
    page = UsagePage(services, pages)
    return (
        RouteEntry(PATH, {"GET": session_page(services, page.show)}, access=rights.ACCOUNT_READ),
        RouteEntry(f"{PATH}.csv", {"GET": session_page(services, page.download)}, access=rights.ACCOUNT_READ),
    )
