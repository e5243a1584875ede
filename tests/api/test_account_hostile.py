"""Attacks on account pages: forged forms, foreign hosts, ids of other accounts, unsafe redirects."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from sixfold.app import asgi
from sixfold.core.accounts import accounts, keys
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.authentication.login_sessions import LoginDetails
from sixfold.core.database import now
from sixfold.ui import routes as ui
from sixfold.ui.account import keys_page as account
from sixfold.ui.login import passwords
from sixfold.web.routing import RouteEntry
from sixfold.web.sessions import own_path
from tests.api.app_fixture import AppFixture, client, running_app
from tests.api.test_pages import link, signed_in

# Requests without a session, or of programs: the origin and their own credentials protect them.
WITHOUT_TOKEN = {"POST /signin", "POST /signin/link", "POST /signin/passkey", "POST /signin/passkey/ask"}
INLINE = re.compile(r"<script(?![^>]*\ssrc=)|\son\w+\s*=\s*[\"']|\sstyle=|javascript:", re.IGNORECASE)
PATHS = {"name": "ra1", "slug": "api-contract", "model": "world-model", "path": "x"}


def routes(app: AppFixture) -> Iterator[tuple[str, RouteEntry]]:
    """Return the method and the route of every page."""
    services = asgi.build_services(app.server)
    for face in ui.build_apis(services, asgi.documents(app.server, list))[0]:
        for route in face.routes:
            for method in route.handlers:
                yield method, route


def fill(path: str) -> str:
    """Return a path with a value for each parameter."""
    return re.sub(r"\{(\w+)(:path)?\}", lambda match: PATHS.get(match[1], "none"), path)


async def test_form_without_csrf_token_or_cross_origin_is_refused(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = {"folder": "notes", "with": "local@localhost"}
    shared = await app.client.post("/api/shared-folders", json=share, headers=app.bearer)
    monkeypatch.setitem(PATHS, "folder_id", shared.json()["id"])
    changing = [(method, route.path) for method, route in routes(app) if method not in ("GET", "HEAD")]
    assert len(changing) > 20
    operator = await app.database.write(
        login_sessions.new_link(app.operator.id, await app.database.read(now()))
    )
    # The operator can open every page.
    await app.client.get("/signin", params={"token": operator})
    page = await app.client.get("/account/security")
    token = page.text.partition('name="csrf" value="')[2].partition('"')[0]
    for method, path in changing:
        for headers, form in (
            ({}, {"csrf": "x"}),
            ({"Origin": "https://evil.example", "X-CSRF-Token": token}, {"csrf": token}),
            ({"Sec-Fetch-Site": "same-site", "X-CSRF-Token": token}, {"csrf": token}),
            ({"Host": "evil.example", "X-CSRF-Token": token}, {"csrf": token}),
        ):
            if not headers and f"{method} {path}" in WITHOUT_TOKEN:
                continue
            response = await app.client.request(method, fill(path), data=form, headers=headers)
            # The route accepts only files.
            if response.status_code == 415:
                files = {"file": ("a.zip", b"PK")}
                response = await app.client.request(
                    method, fill(path), data=form, files=files, headers=headers
                )
            assert response.status_code in (401, 403), (method, path, headers, response.status_code)


async def test_every_page_has_a_strict_content_security_policy(app: AppFixture) -> None:
    await signed_in(app)
    page_count = 0
    for method, route in routes(app):
        if method != "GET" or route.path.startswith(("/static", "/pages")):
            continue
        response = await app.client.get(fill(route.path), follow_redirects=True)
        if "text/html" not in response.headers.get("content-type", ""):
            continue
        page_count += 1
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, route.path
        assert "unsafe" not in policy, route.path
        assert "frame-ancestors 'none'" in policy, route.path
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["X-Frame-Options"] == "DENY"
        assert not INLINE.search(response.text), (route.path, INLINE.search(response.text))
    assert page_count > 15


@pytest.fixture
async def public(tmp_path: Path) -> AsyncIterator[AppFixture]:
    async with running_app(tmp_path, public_url="https://six.example.com", previews="allow") as result:
        yield result


async def test_cookies_behind_https_are_secure_and_http_only(public: AppFixture) -> None:
    visitor = client(public.asgi, "192.0.2.9", "https://six.example.com")
    async with visitor:
        entered = await visitor.get("/signin", params={"token": await link(public)})
        response = await visitor.post("/signin/passkey/ask")
        for answer in (entered, response):
            cookie = answer.headers["Set-Cookie"].lower()
            assert all(word in cookie for word in ("secure", "httponly", "samesite=lax", "path=/;")), cookie
            assert cookie.startswith("__host-sixfold_"), cookie
            assert "domain=" not in cookie
        for host in (
            "evil.example",
            "six.example.com.evil.example",
            "six.example.com@evil.example",
            "localhost:1",
        ):
            answer = await visitor.get("/account/security", headers={"Host": host})
            assert "ada@example.com" not in answer.text or host == "localhost:1"
            assert "evil.example" not in answer.headers.get("Location", "")


async def test_cookie_set_by_another_host_of_the_domain_is_ignored(public: AppFixture) -> None:
    """Another host can set a cookie for the domain, but none with the prefix `__Host-`."""
    async with client(public.asgi, "192.0.2.9", "https://six.example.com") as visitor:
        await visitor.get("/signin", params={"token": await link(public)})
        moment = await public.database.read(now())
        ben = await public.database.read(accounts.by_email("ben@example.com"))
        session = login_sessions.new_session(ben.id, moment, LoginDetails("link"))
        planted = f"sixfold_session={await public.database.write(session)}"
        own = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
        for cookies in (f"{own}; {planted}", f"{planted}; {own}"):
            page = await visitor.get("/account/security", headers={"Cookie": cookies})
            assert ("ada@example.com" in page.text, "ben@example.com" in page.text) == (True, False)
        visitor.cookies.clear()
        assert (await visitor.get("/account/security", headers={"Cookie": planted})).status_code == 303


async def test_sign_in_attempts_behind_a_proxy_count_per_client(public: AppFixture) -> None:
    async def request_status(peer: str, forwarded: str) -> int:
        async with client(public.asgi, peer, "https://six.example.com") as visitor:
            response = await visitor.post("/signin/passkey/ask", headers={"X-Forwarded-For": forwarded})
            return response.status_code

    proxy = [await request_status("10.0.0.2", "192.0.2.1, 198.51.100.7") for _ in range(31)]
    assert proxy == [200] * 30 + [429]
    assert await request_status("10.0.0.2", "198.51.100.7, 192.0.2.1") == 200
    direct = [await request_status("93.184.216.34", f"192.0.2.{number}") for number in range(31)]
    # The header of an untrusted proxy is ignored.
    assert direct[-1] == 429


ELSEWHERE = (
    "https://evil.example/",
    "//evil.example",
    "/\\evil.example",
    "/%09/evil.example\\",
    "/\t/evil.example",
    "\n//evil.example",
    "javascript:alert(1)",
    "/a//evil.example",
    "/" + "a" * 2000,
    "account",
    "/account\r\nSet-Cookie: a=b",
    "/@evil.example/\u2028",
)


async def test_login_redirects_to_paths_of_this_server_only(app: AppFixture) -> None:
    assert [own_path(there) for there in ELSEWHERE] == [""] * len(ELSEWHERE)
    stored = passwords.make("correct horse")
    await app.database.write(accounts.set_password_hash(app.account.id, stored))
    for there in ELSEWHERE[:4]:
        form = {"email": "ada@example.com", "password": "correct horse", "next": there}
        response = await app.visitor().post("/signin", data=form)
        assert (response.status_code, response.headers["Location"]) == (303, "/")


async def test_sign_in_ends_the_previous_session(app: AppFixture) -> None:
    moment = await app.database.read(now())
    ben = await app.database.read(accounts.by_email("ben@example.com"))
    planted = await app.database.write(login_sessions.new_session(ben.id, moment, LoginDetails("password")))
    fixed = {"Cookie": f"sixfold_session={planted}"}
    entered = await app.visitor().get("/signin", params={"token": await link(app)}, headers=fixed)
    assert entered.status_code == 303
    assert planted not in entered.headers["Set-Cookie"]
    assert await app.database.read(login_sessions.session(planted)) is None
    made_up = app.visitor()
    made_up.cookies.set("sixfold_session", "sess_" + "A" * 43)
    assert (await made_up.get("/account")).status_code == 303


async def test_login_link_opened_from_another_site_does_not_sign_in(app: AppFixture) -> None:
    token = await link(app)
    visitor = app.visitor()
    assert (await visitor.head("/signin", params={"token": token})).status_code == 200
    led = await visitor.get("/signin", params={"token": token}, headers={"Sec-Fetch-Site": "cross-site"})
    assert led.status_code == 200
    assert "Set-Cookie" not in led.headers
    foreign = {"Origin": "https://evil.example"}
    assert (await visitor.post("/signin", data={"token": token}, headers=foreign)).status_code == 403
    old = {"User-Agent": "Mozilla/5.0 (Windows NT 6.1; rv:60.0) Gecko/20100101 Firefox/60.0"}
    for path in ("/signin", "/signin/passkey", "/signin/passkey/ask"):
        assert (await visitor.post(path, data={"token": token}, headers=old)).status_code == 403
    # Over http, browsers do not state to other machines which site a link is from.
    plain = app.visitor(peer="192.168.0.9", base_url="http://192.168.0.2:8600")
    shown = await plain.get("/signin", params={"token": token}, headers=old)
    assert (shown.status_code, "Set-Cookie" in shown.headers) == (200, False)
    assert token in shown.text
    assert (await visitor.post("/signin", data={"token": token})).headers["Location"] == "/"
    # A used link leads a browser that is signed in to the start page, without another session.
    again = await visitor.post("/signin", data={"token": token})
    assert (again.headers["Location"], "Set-Cookie" in again.headers) == ("/", False)
    assert (await app.visitor().post("/signin", data={"token": token})).status_code == 401


@pytest.mark.parametrize(
    "agent",
    [
        "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
        "TelegramBot (like TwitterBot)",
        "WhatsApp/2.23.20.0",
        "facebookexternalhit/1.1",
        "Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)",
        "Mozilla/5.0 (Windows NT 6.1; WOW64) SkypeUriPreview Preview/0.5",
    ],
)
async def test_link_preview_does_not_use_up_a_login_link(any_database_app: AppFixture, agent: str) -> None:
    token = await link(any_database_app)
    program, person = any_database_app.visitor(), any_database_app.visitor()
    shown = await program.get("/signin", params={"token": token}, headers={"User-Agent": agent})
    assert (shown.status_code, "set-cookie" in shown.headers) == (200, False)
    assert (await person.get("/signin", params={"token": token})).status_code == 303


async def test_ending_sessions_and_keys_of_another_account_is_404(app: AppFixture) -> None:
    moment = await app.database.read(now())
    ben = await app.database.read(accounts.by_email("ben@example.com"))
    token = await app.database.write(login_sessions.new_session(ben.id, moment, LoginDetails("password")))
    (session,) = await app.database.read(login_sessions.of_account(ben.id, token))
    key = await app.database.write(keys.create(ben.id))
    form = {"csrf": await signed_in(app)}
    for path in (f"/account/sessions/{session['id']}/end", f"/account/keys/{key.id}/revoke"):
        assert (await app.client.post(path, data=form)).status_code == 404
    assert await app.database.read(login_sessions.session(token)) is not None
    assert (
        await app.client.get("/api/account", headers={"Authorization": f"Bearer {key.api_key}"})
    ).status_code == 200


async def test_signing_out_everywhere_ends_the_other_sessions(app: AppFixture) -> None:
    moment = await app.database.read(now())
    others = [
        await app.database.write(
            login_sessions.new_session(app.account.id, moment, LoginDetails("password", "Firefox"))
        )
        for _ in range(2)
    ]
    login_link = await link(app)
    form = {"csrf": await signed_in(app)}
    page = await app.client.get("/account/security")
    assert page.text.count("Firefox") >= 2
    response = await app.client.post("/account/sessions/end", data=form)
    assert response.headers["Location"].endswith("done=sessions")
    assert [await app.database.read(login_sessions.session(token)) for token in others] == [
        None,
        None,
    ]
    assert (await app.visitor().get("/signin", params={"token": login_link})).status_code == 401
    assert (await app.client.get("/account")).status_code == 200


async def test_password_change_needs_the_old_and_ends_other_sessions(app: AppFixture) -> None:
    form = {"csrf": await signed_in(app)}

    async def try_sign_in(**fields: str) -> httpx.Response:
        return await app.client.post("/account/password", data={**form, **fields})

    assert (await try_sign_in(password="short")).status_code == 400
    assert (await try_sign_in(password="correct horse")).status_code == 303
    other = app.visitor()
    await other.post("/signin", data={"email": "ada@example.com", "password": "correct horse"})
    assert (await other.get("/account")).status_code == 200
    assert (await try_sign_in(password="battery staple")).status_code == 400
    assert (await try_sign_in(password="battery staple", current="wrong horse")).status_code == 400
    assert (await try_sign_in(password="battery staple", current="correct horse")).status_code == 303
    assert (await other.get("/account")).status_code == 303
    assert (await try_sign_in(password="x" * 1025, current="battery staple")).status_code == 400
    assert [(await try_sign_in(password="battery staple", current="no")).status_code for _ in range(4)] == [
        400,
        400,
        400,
        429,
    ]


async def test_security_page_lists_events_in_pages_of_30(app: AppFixture) -> None:
    form = {"csrf": await signed_in(app)}
    await app.client.post("/account/keys", data=form)
    for _ in range(31):
        await app.database.write(keys.create(app.account.id))
    page = await app.client.get("/account/security")
    assert page.text.count("Created a key") == 30
    older = re.search(r'href="(/account/security\?cursor=[^"#]+)', page.text)
    assert older is not None
    rest = await app.client.get(older[1])
    assert "Signed in" in rest.text
    assert "Created the account" in rest.text
    assert (await app.client.get("/account/security?cursor=" + "x" * 100)).status_code == 400
    assert app.key not in page.text + rest.text


async def test_account_page_shows_the_limits_of_a_key(app: AppFixture) -> None:
    csrf = await signed_in(app)
    for form in (
        {"services": "ra1, web_search, tools", "budget_day": "5", "budget_month": "20.50"},
        {"right.memory.read": "on"},
    ):
        assert (await app.client.post("/account/keys", data={"csrf": csrf, **form})).status_code == 200
    text = html.unescape((await app.client.get("/account/keys")).text)
    assert "<dd>only ra1, web_search, tools; 5.00 USD per day; 20.50 USD per month</dd>" in text
    assert "<dd>run, memory.read, memory.write, account.read</dd>" in text
    assert "<dd>memory.read</dd><dt>Limits</dt><dd>none</dd>" in text
    # The key that the account had before has no limits.
    assert "<dd>none</dd>" in text
    assert "budget_day" not in re.sub(r"<input[^>]*>", "", text)


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (keys.KeyLimits(), "none"),
        (keys.KeyLimits(collections=("a", "b")), "only the collections a, b"),
        (
            keys.KeyLimits(rpm=60, tpm=1000, budget_day=0),
            "0.00 USD per day; 60 requests per minute; 1000 tokens per minute",
        ),
    ],
)
def test_limits_of_a_key_as_text(scope: keys.KeyLimits, words: str) -> None:
    assert account.describe_limits(scope) == words
