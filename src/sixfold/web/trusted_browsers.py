"""A cookie for browsers that signed in before: strangers' failures do not keep them from signing in again.

It names an account and signs nobody in. It is signed with a secret of the server over the account's password
hash, so that another password makes it void.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts.accounts import Account

COOKIE = "sixfold_browser"
_PATH = "/signin"
_LIFE_SECONDS = 180 * 24 * 3600
_MAX_CHARS = 512
_PURPOSE = b"sixfold trusted browser"


class TrustedBrowsers:
    """Makes and checks the cookie; `clock` gives seconds since the epoch."""

    def __init__(self, secret: bytes, *, secure: bool, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(secret, _PURPOSE, "sha256")
        self._secure = secure
        self._clock = clock

    def name(self, request: Request, account: Account | None) -> str | None:
        """The name of a browser that signed in to this account before; None for any other."""
        value = request.cookies.get(COOKIE, "")
        if account is None or len(value) > _MAX_CHARS:
            return None
        account_id, _, rest = value.partition(".")
        made, _, rest = rest.partition(".")
        nonce, _, signature = rest.partition(".")
        if account_id != account.id or not made.isascii() or not made.isdigit():
            return None
        right = self._signature(account, made, nonce)
        is_young = int(made[:18]) > self._clock() - _LIFE_SECONDS
        return nonce if is_young and hmac.compare_digest(right.encode(), signature.encode()) else None

    def trust(self, response: Response, account: Account) -> None:
        """Give a browser that has signed in a new cookie."""
        made, nonce = str(int(self._clock())), secrets.token_urlsafe(16)
        response.set_cookie(
            COOKIE,
            ".".join((account.id, made, nonce, self._signature(account, made, nonce))),
            max_age=_LIFE_SECONDS,
            path=_PATH,
            secure=self._secure,
            httponly=True,
            samesite="strict",
        )

    def _signature(self, account: Account, made: str, nonce: str) -> str:
        stored = hashlib.sha256((account.password_hash or "").encode()).hexdigest()
        text = "\0".join((account.id, made, nonce, stored))
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()
