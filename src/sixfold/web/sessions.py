"""Browser sessions: a cookie that scripts cannot read, and a token against forged forms."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import auth_challenges, connections, login_sessions, rights
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import SECOND_US
from sixfold.core.database import Database
from sixfold.settings import Settings
from sixfold.web.trusted_hosts import TrustedHosts

COOKIE = "sixfold_session"
_TICKET = "sixfold_signin"  # who begins to sign in is the one who ends it
_TICKET_PATH = "/signin"
CSRF_HEADER = "x-csrf-token"
_ACCOUNT = "/account"


_OWN_PATH = re.compile(r"/[A-Za-z0-9_.~%-][A-Za-z0-9_.~%/?&=+-]{0,1000}")


def own_path(text: str) -> str:
    """A path of this server, to go to after signing in; "" for what a browser could read otherwise."""
    return text if _OWN_PATH.fullmatch(text) and "//" not in text else ""


def _page_of(request: Request) -> str:
    """The page that a person is on: the one that is asked for, or that sent the form."""
    if request.method in ("GET", "HEAD"):
        here = request.url
        return own_path(here.path + (f"?{here.query}" if here.query else "")) or _ACCOUNT
    there = urlsplit(request.headers.get("referer", ""))
    return (own_path(there.path) if there.netloc == request.headers.get("host") else "") or _ACCOUNT


@dataclass(frozen=True, slots=True)
class SessionCookie:
    """A signed-in person. `csrf` goes into every form of the pages."""

    account: Account
    token: str
    principal: Principal

    @property
    def csrf(self) -> str:
        """A token that only pages of this session know."""
        digest = hashlib.sha256(b"csrf\0" + self.token.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class SessionCookies:
    """Reads, checks, sets and clears the session cookie."""

    def __init__(self, database: Database, settings: Settings, origins: TrustedHosts) -> None:
        self._database = database
        self._origins = origins
        self._secure = settings.base_url.startswith("https://")

    async def of(self, request: Request) -> SessionCookie | None:
        """The session that a request carries, while it lives; never for a Host that is not ours.

        Raises `NotFound` where its account lacks the right that the route declares, as every account but the
        operator's lacks `operate`, and `SignInAgain` where the route needs a newer sign-in.
        """
        token = request.cookies.get(COOKIE)
        if not token or len(token) > 256 or not self._origins.trusts_host(request):
            return None
        found = await self._database.read(login_sessions.session(token))
        connections.browsing.set(token if found is not None else None)
        if found is None:
            return None
        needed = rights.declared.get()
        if not found.principal.has(needed.right):  # as of a page that is not there
            raise errors.NotFound
        try:
            found.principal.require(needed)
        except errors.SignInAgain:
            raise errors.SignInAgain(_page_of(request)) from None
        return SessionCookie(found.account, token, found.principal)

    async def admitted(self, request: Request) -> SessionCookie | None:
        """The session that the request for a page carries; raises `Forbidden` for a Host that is not ours."""
        self._origins.admit(request)
        return await self.of(request)

    def guard(self, request: Request, session: SessionCookie | None, csrf: str | None) -> None:
        """Raise `Forbidden` unless a state-changing request came from a page of ours."""
        if not self._origins.trusts(request):
            raise errors.Forbidden("This request did not come from a page of this server")
        if session is not None and not hmac.compare_digest((csrf or "").encode(), session.csrf.encode()):
            raise errors.Forbidden("This form is too old: reload the page and try again")

    def set(self, response: Response, token: str) -> None:
        """Sign a browser in."""
        response.set_cookie(
            COOKIE,
            token,
            max_age=login_sessions.SESSION_LIFE_US // SECOND_US,
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )

    def ticket(self, request: Request) -> str:
        """The token of the ceremony that this browser began; empty where it began none."""
        token = request.cookies.get(_TICKET, "")
        return token if len(token) <= 256 and self._origins.trusts_host(request) else ""

    def give_ticket(self, response: Response, token: str) -> None:
        """Let a browser begin to sign in."""
        response.set_cookie(
            _TICKET,
            token,
            max_age=auth_challenges.LIFE_US // SECOND_US,
            path=_TICKET_PATH,
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )

    def clear(self, response: Response) -> None:
        """Sign a browser out."""
        response.delete_cookie(COOKIE, path="/", secure=self._secure, httponly=True, samesite="lax")


BROWSER_COOKIE = "sixfold_browser"
_BROWSER_LIFE_SECONDS = 180 * 24 * 3600
_MAX_BROWSER_CHARS = 512
_BROWSER_PURPOSE = b"sixfold trusted browser"


class TrustedBrowsers:
    """Makes and checks the cookie; `clock` gives seconds since the epoch."""

    def __init__(self, secret: bytes, *, secure: bool, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(secret, _BROWSER_PURPOSE, "sha256")
        self._secure = secure
        self._clock = clock

    def name(self, request: Request, account: Account | None) -> str | None:
        """The name of a browser that signed in to this account before; None for any other."""
        value = request.cookies.get(BROWSER_COOKIE, "")
        if account is None or len(value) > _MAX_BROWSER_CHARS:
            return None
        account_id, _, rest = value.partition(".")
        made, _, rest = rest.partition(".")
        nonce, _, signature = rest.partition(".")
        if account_id != account.id or not made.isascii() or not made.isdigit():
            return None
        right = self._signature(account, made, nonce)
        is_young = int(made[:18]) > self._clock() - _BROWSER_LIFE_SECONDS
        return nonce if is_young and hmac.compare_digest(right.encode(), signature.encode()) else None

    def trust(self, response: Response, account: Account) -> None:
        """Give a browser that has signed in a new cookie."""
        made, nonce = str(int(self._clock())), secrets.token_urlsafe(16)
        response.set_cookie(
            BROWSER_COOKIE,
            ".".join((account.id, made, nonce, self._signature(account, made, nonce))),
            max_age=_BROWSER_LIFE_SECONDS,
            path=_TICKET_PATH,
            secure=self._secure,
            httponly=True,
            samesite="strict",
        )

    def _signature(self, account: Account, made: str, nonce: str) -> str:
        stored = hashlib.sha256((account.password_hash or "").encode()).hexdigest()
        text = "\0".join((account.id, made, nonce, stored))
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()
