"""`/signin` and `/signout`: the form, one-time links and passwords."""

from __future__ import annotations

import re

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import accounts, rights
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.authentication.login_sessions import ProvenLogin
from sixfold.core.accounts.keys import FRESH_MINUTES
from sixfold.core.accounts.operation import link_requests
from sixfold.core.database import Transaction
from sixfold.ui import forms
from sixfold.ui.login import passkeys, passwords
from sixfold.ui.login.sessions import HOME, LoginService
from sixfold.ui.templating import PageTemplates
from sixfold.web import sessions
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

_FORM_BYTES = 16_384
# Programs of chats and mail that open each link of a message, which would use up a link before the user does.
_LINK_PREVIEWS = re.compile(
    r"bot\b|preview|crawler|spider|unfurl|whatsapp|facebookexternalhit", re.IGNORECASE
)
_MAX_EMAIL, _MAX_TOKEN, _MAX_AGENT = 256, 256, 512
_RECENT_SIGN_IN = (
    f"This requires a sign-in within the last {FRESH_MINUTES} minutes. Nothing was changed. Sign in to "
    "return to the page, and submit it again."
)
_NO_CREDENTIALS = (
    f"This requires a sign-in within the last {FRESH_MINUTES} minutes, and your account has no password or "
    "passkey yet. Nothing was changed. Ask the operator of this server for a new sign-in link, and set a "
    "password after you open it."
)
_WRONG_CREDENTIALS = "Wrong email or password"
_EXPIRED_LINK = (
    "This link has expired or was already used. Ask for a new link, or sign in with your password or passkey."
)
_LINK_REQUESTED = (
    "If this address has an account, the operator of this server sees your request. They can send you a "
    "new link."
)


class LoginPages:
    """The sign-in page with passwords and links, and the sign-out."""

    def __init__(self, services: WebServices, pages: PageTemplates, login: LoginService) -> None:
        self._services = services
        self._pages = pages
        self._login = login
        self._relying_party = passkeys.relying_party(services.settings)

    async def form(self, request: Request) -> Response:
        """Show the form; with the token of a one-time link, sign in at once."""
        self._services.trusted_hosts.admit(request)
        token, hosts = request.query_params.get("token"), self._services.trusted_hosts
        # Over plain http, browsers state the site that led to a page only to loopback addresses.
        is_own = hosts.states_origin(request) and hosts.trusts_origin(request)
        is_own = is_own and not _LINK_PREVIEWS.search(request.headers.get("user-agent", "")[:_MAX_AGENT])
        if token is not None and is_own and request.method == "GET":
            return await self._with_link(request, token)
        # Another site's page must not sign a user in without confirmation, nor a program use up the link.
        if token is not None:
            return self._pages.render("login/confirm_link.html", None, token=token[:_MAX_TOKEN])
        next_path = sessions.own_path(request.query_params.get("next", ""))
        session = await self._services.sessions.of(request)
        notice = _LINK_REQUESTED if "requested" in request.query_params else ""
        if "again" in request.query_params:
            is_stuck = await passwords.is_first_needed(self._services, session)
            notice = _NO_CREDENTIALS if is_stuck else _RECENT_SIGN_IN
        return self._show(next_path, session=session, notice=notice)

    async def password(self, request: Request) -> Response:
        """Sign in with email and password, or with the token of a link that was confirmed."""
        self._services.sessions.check_csrf(request, None, None)
        form = await forms.read(request)
        if "token" in form:
            return await self._with_link(request, form["token"])
        email = form.get("email", "").strip().lower()[:_MAX_EMAIL]
        next_path = sessions.own_path(form.get("next", ""))
        account = await self._account(email)
        attempt = self._login.attempts.with_password(request, email, account)
        stored = account.password_hash if account is not None else None
        matches = await self._login.check_password(request, attempt, form.get("password", ""), stored)
        if account is None or not matches:
            return self._show(next_path, email, _WRONG_CREDENTIALS)
        proof = _unchanged_password(account)
        try:
            return await self._login.open_session(request, proof, "password", next_path)
        except errors.Unauthenticated as error:
            return self._show(next_path, email, str(error))

    async def _with_link(self, request: Request, token: str) -> Response:
        """Sign in with a one-time link; if that fails, show the form and how to get another link.

        A browser that is signed in goes to the home page, for example when it opens a used link again.
        """
        try:
            return await self._login.sign_in_with_link(request, token)
        except errors.Unauthenticated:
            if await self._services.sessions.of(request) is not None:
                return RedirectResponse(HOME, 303)
            return self._show("", problem=_EXPIRED_LINK, link_expired=True)

    async def request_link(self, request: Request) -> Response:
        """Record that the user of an address asks the operator for a link.

        The response is the same for addresses without an account. The record is written after it is sent,
        because writing takes longer for addresses with an account.
        """
        self._services.sessions.check_csrf(request, None, None)
        self._login.attempts.count_link_request(request)
        email = (await forms.read(request)).get("email", "").strip().lower()[:_MAX_EMAIL]
        record = BackgroundTask(self._services.database.write, link_requests.submit(email))
        return RedirectResponse("/signin?requested=1", 303, background=record)

    async def signout(self, request: Request) -> Response:
        """End the session of this browser."""
        session = await self._services.sessions.of(request)
        form = await forms.read(request)
        self._services.sessions.check_csrf(request, session, form.get("csrf"))
        if session is not None:
            await self._services.database.write(login_sessions.end(session.token))
        response = RedirectResponse("/signin", 303)
        self._services.sessions.clear(response)
        return response

    def _show(
        self,
        next_path: str,
        email: str = "",
        problem: str = "",
        session: SessionCookie | None = None,
        notice: str = "",
        *,
        link_expired: bool = False,
    ) -> Response:
        return self._pages.render(
            "login/sign_in.html",
            session,
            status=401 if problem else 200,
            problem=problem,
            notice=notice,
            link_expired=link_expired,
            email=email,
            next_path=next_path,
            relying_party=self._relying_party,
            provider=self._services.oidc.name,
        )

    async def _account(self, email: str) -> Account | None:
        try:
            return await self._services.database.read(accounts.by_email(email))
        except errors.NotFound:
            return None


def _unchanged_password(account: Account) -> Transaction[ProvenLogin]:
    yield from accounts.require_password_hash(account.id, account.password_hash)
    return ProvenLogin(account.id)


def routes(services: WebServices, pages: PageTemplates, login: LoginService) -> tuple[RouteEntry, ...]:
    login_pages = LoginPages(services, pages, login)
    return (
        RouteEntry(
            "/signin",
            {"GET": login_pages.form, "POST": login_pages.password},
            _FORM_BYTES,
            access=rights.PUBLIC,
        ),
        RouteEntry("/signin/link", {"POST": login_pages.request_link}, _FORM_BYTES, access=rights.PUBLIC),
        RouteEntry("/signout", {"POST": login_pages.signout}, _FORM_BYTES, access=rights.PUBLIC),
    )
