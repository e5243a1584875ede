"""`/admin/people` and `/admin/audit`: the accounts of this server, and the log of operators' actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import money
from sixfold.core.account_data import operation as account_operation
from sixfold.core.accounts import keys, rights
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.keys import KeyLimits, NewKey
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.operation import actions, credit_requests, customers, link_requests
from sixfold.core.database import T, Transaction, one
from sixfold.core.gateway.content_log import operation
from sixfold.core.gateway.content_log.storage import MAX_DAYS
from sixfold.core.gateway.guardrails import hooks
from sixfold.ui.account.keys_page import describe_limits
from sixfold.ui.admin.content import KIND_TITLES, guardrail_fields
from sixfold.ui.admin.entry_forms import whole_number
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.organization.members_page import amount
from sixfold.ui.templating import PageHandlers, PageTemplates
from sixfold.web import requests
from sixfold.web.routing import Handler, RouteEntry
from sixfold.web.services import WebServices

PATH = "/admin/people"
_FORM_BYTES = 16_384
_PAGE, _ACTIONS, _MAX_TEXT = 50, 10, 200
_ACCOUNT = "acct_"
# The field with the id of the key whose guardrail a form changes; it is empty for the account.
_GUARDRAIL_KEY = "guardrail_key"
Work = Callable[["PeopleForms", str, PageUser, dict[str, str]], Awaitable[Response]]


class FormResult(msgspec.Struct, frozen=True):
    """The result of a form on the page of an account: its problem and rejected values, or a new secret.

    `token` is the secret of a sign-in link. `guardrail_key` is the key whose guardrail the page shows, empty
    for that of the account.
    """

    problem: str = ""
    values: Mapping[str, str] = {}
    token: str = ""
    key: NewKey | None = None
    guardrail_key: str = ""


class PeoplePages(PageHandlers):
    """The list of accounts, and the page of each account."""

    async def show(self, request: Request, user: PageUser) -> Response:
        """List the accounts, newest first; `q` searches their e-mail addresses."""
        return await self.render(
            user,
            requests.query_text(request, "q", _MAX_TEXT),
            requests.query_text(request, "cursor", _MAX_TEXT) or None,
        )

    async def render(
        self,
        user: PageUser,
        text: str = "",
        cursor: str | None = None,
        *,
        problem: str = "",
        invited: Mapping[str, str] | None = None,
    ) -> Response:
        """Show the list; `problem` is the error of the form `invited`."""
        page = await self._services.database.read(customers.page(text, _PAGE, cursor))
        return self._pages.render(
            "admin/people.html",
            user.session,
            status=400 if problem else 200,
            page=page,
            requests=await self._services.database.read(link_requests.recent()),
            credit_requests=await self._services.database.read(credit_requests.recent()),
            text=text,
            problem=problem,
            invited=invited or {},
            starting_credit=customers.STARTING_CREDIT,
            max_reason=customers.MAX_REASON,
        )

    async def audit(self, request: Request, user: PageUser) -> Response:
        """List the actions of operators, newest first; `target` selects an account."""
        target = requests.query_text(request, "target", _MAX_TEXT)
        cursor = requests.query_text(request, "cursor", _MAX_TEXT) or None
        page = await self._services.database.read(actions.page(_PAGE, cursor, target))
        emails = await self._services.database.read(_emails({action.target for action in page.actions}))
        return self._pages.render("admin/audit.html", user.session, page=page, target=target, emails=emails)

    async def show_one(self, request: Request, user: PageUser) -> Response:
        """Show an account with its keys and the actions of operators.

        The parameters `amount` and `reason` fill the form for credit, and `key` selects the key of which the
        page shows the guardrail.
        """
        amount_usd = requests.query_text(request, "amount", _MAX_TEXT)
        credit = {"amount_usd": amount_usd, "reason": requests.query_text(request, "reason", _MAX_TEXT)}
        key_id = requests.query_text(request, "key", _MAX_TEXT)
        result = FormResult(values=credit if amount_usd else {}, guardrail_key=key_id)
        return await self.render_one(user, requests.path_value(request, "account_id"), result)

    async def render_one(self, user: PageUser, account_id: str, result: FormResult) -> Response:
        """Show an account with the result of a form."""
        values = await self._services.database.read(_values(account_id))
        key_id = result.guardrail_key
        content = await self._services.database.read(operation.content_of(account_id, key_id))
        guardrail = content.guardrail
        if key_id and guardrail is None and not any(row["id"] == key_id for row in values["keys"]):
            raise errors.NotFound(f"Key {key_id[:60]} not found")
        hook = None if guardrail is None else guardrail.hook
        link = f"{self._services.settings.base_url}/signin?token={result.token}" if result.token else ""
        return self._pages.render(
            "admin/person.html",
            user.session,
            status=400 if result.problem else 200,
            problem=result.problem,
            rejected=result.values,
            link=link,
            new_key=result.key,
            content=content,
            guardrail_key=key_id,
            own_guardrail=guardrail,
            max_keys=operation.MAX_KEYS,
            kinds=KIND_TITLES,
            deletion_days=self._services.settings.deletion_days,
            hook_origin="" if hook is None else actions.url_origin(hook.url),
            **values,
        )


def _emails(targets: Iterable[str]) -> Transaction[dict[str, str]]:
    """Return the e-mail addresses of the accounts among the targets of actions."""
    emails: dict[str, str] = {}
    for target in targets:
        if target.startswith(_ACCOUNT):
            row = yield from one("account_by_id", id=target)
            emails[target] = str(row["email"]) if row is not None and row["email"] else target
    return emails


def _values(account_id: str) -> Transaction[dict[str, Any]]:
    account = yield from customers.find(account_id)
    rows = yield from keys.live(account_id)
    return {
        "account": account,
        "pending": (yield from customers.pending_credit(account_id)),
        "spent": (yield from budgets.spent_now([account_id]))[account_id],
        "keys": [{**row, "limits": describe_limits(keys.scope_of(row))} for row in rows],
        "log": (yield from actions.page(_ACTIONS, None, account_id)).actions,
        "days": customers.INVITATION_DAYS,
    }


class PeopleForms:
    """The form handlers; a rejected form is shown again with the problem."""

    def __init__(self, services: WebServices, pages: PeoplePages, auth: PageAuth) -> None:
        self._sender = services.outbox.sender
        self._services = services
        self.pages = pages
        self._auth = auth

    async def write(self, user: PageUser, transaction: Transaction[T]) -> T:
        """Run a transaction while the session of the user is active."""
        token = "" if user.session is None else user.session.token
        return await self._services.database.write(login_sessions.while_active(token, transaction))

    def handler(self, work: Work) -> Handler:
        """Return the handler of a form about one account."""

        async def handle(request: Request, user: PageUser) -> Response:
            account_id = requests.path_value(request, "account_id")
            form = await self._auth.read_form(request, user)
            try:
                return await work(self, account_id, user, form)
            except (errors.BadRequest, errors.Conflict) as error:
                result = FormResult(error.message, form, guardrail_key=form.get(_GUARDRAIL_KEY, ""))
                return await self.pages.render_one(user, account_id, result)

        return self._auth.page(handle)

    async def invite(self, request: Request, user: PageUser) -> Response:
        """Create an account and show its sign-in link once."""
        form = await self._auth.read_form(request, user)
        email = form.get("email", "")[:_MAX_TEXT]
        try:
            credit = amount(form.get("credit", "")) or 0
            reason = form.get("reason", "").strip() or customers.STARTING_CREDIT
            invitation = await self.write(user, customers.invite(user.principal, email, credit, reason))
        except (errors.BadRequest, errors.Conflict) as error:
            return await self.pages.render(user, problem=error.message, invited=form)
        return await self.pages.render_one(user, invitation.account.id, FormResult(token=invitation.token))

    async def link(self, account_id: str, user: PageUser, _form: dict[str, str]) -> Response:
        """Create another sign-in link and show it once."""
        link = await self.write(user, customers.sign_in_link(user.principal, account_id))
        return await self.pages.render_one(user, account_id, FormResult(token=link.token))

    async def dismiss_link(self, account_id: str, user: PageUser, _form: dict[str, str]) -> Response:
        """End the request of the account's user for a link."""
        await self.write(user, link_requests.dismiss(user.principal, account_id))
        return RedirectResponse(PATH, 303)

    async def dismiss_credit(self, account_id: str, user: PageUser, _form: dict[str, str]) -> Response:
        """End the account's request for credit."""
        await self.write(user, credit_requests.dismiss(user.principal, account_id))
        return RedirectResponse(PATH, 303)

    async def credit(self, account_id: str, user: PageUser, form: dict[str, str]) -> Response:
        """Add credit, or withdraw a negative amount."""
        text = form.get("amount_usd", "").strip()
        try:
            micros = money.parse_usd(text)
        except ValueError:
            raise errors.BadRequest(f"{text[:40]!r} is not an amount in USD, such as 5 or -0.50") from None
        await self.write(user, customers.credit(user.principal, account_id, micros, form.get("reason", "")))
        return _back(account_id)

    async def suspend(self, account_id: str, user: PageUser, form: dict[str, str]) -> Response:
        reason = form.get("reason", "")
        await self.write(user, customers.suspend(user.principal, account_id, suspended=True, reason=reason))
        return _back(account_id)

    async def resume(self, account_id: str, user: PageUser, _form: dict[str, str]) -> Response:
        await self.write(user, customers.suspend(user.principal, account_id, suspended=False))
        return _back(account_id)

    async def close(self, account_id: str, user: PageUser, form: dict[str, str]) -> Response:
        """Close the account; it is erased at once, or after the configured number of days."""
        days, confirmation = self._services.settings.deletion_days, form.get("confirm", "")
        await self.write(user, account_operation.close(user.principal, account_id, days, confirmation))
        await self._services.account_deletion.sweep()
        return _back(account_id, "deletion") if days else RedirectResponse(PATH, 303)

    async def keep(self, account_id: str, user: PageUser, _form: dict[str, str]) -> Response:
        """Cancel the deletion of the account."""
        await self.write(user, account_operation.keep(user.principal, account_id))
        return _back(account_id, "deletion")

    async def budgets(self, account_id: str, user: PageUser, form: dict[str, str]) -> Response:
        """Set the budgets of the account; an empty field removes one."""
        day, month = (amount(form.get(name, "")) for name in ("budget_day", "budget_month"))
        await self.write(user, customers.set_budgets(user.principal, account_id, day, month))
        return _back(account_id)

    async def create_key(self, account_id: str, user: PageUser, form: dict[str, str]) -> Response:
        """Create a key of the account and show it once."""
        scope = KeyLimits(
            budget_day=amount(form.get("budget_day", "")), budget_month=amount(form.get("budget_month", ""))
        )
        create = customers.create_key(user.principal, account_id, form.get("name", ""), scope)
        return await self.pages.render_one(user, account_id, FormResult(key=await self.write(user, create)))

    async def revoke_key(self, account_id: str, user: PageUser, form: dict[str, str]) -> Response:
        await self.write(user, customers.revoke_key(user.principal, account_id, form.get("key_id", "")))
        return _back(account_id)

    async def set_guardrail(self, account_id: str, user: PageUser, form: dict[str, str]) -> Response:
        """Set the guardrail of the account or of a key; an empty endpoint keeps the current one."""
        fields = guardrail_fields(form, keeps_url="no_hook" not in form)
        if "no_hook" in form:
            fields.pop("hook", None)
        elif fields["hook"]["url"]:
            hooks.check_url(self._sender, fields["hook"]["url"])
        exempts, key_id = "exempts" in form, form.get(_GUARDRAIL_KEY, "")
        await self.write(
            user, operation.set_guardrail(user.principal, account_id, fields, key_id, exempts=exempts)
        )
        of_key = f"?key={key_id}" if key_id else ""
        return RedirectResponse(f"{PATH}/{account_id}{of_key}#content", 303)

    async def remove_guardrail(self, account_id: str, user: PageUser, form: dict[str, str]) -> Response:
        key_id = form.get(_GUARDRAIL_KEY, "")
        await self.write(user, operation.remove_guardrail(user.principal, account_id, key_id))
        return _back(account_id, "content")

    async def content_log(self, account_id: str, user: PageUser, form: dict[str, str]) -> Response:
        """Set the days of the content log; 0 switches it off."""
        text = form.get("days", "").strip()
        days = whole_number(text, MAX_DAYS)
        if days is None:
            raise errors.BadRequest(f"{text[:40]!r} is not a number of days from 0 (off) to {MAX_DAYS}")
        await self.write(user, operation.set_log_days(user.principal, account_id, days))
        return _back(account_id, "content")


def _back(account_id: str, section: str = "") -> Response:
    return RedirectResponse(f"{PATH}/{account_id}{section and '#'}{section}", 303)


_WORK: Mapping[str, Work] = {
    "link": PeopleForms.link,
    "link/dismiss": PeopleForms.dismiss_link,
    "credit": PeopleForms.credit,
    "credit/dismiss": PeopleForms.dismiss_credit,
    "suspend": PeopleForms.suspend,
    "resume": PeopleForms.resume,
    "close": PeopleForms.close,
    "keep": PeopleForms.keep,
    "budgets": PeopleForms.budgets,
    "guardrail": PeopleForms.set_guardrail,
    "guardrail/remove": PeopleForms.remove_guardrail,
    "content-log": PeopleForms.content_log,
    "keys": PeopleForms.create_key,
    "keys/revoke": PeopleForms.revoke_key,
}


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    """Return the routes of the pages and their forms."""
    people_pages = PeoplePages(services, pages)
    forms = PeopleForms(services, people_pages, auth)
    account_path = f"{PATH}/{{account_id}}"
    changes = rights.OPERATE_CHANGES
    return (
        RouteEntry(PATH, {"GET": auth.page(people_pages.show)}, access=rights.OPERATE),
        RouteEntry(account_path, {"GET": auth.page(people_pages.show_one)}, access=rights.OPERATE),
        RouteEntry("/admin/audit", {"GET": auth.page(people_pages.audit)}, access=rights.OPERATE),
        RouteEntry(f"{PATH}/invite", {"POST": auth.page(forms.invite)}, _FORM_BYTES, access=changes),
        *(
            RouteEntry(f"{account_path}/{path}", {"POST": forms.handler(work)}, _FORM_BYTES, access=changes)
            for path, work in _WORK.items()
        ),
    )
