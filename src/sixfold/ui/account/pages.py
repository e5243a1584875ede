"""`/account`: balance, keys, programs and plan; changes need the page's CSRF token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import keys, ledger_queries, payments, rights
from sixfold.core.accounts.authentication import oauth
from sixfold.core.accounts.keys import Holder, NewKey, Scope
from sixfold.core.accounts.rights import Rights
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.ui import forms
from sixfold.ui.account import spending
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

_FORM_BYTES = 16_384
_ENTRIES, _LATEST = 25, 5
_MAX_SERVICES = 50
# What a key may be limited to beside models: calls of the Gateway and posts.
_SERVICES = ("chat", "vision", "embeddings", "speech", "transcription", "images", "create-ai", "create-post")
_NO_FORM: Mapping[str, str] = {}
_RIGHTS = {
    "run": "run models and services",
    "memory.read": "read the memory",
    "memory.write": "write the memory",
    "account.read": "see balance and ledger",
    "account.manage": "manage keys, secrets, payments, export and deletion",
    "operate": "operate this server",
}


class AccountPage:
    """The account page and its forms."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages

    async def show(self, request: Request) -> Response:
        """Show balance, spending, keys, latest predictions and ledger entries."""
        session = await self._services.sessions.admitted(request)
        if session is None:
            return RedirectResponse("/signin", 303)
        if session.principal.role == "member":
            return RedirectResponse("/account/members", 303)
        query = request.query_params
        days = next((span for span in spending.SPANS if query.get("days") == str(span)), spending.SPANS[0])
        return await self._render(session, query.get("cursor"), days=days)

    async def create_key(self, request: Request) -> Response:
        """Create a key and show it once; for invalid limits, show the form with the problems."""
        session, form = await self._read_form(request)
        try:
            limits = _limits(form)
            await self._check_services(limits.services, session.account.id)
        except errors.InvalidInput as error:
            problems = {problem.input: problem.message for problem in error.problems}
            return await self._render(session, None, form=form, problems=problems)
        selected = _selected_rights(form, limits)
        holder = Holder(session.principal.member_id, session.principal.team_id)
        new_key = await self._services.database.write(
            keys.create(session.account.id, limits, granted=selected, holder=holder)
        )
        return await self._render(session, None, new_key)

    async def _check_services(self, names: tuple[str, ...], account_id: str) -> None:
        """Raise `InvalidInput` for a name that no model has; `server/model` may be listed only later."""
        known = {*_SERVICES, *(name for name, _owner in self._services.gateway.router.models())}
        unknown: list[str] = []
        for name in names:
            if name in known or "/" in name:
                continue
            try:
                await self._services.predictions.find(name, account_id)
            except errors.NotFound:
                unknown.append(name[:100])
        if unknown:
            message = f"No model is called {', '.join(unknown)}: use names from the catalog, such as ra1"
            raise errors.InvalidInput([errors.Problem("services", message, "value_error")])

    async def revoke(self, request: Request) -> Response:
        """Revoke a key of the account."""
        session, _form = await self._read_form(request)
        key_id = requests.path_value(request, "key_id")
        account_keys = await self._services.database.read(keys.of_account(session.account.id))
        if all(row["id"] != key_id for row in account_keys):
            raise errors.NotFound(f"Key {key_id} not found")
        await self._services.database.write(keys.revoke(key_id))
        return RedirectResponse("/account#keys", 303)

    async def end_program(self, request: Request) -> Response:
        """Revoke the access of an OAuth client."""
        session, _form = await self._read_form(request)
        grant_id = requests.path_value(request, "grant_id")
        await self._services.database.write(oauth.end_one(session.account.id, grant_id))
        return RedirectResponse("/account#programs", 303)

    async def top_up(self, request: Request) -> Response:
        """Redirect to the payment page for credit."""
        session, form = await self._read_form(request)
        micros = payments.parse_amount(form.get("amount_usd"))
        account = session.account
        url = await self._services.checkout.top_up(account.id, account.email or "", micros)
        return self._pages.render("redirect.html", session, url=url, title="Payment")

    async def plan(self, request: Request) -> Response:
        """Redirect to the payment page for a memory plan."""
        session, form = await self._read_form(request)
        account = session.account
        plan = payments.parse_plan(form.get("plan"))
        url = await self._services.checkout.subscribe(account.id, account.email or "", plan)
        return self._pages.render("redirect.html", session, url=url, title="Payment")

    # -- helpers ---------------------------------------------------------------------------------

    async def _render(
        self,
        session: SessionCookie,
        cursor: str | None,
        new_key: NewKey | None = None,
        days: int = spending.SPANS[0],
        form: Mapping[str, str] = _NO_FORM,
        problems: Mapping[str, str] = _NO_FORM,
    ) -> Response:
        read, account_id = self._services.database.read, session.account.id
        latest, _ = await self._services.predictions.page(
            Tenant(account_id), PredictionFilter(), _LATEST, None
        )
        values: dict[str, Any] = {
            "ledger": await read(ledger_queries.page(account_id, _ENTRIES, cursor)),
            "latest": latest,
            "chart": spending.chart(await read(ledger_queries.spending(account_id, days))),
            "spans": spending.SPANS,
            "keys": [
                {
                    **row,
                    "limits": describe_limits(keys.scope_of(row)),
                    "rights": ", ".join(rights.names(keys.rights_of(row))),
                }
                for row in await read(keys.of_account(account_id))
                if row["revoked_at"] is None and row["grant_id"] is None
            ],
            "programs": [
                {**row, "permissions": [oauth.SCOPES.get(scope, scope) for scope in row["scopes"].split()]}
                for row in await read(oauth.of_account(account_id))
            ],
            "new_key": new_key,
            "rights": {
                name: text for name, text in _RIGHTS.items() if session.principal.has(rights.BY_NAME[name])
            },
            "default_rights": rights.names(rights.STANDARD),
            "services": list(self._services.catalog.names()),
            "payments_configured": bool(self._services.settings.stripe_secret_key),
        }
        values |= {"form": form, "problems": problems}
        return self._pages.render("account/overview.html", session, status=422 if problems else 200, **values)

    async def _read_form(self, request: Request) -> tuple[SessionCookie, dict[str, str]]:
        self._services.trusted_hosts.admit(request)
        return await forms.read_with_session(request, self._services.sessions)


def describe_limits(scope: Scope) -> str:
    """Return the limits of a key as a sentence fragment: `only ra1; 5 USD per day`; `none` without any."""
    collections = f"only the collections {', '.join(scope.collections)}" if scope.collections else ""
    services = f"only {', '.join(scope.services)}" if scope.services else ""
    amounts = (
        (None if scope.budget_day is None else money.format_usd(scope.budget_day), "USD per day"),
        (None if scope.budget_month is None else money.format_usd(scope.budget_month), "USD per month"),
        (scope.rpm, "requests per minute"),
        (scope.tpm, "tokens per minute"),
    )
    parts = [collections, services, *(f"{amount} {unit}" for amount, unit in amounts if amount is not None)]
    return "; ".join(part for part in parts if part) or "none"


def _limits(form: dict[str, str]) -> Scope:
    """Parse the limits of a new key; raises `InvalidInput`."""
    names = tuple(form.get("services", "").replace(",", " ").split())[:_MAX_SERVICES]
    return Scope(
        services=names,
        budget_day=_budget(form, "budget_day"),
        budget_month=_budget(form, "budget_month"),
    )


def _selected_rights(form: dict[str, str], limits: Scope) -> Rights | None:
    """Return the checked rights that the limits allow, or None for the default rights."""
    names = [name for name in rights.BY_NAME if f"right.{name}" in form]
    return rights.of_names(names) & limits.max_rights if names else None


def _budget(form: dict[str, str], name: str) -> int | None:
    text = form.get(name, "")
    if not text.strip():
        return None
    try:
        return money.parse_usd(text.strip())
    except ValueError:
        message = f"{text.strip()[:40]} is no amount in USD, such as 5 or 0.50"
        raise errors.InvalidInput([errors.Problem(name, message, "float_type")]) from None


def routes(services: WebServices, pages: PageTemplates) -> tuple[RouteEntry, ...]:
    """Return the routes of the page and its forms."""
    page = AccountPage(services, pages)
    return (
        RouteEntry("/account", {"GET": page.show}, access=rights.ACCOUNT_READ),
        RouteEntry("/account/keys", {"POST": page.create_key}, _FORM_BYTES, access=rights.ACCOUNT_MANAGE),
        RouteEntry(
            "/account/keys/{key_id}/revoke", {"POST": page.revoke}, _FORM_BYTES, access=rights.ACCOUNT_MANAGE
        ),
        RouteEntry(
            "/account/programs/{grant_id}/end",
            {"POST": page.end_program},
            _FORM_BYTES,
            access=rights.ACCOUNT_MANAGE,
        ),
        RouteEntry("/account/checkout", {"POST": page.top_up}, _FORM_BYTES, access=rights.ACCOUNT_MANAGE),
        RouteEntry("/account/plan", {"POST": page.plan}, _FORM_BYTES, access=rights.ACCOUNT_MANAGE),
    )
