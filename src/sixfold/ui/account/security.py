"""`/account/security`: sign-in methods, open sessions, OAuth clients and the audit log."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold.core.accounts import audit_log, credentials, rights
from sixfold.core.accounts.authentication import login_sessions, oidc_identities, passkeys
from sixfold.core.database import Row
from sixfold.ui import forms
from sixfold.ui.account import keys_page
from sixfold.ui.auth import session_page
from sixfold.ui.login import passkeys as login_passkeys
from sixfold.ui.login import passwords
from sixfold.ui.login.sessions import LoginService
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

PATH = "/account/security"
_FORM_BYTES = 16_384
_LINES = 30
_MAX_CURSOR = 64
_DONE = {
    "password": "Your password has been changed. All other sessions and the access of programs have ended. "
    "Your API keys are still valid.",
    "password_and_keys": "Your password has been changed. All other sessions, the access of programs and "
    "your API keys have ended.",
    "session": "The session has ended.",
    "sessions": "All other sessions have ended.",
    "linked": "The sign-in has been linked to your account.",
    "unlinked": "The sign-in has been unlinked.",
}
# Descriptions of the audit log's actions.
_ACTIONS = {
    "signin": "Signed in",
    "link.request": "Asked for a sign-in link, without signing in",
    "credit.request": "Asked the operator for credit",
    "session.end": "Ended a session",
    "session.end_all": "Ended all other sessions",
    "account.create": "Created the account",
    "account.credit": "Credit from the operator",
    "account.suspend": "Suspended by the operator",
    "account.resume": "Suspension ended by the operator",
    "account.password": "Changed the password",
    "account.plan": "Plan",
    "account.top_up": "Paid by card",
    "account.reversal": "Card payment reversed or restored",
    "account.deposit": "Token deposit",
    "account.export": "Exported all data",
    "account.close": "Requested deletion",
    "account.keep": "Canceled the deletion",
    "webhook_secret.replace": "Replaced the webhook secret",
    "identity.link": "Linked a sign-in",
    "identity.unlink": "Unlinked a sign-in",
    "alert.create": "Created a cost alert",
    "alert.delete": "Deleted a cost alert",
    "content.log": "Changed the content log",
    "content.clear": "Deleted the content log",
    "guardrail.set": "Changed a guardrail",
    "guardrail.remove": "Removed a guardrail",
    "key.create": "Created a key",
    "key.roll": "Rolled a key",
    "key.revoke": "Revoked a key",
    "key.revoke_all": "Revoked all keys",
    "access.end_all": "Ended all keys, programs, login sessions and shares of this server",
    "oauth.grant": "Granted access to a program",
    "oauth.end": "Revoked a program's access",
    "oauth.end_all": "Revoked all programs' access",
    "organization.budgets": "Set the organization's budgets",
    "organization.transfer": "Transferred the organization",
    "member.add": "Added a member",
    "member.invite": "Invited a member",
    "member.role": "Changed a member's role",
    "member.team": "Moved a member to another team",
    "member.budgets": "Set a member's budgets",
    "member.remove": "Removed a member",
    "team.create": "Created a team",
    "team.rename": "Renamed a team",
    "team.budgets": "Set a team's budgets",
    "team.remove": "Removed a team",
    "passkey.add": "Added a passkey",
    "passkey.remove": "Removed a passkey",
    "share.create": "Created a shared link",
    "share.end": "Ended a shared link",
    "share.withdraw": "Shared link ended by the operator",
    "post.remove": "Post removed by the operator",
    "character.remove": "Character removed by the operator",
    "folder.share": "Shared a folder of the memory",
    "folder.end": "Ended the share of a folder",
    "prediction.delete": "Deleted runs",
    "model.remove": "Removed a model",
    "session.delete": "Deleted live sessions",
    "account.invite": "Invited by the operator",
    "account.link": "New sign-in link from the operator",
    "account.budgets": "Budget from the operator",
}


class SecurityPages:
    """The security page and its forms."""

    def __init__(self, services: WebServices, pages: PageTemplates, login: LoginService) -> None:
        self._services = services
        self._pages = pages
        self._login = login
        self._relying_party = login_passkeys.relying_party(services.settings)

    async def show(self, request: Request, session: SessionCookie) -> Response:
        """Show the password form, passkeys, sessions, OAuth clients and the audit log."""
        notice = _DONE.get(request.query_params.get("done", ""), "")
        return await self._render(session, requests.query_text(request, "cursor", _MAX_CURSOR), done=notice)

    async def password(self, request: Request) -> Response:
        """Change the password, end other sessions and all OAuth grants, and optionally revoke the keys."""
        session, form = await forms.read_with_session(request, self._services.sessions)
        account, database = session.account, self._services.database
        new = form.get("password", "")
        if problem := passwords.length_problem(new):
            return await self._render(session, problem=problem)
        if account.password_hash is not None:
            attempt = self._login.attempts.with_session(request, account)
            current = form.get("current", "")
            if not await self._login.check_password(request, attempt, current, account.password_hash):
                return await self._render(session, problem="The current password is wrong")
        hashed = await passwords.HASHING.run(passwords.make, new)
        with_keys = form.get("end_keys") == "1"
        transaction = credentials.change_password(account.id, hashed, session.token, with_keys=with_keys)
        await database.write(login_sessions.while_active(session.token, transaction))
        done = "password_and_keys" if with_keys else "password"
        response = RedirectResponse(f"{PATH}?done={done}", 303)
        self._services.trusted_browsers.trust(response, replace(account, password_hash=hashed))
        return response

    async def end(self, request: Request) -> Response:
        session, _form = await forms.read_with_session(request, self._services.sessions)
        transaction = login_sessions.end_one(session.account.id, requests.path_value(request, "session_id"))
        await self._services.database.write(transaction)
        return RedirectResponse(f"{PATH}?done=session", 303)

    async def end_others(self, request: Request) -> Response:
        """End all other sessions of the user."""
        session, _form = await forms.read_with_session(request, self._services.sessions)
        await self._services.database.write(login_sessions.end_others(session.account.id, session.token))
        return RedirectResponse(f"{PATH}?done=sessions", 303)

    async def _render(
        self, session: SessionCookie, cursor: str = "", *, problem: str = "", done: str = ""
    ) -> Response:
        read, account_id = self._services.database.read, session.account.id
        values: dict[str, Any] = {
            "problem": problem,
            "done": done,
            "relying_party": self._relying_party,
            "provider": self._services.oidc.name,
            "identities": await self._identities(account_id),
            "passkeys": await read(passkeys.of_account(account_id)),
            "sessions": await read(login_sessions.of_account(account_id, session.token)),
            "programs": await read(keys_page.programs(account_id)),
            "log": await read(audit_log.page(account_id, _LINES, cursor)),
            "actions": _ACTIONS,
        }
        return self._pages.render("account/security.html", session, status=400 if problem else 200, **values)

    async def _identities(self, account_id: str) -> list[Row]:
        issuer = self._services.oidc.issuer
        rows = await self._services.database.read(oidc_identities.of_account(account_id))
        return [row for row in rows if row["issuer"] == issuer]


def routes(services: WebServices, pages: PageTemplates, login: LoginService) -> tuple[RouteEntry, ...]:
    page = SecurityPages(services, pages, login)
    return (
        RouteEntry(PATH, {"GET": session_page(services, page.show)}, access=rights.PERSON_READ),
        RouteEntry("/account/password", {"POST": page.password}, _FORM_BYTES, access=rights.PERSON),
        RouteEntry("/account/sessions/end", {"POST": page.end_others}, _FORM_BYTES, access=rights.PERSON),
        RouteEntry(
            "/account/sessions/{session_id}/end", {"POST": page.end}, _FORM_BYTES, access=rights.PERSON
        ),
    )
