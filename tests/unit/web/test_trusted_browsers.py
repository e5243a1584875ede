"""The cookie of a browser that signed in before."""

from __future__ import annotations

from http.cookies import SimpleCookie

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts.accounts import Account
from sixfold.web.sessions import BROWSER_COOKIE, TrustedBrowsers

ADA = Account("acct_ada", "person", "ada@example.com", 0, 0, "free", "hash one")
DAY = 24 * 3600


def _cookie(browsers: TrustedBrowsers, account: Account) -> tuple[str, str]:
    response = Response()
    browsers.trust(response, account)
    header = response.headers["set-cookie"]
    return SimpleCookie(header)[BROWSER_COOKIE].value, header


def _request(value: str) -> Request:
    return Request({"type": "http", "headers": [(b"cookie", f"{BROWSER_COOKIE}={value}".encode())]})


def test_cookie_is_valid_until_the_password_changes() -> None:
    now = 1_000_000.0
    browsers = TrustedBrowsers(b"s" * 32, secure=True, clock=lambda: now)
    value, header = _cookie(browsers, ADA)
    assert {"HttpOnly", "Secure", "Path=/signin", "SameSite=strict"} <= set(header.split("; "))
    assert browsers.name(_request(value), ADA)
    assert browsers.name(_request(value), None) is None
    assert browsers.name(_request(value), replace(ADA, id="acct_ben")) is None
    assert browsers.name(_request(value), replace(ADA, password_hash="hash two")) is None
    assert TrustedBrowsers(b"t" * 32, secure=True).name(_request(value), ADA) is None
    now += 179 * DAY
    assert browsers.name(_request(value), ADA)
    now += 2 * DAY
    assert browsers.name(_request(value), ADA) is None


def test_changed_cookie_is_refused() -> None:
    browsers = TrustedBrowsers(b"s" * 32, secure=False)
    value, _ = _cookie(browsers, ADA)
    account, result, nonce, signature = value.split(".")
    for forged in (
        "",
        "acct_ada",
        "....",
        f"{account}.{result}.{nonce}.",
        f"{account}.{int(result) + 1}.{nonce}.{signature}",
        f"{account}.{result}.{nonce}x.{signature}",
        f"{account}.{'9' * 400}.{nonce}.{signature}",
        f"{account}.-1.{nonce}.{signature}",
        f"{account}.{result}.{nonce}.{signature}.",
    ):
        assert browsers.name(_request(forged), ADA) is None
    assert browsers.name(_request(value), ADA) == nonce
