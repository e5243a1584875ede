"""`/account/keys`: the list of keys, and the forms to create, rename, roll and revoke keys."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import keys, rights
from sixfold.core.accounts.authentication import key_changes, login_sessions, oauth
from sixfold.core.accounts.keys import Holder, KeyLimits, NewKey
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.rights import Rights
from sixfold.core.clock import DAY_US, SECOND_US
from sixfold.core.database import Row, T, Transaction, now
from sixfold.core.gateway import service_names
from sixfold.ui import forms
from sixfold.ui.auth import session_page
from sixfold.ui.templating import PageHandlers, PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

PATH = "/account/keys"
_FORM_BYTES = 16_384
_MAX_SERVICES = 50
# A field of the form that has checkboxes for rights: browsers do not send those that are not checked.
_SELECTION = "selection"
_NO_FORM: Mapping[str, str] = {}
_RIGHTS = {
    "run": "run models and services",
    "memory.read": "read the memory",
    "memory.write": "write the memory",
    "account.read": "see balance and ledger",
    "account.manage": "manage keys, secrets, payments, export and deletion",
    "operate": "operate this server",
}


class KeysPage(PageHandlers):
    """The page of keys and its forms."""

    async def show(self, request: Request, session: SessionCookie) -> Response:
        """Show the keys and, for an organization, its OAuth clients."""
        if session.principal.role == "member":
            return RedirectResponse("/account/members", 303)
        return await self._render(session)

    async def create(self, request: Request) -> Response:
        """Create a key and show it once; for invalid limits, show the form with the problems."""
        session, form = await self._read_form(request)
        try:
            limits = _limits(form)
            await self._check_services(limits.services, session.account.id)
            key_rights = _selected_rights(form, limits)
            expires_at = _expiry(form, await self._services.database.read(now()))
        except errors.InvalidInput as error:
            problems = {problem.input: problem.message for problem in error.problems}
            return await self._render(session, form=form, problems=problems)
        new_key = await self._write_in_session(
            session,
            keys.create(
                session.account.id,
                limits,
                expires_at,
                granted=key_rights,
                holder=Holder(
                    session.principal.member_id, session.principal.team_id, name=form.get("name", "")
                ),
            ),
        )
        return await self._render(session, new_key)

    async def _check_services(self, names: tuple[str, ...], account_id: str) -> None:
        """Raise `InvalidInput` for an unknown model name; names such as `server/model` are not checked."""
        model_names = {name for name, _owner in self._services.gateway.router.models()}
        unknown: list[str] = []
        for name in names:
            if service_names.is_known(name, model_names):
                continue
            try:
                await self._services.predictions.find(name, account_id)
            except errors.NotFound:
                unknown.append(name)
        if unknown:
            model_names.update(model.name for model in self._services.catalog.models())
            missing = service_names.not_found(unknown, model_names)
            message = f"{missing}: use names from the catalog, such as ra1"
            raise errors.InvalidInput([errors.Problem("services", message, "value_error")])

    async def rename(self, request: Request) -> Response:
        session, form = await self._read_form(request)
        key_id = requests.path_value(request, "key_id")
        await self._write_in_session(
            session, key_changes.rename(session.account.id, key_id, form.get("name", ""))
        )
        return RedirectResponse(PATH, 303)

    async def roll(self, request: Request) -> Response:
        """Replace the secret of a key and show the new secret once."""
        session, form = await self._read_form(request)
        keep_us = DAY_US if form.get("keep") == "day" else 0
        new_key = await self._write_in_session(
            session,
            key_changes.roll(
                session.account.id,
                requests.path_value(request, "key_id"),
                session.principal.member_id,
                keep_us,
            ),
        )
        return await self._render(session, new_key)

    async def revoke(self, request: Request) -> Response:
        session, _form = await self._read_form(request)
        key_id = requests.path_value(request, "key_id")
        await self._services.database.read(keys.find(session.account.id, key_id))
        await self._write_in_session(session, keys.revoke(key_id))
        return RedirectResponse(PATH, 303)

    async def _render(
        self,
        session: SessionCookie,
        new_key: NewKey | None = None,
        form: Mapping[str, str] = _NO_FORM,
        problems: Mapping[str, str] = _NO_FORM,
    ) -> Response:
        read, principal = self._services.database.read, session.principal
        is_person = principal.role == "person"
        return self._pages.render(
            "account/keys.html",
            session,
            status=422 if problems else 200,
            keys=await read(key_rows(session)),
            programs=None if is_person else await read(programs(session.account.id)),
            new_key=new_key,
            rights={name: text for name, text in _RIGHTS.items() if principal.has(rights.BY_NAME[name])},
            default_rights=rights.names(rights.STANDARD),
            form=form,
            problems=problems,
        )

    async def _write_in_session(self, session: SessionCookie, transaction: Transaction[T]) -> T:
        return await self._services.database.write(login_sessions.while_active(session.token, transaction))

    async def _read_form(self, request: Request) -> tuple[SessionCookie, dict[str, str]]:
        self._services.trusted_hosts.admit(request)
        return await forms.read_with_session(request, self._services.sessions)


def key_rows(session: SessionCookie) -> Transaction[tuple[dict[str, Any], ...]]:
    """Return the live keys of an account with limits and spending, and whether the user may roll them."""
    moment = yield from now()
    rows = yield from keys.live(session.account.id)
    live = [row for row in rows if row["expires_at"] is None or row["expires_at"] > moment]
    spending = yield from budgets.spent_now([row["budget_id"] for row in live])
    return tuple(
        {
            **row,
            "limits": describe_limits(keys.scope_of(row)),
            "rights": ", ".join(rights.names(keys.rights_of(row))),
            "budgets": _budgets(keys.scope_of(row), spending[row["budget_id"]]),
            "rolls": row["member_id"] == session.principal.member_id,
        }
        for row in live
    )


def _budgets(scope: KeyLimits, spending: tuple[int, int]) -> list[tuple[str, int, int]]:
    """Return the period, the amount spent and the limit of each budget of a key."""
    pairs = (("today", spending[0], scope.budget_day), ("this month", spending[1], scope.budget_month))
    return [(period, amount, limit) for period, amount, limit in pairs if limit is not None]


def programs(account_id: str) -> Transaction[tuple[Row, ...]]:
    """Return the OAuth clients with access to an account, with their permissions in words."""
    rows = yield from oauth.of_account(account_id)
    return tuple(
        {**row, "permissions": [oauth.SCOPES.get(scope, scope) for scope in row["scopes"].split()]}
        for row in rows
    )


def describe_limits(scope: KeyLimits) -> str:
    """Return the limits of a key as a sentence fragment: `only ra1; 5 USD per day`, or `none`."""
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


def _limits(form: dict[str, str]) -> KeyLimits:
    """Parse the limits of a new key; raises `InvalidInput`."""
    text = form.get("services", "").strip()
    names = tuple(text.replace(",", " ").split())
    if len(names) > _MAX_SERVICES or (text and not names):
        message = f"Enter 1 to {_MAX_SERVICES} names of models, or nothing for all models"
        raise errors.InvalidInput([errors.Problem("services", message, "value_error")])
    return KeyLimits(
        services=names, budget_day=_budget(form, "budget_day"), budget_month=_budget(form, "budget_month")
    )


def _selected_rights(form: dict[str, str], limits: KeyLimits) -> Rights | None:
    """Return the rights that are selected and allowed by the limits.

    Return None for the default rights if the form has no selection; raises `InvalidInput` for an empty one.
    """
    names = [name for name in rights.BY_NAME if f"right.{name}" in form]
    if not names and _SELECTION in form:
        message = "Select at least one right"
        raise errors.InvalidInput([errors.Problem("rights", message, "missing")])
    return rights.of_names(names) & limits.max_rights if names else None


def _budget(form: dict[str, str], name: str) -> int | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        return money.parse_usd(text)
    except ValueError:
        message = f"{text[:40]} must be an amount in USD, such as 5 or 0.50"
        raise errors.InvalidInput([errors.Problem(name, message, "float_type")]) from None


def _expiry(form: dict[str, str], moment: int) -> int | None:
    """Return the end of the chosen day (UTC) in epoch µs; raises `InvalidInput`."""
    text = form.get("expires", "").strip()
    if not text:
        return None
    try:
        end = datetime.combine(date.fromisoformat(text) + timedelta(days=1), time(), UTC)
        expires_at = int(end.timestamp()) * SECOND_US
    except (ValueError, OverflowError):
        expires_at = 0
    if expires_at <= moment:
        message = f"{text[:40]} must be a date in the future, such as 2031-01-31"
        raise errors.InvalidInput([errors.Problem("expires", message, "date_type")])
    return expires_at


def routes(services: WebServices, pages: PageTemplates) -> tuple[RouteEntry, ...]:
    page = KeysPage(services, pages)
    actions = (
        ("name", page.rename, rights.ACCOUNT_MANAGE),
        ("roll", page.roll, rights.GRANT),
        ("revoke", page.revoke, rights.ACCOUNT_MANAGE),
    )
    return (
        RouteEntry(
            PATH,
            {"GET": session_page(services, page.show), "POST": page.create},
            _FORM_BYTES,
            access={"GET": rights.ACCOUNT_READ, "POST": rights.GRANT},
        ),
        *(
            RouteEntry(f"{PATH}/{{key_id}}/{name}", {"POST": action}, _FORM_BYTES, access=access)
            for name, action, access in actions
        ),
    )
