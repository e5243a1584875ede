"""`/account`: money, keys, the plan; what is changed here needs the page's token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import journal, keys, payments
from sixfold.core.accounts.keys import NewKey, Scope
from sixfold.core.clock import DAY_US
from sixfold.core.database import Row, now
from sixfold.core.work.predictions import Filter
from sixfold.ui import forms
from sixfold.ui.pages import Pages
from sixfold.web import calls
from sixfold.web.routing import Route
from sixfold.web.services import Services
from sixfold.web.sessions import Session

_FORM_BYTES = 16_384
_ENTRIES, _LOOKED_AT, _LATEST = 25, 500, 5
_DAYS = 14
_MAX_SERVICES = 50


@dataclass(frozen=True, slots=True)
class Day:
    """What one day cost; `tall` is its share of the dearest, in hundredths."""

    at: int
    micros: int
    tall: float


def days(entries: Sequence[Row], moment: int) -> tuple[Day, ...]:
    """The spending of the last two weeks, oldest first, from the journal's entries."""
    spent = dict.fromkeys(range(moment // DAY_US - _DAYS + 1, moment // DAY_US + 1), 0)
    for entry in entries:
        day = int(entry["created_at"]) // DAY_US
        if day in spent and entry["kind"] not in ("credit", "top_up", "deposit"):
            spent[day] -= int(entry["amount"])
    most = max(*spent.values(), 1)
    return tuple(Day(day * DAY_US, cost, round(100 * max(0, cost) / most, 2)) for day, cost in spent.items())


class AccountPage:
    """Shows an account to its owner, and takes his wishes."""

    def __init__(self, services: Services, pages: Pages) -> None:
        self._services = services
        self._pages = pages

    async def show(self, request: Request) -> Response:
        """Balance, spending, keys, latest predictions, journal."""
        session = await self._session(request)
        if session is None:
            return RedirectResponse("/signin", 303)
        return await self._render(session, request.query_params.get("cursor"))

    async def new_key(self, request: Request) -> Response:
        """Make a key; the answer shows it, once."""
        session, form = await self._changed(request)
        made = await self._services.database.write(keys.create(session.account.id, _scope(form)))
        return await self._render(session, None, made)

    async def revoke(self, request: Request) -> Response:
        """End one of the account's own keys."""
        session, _form = await self._changed(request)
        key_id = calls.path_value(request, "key_id")
        own = await self._services.database.read(keys.of_account(session.account.id))
        if all(row["id"] != key_id for row in own):
            raise errors.NotFound(f"There is no live key {key_id}")
        await self._services.database.write(keys.revoke(key_id))
        return RedirectResponse("/account#keys", 303)

    async def top_up(self, request: Request) -> Response:
        """To the page on which credit is paid."""
        session, form = await self._changed(request)
        micros = payments.amount(form.get("amount_usd"))
        account = session.account
        url = await self._services.checkout.top_up(account.id, account.email or "", micros)
        return self._pages.render("pay.html", session, url=url)

    async def plan(self, request: Request) -> Response:
        """To the page on which a memory plan is paid."""
        session, form = await self._changed(request)
        account = session.account
        plan = payments.plan(form.get("plan"))
        url = await self._services.checkout.subscribe(account.id, account.email or "", plan)
        return self._pages.render("pay.html", session, url=url)

    # -- what all of them need -------------------------------------------------------------------

    async def _render(self, session: Session, cursor: str | None, made: NewKey | None = None) -> Response:
        read, account_id = self._services.database.read, session.account.id
        moment = await read(now())
        recent = await read(journal.page(account_id, _LOOKED_AT, None))
        latest, _ = await self._services.pipeline.page(account_id, Filter(), _LATEST, None)
        spent = days(recent.entries, moment)
        values: dict[str, Any] = {
            "page": await read(journal.page(account_id, _ENTRIES, cursor)),
            "latest": latest,
            "days": spent,
            "total": sum(day.micros for day in spent),
            "keys": [row for row in await read(keys.of_account(account_id)) if row["revoked_at"] is None],
            "made": made,
            "services": sorted(model.name for model in self._services.catalog.models()),
            "configured": bool(self._services.settings.stripe_secret_key),
        }
        return self._pages.render("account.html", session, **values)

    async def _session(self, request: Request) -> Session | None:
        if not self._services.origins.trusts_host(request):
            raise errors.Forbidden("This address is not this server's own: set SIXFOLD_PUBLIC_URL to it")
        return await self._services.sessions.of(request)

    async def _changed(self, request: Request) -> tuple[Session, dict[str, str]]:
        session = await self._session(request)
        form = await forms.read(request)
        self._services.sessions.guard(request, session, form.get("csrf"))
        if session is None:
            raise errors.Unauthenticated("Sign in first")
        return session, form


def _scope(form: dict[str, str]) -> Scope:
    """What a new key may do, as the form says it; raises `InvalidInput`."""
    reach = form.get("reach", "all")
    names = tuple(form.get("services", "").replace(",", " ").split())[:_MAX_SERVICES]
    return Scope(
        read_only=reach == "read",
        memory=reach == "memory",
        services=names if reach == "all" else (),
        budget_day=_budget(form.get("budget_day", "")),
        budget_month=_budget(form.get("budget_month", "")),
    )


def _budget(text: str) -> int | None:
    if not text.strip():
        return None
    try:
        return money.parse_usd(text.strip())
    except ValueError:
        problem = errors.Problem("budget", "A budget is an amount in USD, such as 5 or 0.50", "float_type")
        raise errors.InvalidInput([problem]) from None


def routes(services: Services, pages: Pages) -> tuple[Route, ...]:
    """The account, and what its forms send."""
    page = AccountPage(services, pages)
    return (
        Route("/account", {"GET": page.show}),
        Route("/account/keys", {"POST": page.new_key}, _FORM_BYTES),
        Route("/account/keys/{key_id}/revoke", {"POST": page.revoke}, _FORM_BYTES),
        Route("/account/checkout", {"POST": page.top_up}, _FORM_BYTES),
        Route("/account/plan", {"POST": page.plan}, _FORM_BYTES),
    )
