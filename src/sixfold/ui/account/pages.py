"""`/account` and `/account/billing`: the overview, credit, the memory plan and the ledger."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import ledger_queries, payments, rights
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import oauth
from sixfold.core.accounts.operation import credit_requests
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.history.titles import title_of
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.ui import forms
from sixfold.ui.account import keys_page, ledger_lines, usage, usage_chart
from sixfold.ui.auth import session_page
from sixfold.ui.templating import PageHandlers, PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

BILLING = "/account/billing"
SECURITY = "/account/security"
_FORM_BYTES = 16_384
_ENTRIES, _LATEST = 25, 5


class AccountPage(PageHandlers):
    """The overview, and the billing page with its forms."""

    async def show(self, request: Request, session: SessionCookie) -> Response:
        """Show the balance and a summary of each tab; links of the former single page are redirected."""
        if session.principal.role == "member":
            return RedirectResponse("/account/members", 303)
        query = request.query_params
        # Links to the page from the time when it contained all tabs.
        if "cursor" in query:
            return RedirectResponse(f"{BILLING}?{urlencode({'cursor': query['cursor'][:100]})}", 303)
        if "days" in query:
            return RedirectResponse(f"{usage.PATH}?days={usage.span(request)}", 303)
        read, account_id = self._services.database.read, session.account.id
        latest, _ = await self._services.predictions.page(
            Tenant(account_id), PredictionFilter(), _LATEST, None
        )
        return self._pages.render(
            "account/overview.html",
            session,
            latest=[(run, title_of(run.inputs)) for run in latest],
            chart=usage_chart.chart(
                await read(ledger_queries.spending(account_id, days := usage_chart.SPANS[0]), in_thread=True)
            ),
            days=days,
            keys=await read(keys_page.key_rows(session)),
            programs=await read(keys_page.programs(account_id)),
        )

    async def billing(self, request: Request, session: SessionCookie) -> Response:
        """Show the balance, the ways to add credit, the plan and the ledger."""
        if session.principal.role == "member":
            return RedirectResponse("/account/members", 303)
        cursor = request.query_params.get("cursor")
        page = await self._services.database.read(ledger_queries.page(session.account.id, _ENTRIES, cursor))
        lines = await ledger_lines.describe(self._services, Tenant(session.account.id), page.entries)
        return self._pages.render(
            "account/billing.html",
            session,
            credit_requested_at=await self._services.database.read(
                credit_requests.requested_at(session.account.id)
            ),
            ledger=lines,
            next_cursor=page.next_cursor,
            payments_configured=bool(self._services.settings.stripe_secret_key),
        )

    async def top_up(self, request: Request) -> Response:
        """Redirect to the payment page for credit."""
        session, form = await self._read_form(request)
        account = session.account
        _require_open(account)
        micros = payments.parse_amount(form.get("amount_usd"))
        url = await self._services.checkout.top_up(account.id, account.email or "", micros)
        return self._pages.render("redirect.html", session, url=url, title="Payment")

    async def request_credit(self, request: Request) -> Response:
        """Record that the account asks the operator for credit."""
        session, _form = await self._read_form(request)
        await self._services.database.write(credit_requests.submit(session.account.id))
        return RedirectResponse(f"{BILLING}#credit", 303)

    async def plan(self, request: Request) -> Response:
        """Redirect to the payment page for a memory plan."""
        session, form = await self._read_form(request)
        account = session.account
        _require_open(account)
        plan = payments.parse_plan(form.get("plan"))
        url = await self._services.checkout.subscribe(account.id, account.email or "", plan)
        return self._pages.render("redirect.html", session, url=url, title="Payment")

    async def end_program(self, request: Request) -> Response:
        """Revoke the access of an OAuth client."""
        session, _form = await self._read_form(request)
        grant_id = requests.path_value(request, "grant_id")
        await self._services.database.write(oauth.end_one(session.account.id, grant_id))
        is_person = session.principal.role == "person"
        return RedirectResponse(f"{SECURITY if is_person else keys_page.PATH}#programs", 303)

    async def _read_form(self, request: Request) -> tuple[SessionCookie, dict[str, str]]:
        self._services.trusted_hosts.admit(request)
        return await forms.read_with_session(request, self._services.sessions)


def _require_open(account: Account) -> None:
    if account.closing_at is not None:
        raise errors.Conflict("A closed account cannot receive payments: keep the account first")


def routes(services: WebServices, pages: PageTemplates) -> tuple[RouteEntry, ...]:
    """Return the routes of the pages and their forms."""
    page = AccountPage(services, pages)
    posts = {
        "/account/programs/{grant_id}/end": page.end_program,
        "/account/checkout": page.top_up,
        "/account/plan": page.plan,
        "/account/credit-request": page.request_credit,
    }
    return (
        RouteEntry("/account", {"GET": session_page(services, page.show)}, access=rights.ACCOUNT_READ),
        RouteEntry(BILLING, {"GET": session_page(services, page.billing)}, access=rights.ACCOUNT_READ),
        *(
            RouteEntry(path, {"POST": post}, _FORM_BYTES, access=rights.ACCOUNT_MANAGE)
            for path, post in posts.items()
        ),
        *keys_page.routes(services, pages),
        *usage.routes(services, pages),
    )
