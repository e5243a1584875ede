"""`/account/members`: members, invitations, teams, budgets and keys of the organization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core import money, pagination
from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.keys import KeyLimits, NewKey, Principal
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.organizations import invitations, members, organizations, teams
from sixfold.core.accounts.organizations.invitations import NewInvitation
from sixfold.core.database import Transaction, Value
from sixfold.ui import forms
from sixfold.ui.account.keys_page import describe_limits
from sixfold.ui.templating import PageHandlers
from sixfold.web import requests
from sixfold.web.sessions import SessionCookie

PATH = "/account/members"
# Each member has a form with the choice of all teams.
_PAGE = 50
_DONE = {
    "invited": "The person is a member now.",
    "joined": "You are a member now, and act for this organization.",
    "removed": "The membership has ended, with its sessions, programs and keys.",
    "left": "You have left the organization.",
    "changed": "Saved.",
    "transferred": "The organization has a new owner. You are an admin now.",
    "revoked": "The key is revoked.",
}


class MembersPage(PageHandlers):
    """The page; its forms are handled by `MembersForms`."""

    async def show(self, request: Request, session: SessionCookie) -> Response:
        """Show the parts of the session's organization that the user's role may see."""
        done = _DONE.get(request.query_params.get("done", ""), "")
        return await self.render(session, done=done, after=pagination.name_of(requests.cursor(request)))

    async def read_form(self, request: Request) -> tuple[SessionCookie, dict[str, str]]:
        """Return the session and the fields of a form after the CSRF check."""
        self._services.trusted_hosts.admit(request)
        return await forms.read_with_session(request, self._services.sessions)

    async def render(
        self,
        session: SessionCookie,
        *,
        done: str = "",
        after: str = "",
        problem: str = "",
        invitation: NewInvitation | None = None,
        new_key: NewKey | None = None,
    ) -> Response:
        """Show the page with the result of a form, and the members after the id `after`."""
        values = await self._services.database.read(_values(session, after))
        link = "" if invitation is None else self.link(invitation.token)
        values |= {"done": done, "problem": problem, "link": link, "invitation": invitation}
        return self._pages.render(
            "account/members.html", session, status=400 if problem else 200, new_key=new_key, **values
        )

    def link(self, token: str) -> str:
        """Return the address of the page that accepts an invitation."""
        return f"{self._services.settings.base_url}/invitation?token={token}"


def _values(session: SessionCookie, after: str) -> Transaction[dict[str, Any]]:
    principal, account_id = session.principal, session.account.id
    member_rows = yield from members.of_account(account_id)
    is_admin = principal.role != "member"
    own_teams = yield from teams.of_account(account_id)
    shown = [each for each in member_rows if each.id > after][: _PAGE + 1]
    next_cursor = pagination.cursor_after(shown[_PAGE - 1].id) if len(shown) > _PAGE else ""
    shown = shown[:_PAGE]
    ids = [*(each.id for each in shown), *(each.id for each in own_teams), account_id]
    emails = {each.id: each.email for each in member_rows}
    names = {each.id: each.name for each in own_teams}
    return {
        "account": (yield from accounts.by_id(account_id)),
        "role": "owner" if principal.role == "person" else principal.role,
        "is_admin": is_admin,
        "is_owner": principal.role in ("owner", "person"),
        "choices": (yield from organizations.of_person(session.person_id)),
        "members": member_rows,
        "shown": shown,
        "next_cursor": next_cursor,
        "teams": own_teams,
        "spent": (yield from budgets.spent_now(ids)),
        "invitations": (yield from invitations.of_account(account_id)) if is_admin else (),
        "keys": [
            {
                **row,
                "limits": describe_limits(keys.scope_of(row)),
                "rights": ", ".join(rights.names(keys.rights_of(row))),
                "holder": emails.get(row["member_id"] or "", ""),
                "team": names.get(row["team_id"] or "", ""),
            }
            for row in (yield from keys.live(account_id))
            if _may_see(principal, row["member_id"], row)
        ],
    }


def _may_see(principal: Principal, member_id: str | None, row: Mapping[str, Any]) -> bool:
    """Return whether a key is listed: the user's own, and for admins those of all members and teams."""
    if principal.role == "member":
        return member_id == principal.member_id
    return member_id is not None or row["team_id"] is not None


def budget_fields(form: Mapping[str, str]) -> dict[str, Value]:
    """Return the budgets in a form, in micro-dollars; an empty field removes one. Raises `BadRequest`."""
    return {name: amount(form.get(name, "")) for name in ("budget_day", "budget_month")}


def amount(text: str) -> int | None:
    """Parse an amount in USD; raises `BadRequest`."""
    if not text.strip():
        return None
    try:
        micros = money.parse_usd(text.strip()[:40])
    except ValueError:
        micros = -1
    if not 0 <= micros <= organizations.MAX_BUDGET:
        raise errors.BadRequest(f"{text.strip()[:40]} is not an amount in USD, such as 5 or 0.50")
    return micros


def key_scope(form: Mapping[str, str]) -> KeyLimits:
    """Return the limits of a new key in a form."""
    return KeyLimits(
        budget_day=amount(form.get("budget_day", "")), budget_month=amount(form.get("budget_month", ""))
    )
