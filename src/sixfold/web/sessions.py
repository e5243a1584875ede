"""Cookies of signed-in browsers: the login session with its CSRF token, and the mark of a trusted browser."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from contextvars import ContextVar
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import connections, keys, rights
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import auth_challenges, login_sessions
from sixfold.core.accounts.connections import Credential
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import SECOND_US
from sixfold.core.concurrency import fair_threads
from sixfold.core.database import Database
from sixfold.settings import Settings
from sixfold.web import requests
from sixfold.web.trusted_hosts import TrustedHosts

COOKIE = "sixfold_session"
# This cookie ensures that the same browser starts and completes a sign-in.
_TICKET = "sixfold_signin"
# Browsers accept a cookie with this prefix from this host only, over https. Without it, another host of the
# same domain could set a cookie that replaces the one of this server.
_HOST_ONLY = "__Host-"
CSRF_HEADER = "x-csrf-token"
_ACCOUNT = "/account"


_OWN_PATH = re.compile(r"/[A-Za-z0-9_.~%-][A-Za-z0-9_.~%/?&=+-]{0,1000}")


def own_path(text: str) -> str:
    """Return `text` if it is a path of this server, safe to redirect to after signing in, or else ""."""
    return text if _OWN_PATH.fullmatch(text) and "//" not in text else ""


def _current_page(request: Request) -> str:
    """Return the path of the current page: the requested page, or the page from which a form was sent."""
    if request.method in ("GET", "HEAD"):
        url = request.url
        return own_path(url.path + (f"?{url.query}" if url.query else "")) or _ACCOUNT
    referer = urlsplit(request.headers.get("referer", ""))
    return (own_path(referer.path) if referer.netloc == request.headers.get("host") else "") or _ACCOUNT


class SessionCookie(msgspec.Struct, frozen=True):
    """The login session of a browser; every form of its pages contains `csrf`.

    `account` is the account for which it acts: the user's personal account `person_id`, or an organization.
    """

    account: Account
    token: str
    principal: Principal
    person_id: str = ""
    login_id: str = ""

    @property
    def csrf(self) -> str:
        """A token that only pages of this session contain."""
        digest = hashlib.sha256(b"csrf\0" + self.token.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    @property
    def operates(self) -> bool:
        """Whether the session may use the operator's forms."""
        return self.principal.has(rights.Rights.OPERATE)


# The path and the session of the request that this task answers, for the header of its page.
current_path: ContextVar[str] = ContextVar("current_path", default="")
current_session: ContextVar[SessionCookie | None] = ContextVar("current_session", default=None)


def begin(path: str) -> None:
    """Start a request: set its path, without a session."""
    current_path.set(path)
    current_session.set(None)


class SessionCookies:
    """Reads, checks, sets and clears the session cookie."""

    def __init__(self, database: Database, settings: Settings, origins: TrustedHosts) -> None:
        self._database = database
        self._origins = origins
        self._secure = settings.base_url.startswith("https://")
        self._session, self._ticket = (_HOST_ONLY * self._secure + name for name in (COOKIE, _TICKET))

    async def of(self, request: Request) -> SessionCookie | None:
        """Return the active session of a request, or None, as for a Host that is not this server's.

        Raises `NotFound` if its account lacks the right that the route declares, and `SignInAgain` if the
        route requires a more recent sign-in.
        """
        token = requests.cookie(request, self._session)
        if not token or len(token) > 256 or not self._origins.trusts_host(request):
            return None
        session = await self._database.read(login_sessions.session(token), snapshot=False)
        if session is None:
            connections.session.set(None)
            return None
        token_hash, access = keys.hash_of(token).hex(), rights.declared.get()
        is_inactive = session.principal.suspended or session.principal.closed
        connections.session.set(Credential("session", token_hash, is_inactive, access.role))
        # The response must not reveal that the page exists, except to the members of an organization.
        is_member = session.principal.member_id is not None and not access.right & rights.Rights.OPERATE
        if not is_member and not session.principal.has(access.right):
            raise errors.NotFound
        cookie = SessionCookie(session.account, token, session.principal, session.person_id, session.login_id)
        # The page of an error has the header of the session, which says that an account is closed.
        current_session.set(cookie)
        try:
            session.principal.require(access)
        except errors.SignInAgain:
            raise errors.SignInAgain(_current_page(request)) from None
        connections.authenticate(session.principal)
        fair_threads.owner.set(session.account.id)
        return cookie

    async def admitted(self, request: Request) -> SessionCookie | None:
        """Return the session of a request for a page; raises `Forbidden` for an untrusted Host."""
        self._origins.admit(request)
        return await self.of(request)

    def check_csrf(self, request: Request, session: SessionCookie | None, csrf: str | None) -> None:
        """Raise `Forbidden` unless a state-changing request was sent by a page of this server.

        Without a session there is no token to compare, so the browser must state the origin.
        """
        is_stated = session is not None or self._origins.states_origin(request)
        if not is_stated or not self._origins.trusts(request):
            raise errors.Forbidden("This request must come from a page of this server")
        if session is not None and not hmac.compare_digest((csrf or "").encode(), session.csrf.encode()):
            raise errors.Forbidden("This form has expired: reload the page and try again")

    def set(self, response: Response, token: str) -> None:
        self._set(response, self._session, token, login_sessions.SESSION_LIFE_US)

    def ticket(self, request: Request) -> str:
        """Return the token of the sign-in that this browser has started, or "" if there is none."""
        token = requests.cookie(request, self._ticket)
        return token if len(token) <= 256 and self._origins.trusts_host(request) else ""

    def set_ticket(self, response: Response, token: str) -> None:
        """Set the cookie that ties a sign-in to this browser."""
        self._set(response, self._ticket, token, auth_challenges.LIFE_US)

    def clear(self, response: Response) -> None:
        self._set(response, self._session, "", 0)

    def _set(self, response: Response, name: str, value: str, life_us: int) -> None:
        seconds = life_us // SECOND_US
        response.set_cookie(
            name, value, seconds, path="/", secure=self._secure, httponly=True, samesite="lax"
        )


BROWSER_COOKIE = "sixfold_browser"
_BROWSER_PATH = "/signin"
_BROWSER_LIFE_SECONDS = 180 * 24 * 3600
_MAX_BROWSER_CHARS = 512
_BROWSER_PURPOSE = b"sixfold trusted browser"


class TrustedBrowsers:
    """Sets and checks a cookie of browsers that signed in before, which have a separate rate limit.

    Failed attempts by others therefore do not lock the user out. The cookie names an account and does not
    grant access.
    It is signed over the account's password hash, so that a new password invalidates it. `clock` returns
    seconds since the epoch.
    """

    def __init__(self, secret: bytes, *, secure: bool, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(secret, _BROWSER_PURPOSE, "sha256")
        self._secure = secure
        self._clock = clock

    def name(self, request: Request, account: Account | None) -> str | None:
        """Return the id of a browser that signed in to this account before, or None."""
        value = requests.cookie(request, BROWSER_COOKIE)
        if account is None or len(value) > _MAX_BROWSER_CHARS:
            return None
        account_id, _, rest = value.partition(".")
        signed_in_at, _, rest = rest.partition(".")
        nonce, _, signature = rest.partition(".")
        if account_id != account.id or not signed_in_at.isascii() or not signed_in_at.isdigit():
            return None
        expected = self._signature(account, signed_in_at, nonce)
        is_young = int(signed_in_at[:18]) > self._clock() - _BROWSER_LIFE_SECONDS
        return nonce if is_young and hmac.compare_digest(expected.encode(), signature.encode()) else None

    def trust(self, response: Response, account: Account) -> None:
        """Set the cookie of a browser that has signed in."""
        signed_in_at, nonce = str(int(self._clock())), secrets.token_urlsafe(16)
        response.set_cookie(
            BROWSER_COOKIE,
            ".".join((account.id, signed_in_at, nonce, self._signature(account, signed_in_at, nonce))),
            max_age=_BROWSER_LIFE_SECONDS,
            path=_BROWSER_PATH,
            secure=self._secure,
            httponly=True,
            samesite="strict",
        )

    def _signature(self, account: Account, signed_in_at: str, nonce: str) -> str:
        stored = hashlib.sha256((account.password_hash or "").encode()).hexdigest()
        text = "\0".join((account.id, signed_in_at, nonce, stored))
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()
