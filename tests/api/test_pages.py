"""HTML pages: login, the form of the start page, the account; and requests from other sites."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

from sixfold.core.accounts import accounts
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.database import one
from sixfold.ui.docs.repository import DocsRepository
from sixfold.ui.login import passwords
from sixfold.ui.templating import STATIC
from tests.api.app_fixture import AppFixture, running_app

HTML = {"Accept": "text/html"}
RUN = "/pages/run"
IMAGE_RUN = {"model": "ra1", "input": {"prompt": "a fox"}, "wait": True}


async def link(app: AppFixture, account: Account | None = None) -> str:
    """Return the token of a one-time link for the account, or for the first one."""
    clock = await app.database.read(one("clock"))
    assert clock is not None
    return await app.database.write(login_sessions.new_link((account or app.account).id, clock["now"]))


async def signed_in(app: AppFixture, account: Account | None = None) -> str:
    """Sign the client in, by default as the first account; return the CSRF token of its pages."""
    await app.client.get("/signin", params={"token": await link(app, account)})
    page = await app.client.get("/account")
    result = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert result is not None
    return result[1]


async def test_the_start_page_asks_for_a_first_password(app: AppFixture) -> None:
    csrf = await signed_in(app)
    notice = "Set a password or add a passkey"
    assert notice in (await app.client.get("/", headers=HTML)).text
    second_response = await app.client.get("/signin", params={"again": 1, "next": "/account/keys"})
    assert "Ask the operator of this server for a new sign-in link" in second_response.text
    form = {"csrf": csrf, "password": "correct horse battery"}
    assert (await app.client.post("/account/password", data=form)).status_code == 303
    assert notice not in (await app.client.get("/", headers=HTML)).text
    second_response = await app.client.get("/signin", params={"again": 1, "next": "/account/keys"})
    assert "and submit it again" in second_response.text


async def test_start_page_has_no_inline_or_external_scripts(app: AppFixture) -> None:
    page = await app.client.get("/", headers=HTML)
    policy = page.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe-inline" not in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(
        r"<script(?![^>]*src=)|\son\w+=|style=|javascript:|https?://(?!127\.0\.0\.1)", page.text
    )
    for path in re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text):
        asset = await app.client.get(path)
        assert asset.status_code == 200
        assert "immutable" in asset.headers["Cache-Control"]
    assert {path.name for path in STATIC.iterdir()} >= {"sixfold.css", "start.js", "sixfold.svg"}


@pytest.mark.parametrize(
    ("headers", "compressed"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({}, False),
        ({"Sec-Fetch-Site": "none", "Accept-Encoding": "gzip;q=0"}, False),
    ],
)
async def test_pages_with_a_session_are_compressed_for_this_site(
    app: AppFixture, headers: dict[str, str], compressed: bool
) -> None:
    await signed_in(app)
    for path in ("/catalog?q=image", "/nowhere"):
        page = await app.client.get(path, headers={**HTML, **headers})
        assert page.headers.get("Content-Encoding") == ("gzip" if compressed else None)
        assert page.text.rstrip().endswith("</html>")
        assert page.headers["Vary"] == "Accept-Encoding, Cookie, Sec-Fetch-Site"


async def test_pages_without_a_cookie_are_compressed(app: AppFixture) -> None:
    page = await app.client.get("/docs", headers=HTML)
    assert page.headers["Content-Encoding"] == "gzip"
    assert int(page.headers["Content-Length"]) < len(page.content) / 3
    head = await app.client.head("/docs", headers=HTML)
    assert head.headers["Content-Length"] == page.headers["Content-Length"]
    plain = await app.client.get("/docs", headers={**HTML, "Accept-Encoding": "identity"})
    assert ("Content-Encoding" in plain.headers, plain.text) == (False, page.text)


async def test_not_found_is_a_page_for_browsers_and_json_for_programs(app: AppFixture) -> None:
    page = await app.client.get("/nowhere", headers={"Accept": "text/html,application/xhtml+xml"})
    assert (page.status_code, page.headers["Content-Type"].partition(";")[0]) == (404, "text/html")
    assert ">Home</a>" in page.text
    page = await app.client.get("/catalog/nope", headers=HTML)
    assert "<h1>Model nope not found</h1>" in page.text
    assert '<a class="step" href="/catalog">Catalog</a>' in page.text
    assert "/api/" not in page.text
    response = await app.client.get("/nowhere", headers={"Accept": "*/*"})
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    response = await app.client.get("/api/nowhere", headers=HTML)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_fonts_are_local_immutable_and_preloaded(app: AppFixture) -> None:
    page = await app.client.get("/signin", headers=HTML)
    assert "font-src 'self'" in page.headers["Content-Security-Policy"]
    ahead = re.search(r'<link rel="preload" href="([^"]+)" as="font" type="font/woff2" cross', page.text)
    result = re.findall(r'url\("(fonts/[^"]+)"\)', (STATIC / "sixfold.css").read_text("utf-8"))
    assert ahead is not None
    assert ahead[1] in {f"/static/{path}" for path in result}
    assert {path.partition("?")[0] for path in result} == {
        f"fonts/{file.name}" for file in (STATIC / "fonts").glob("*.woff2")
    }
    for path in result:
        face = await app.client.get(f"/static/{path}")
        assert face.headers["Content-Type"] == "font/woff2"
        assert "immutable" in face.headers["Cache-Control"]
        assert face.content[:4] == b"wOF2"
        assert len(face.content) <= 60 * 1024
        assert path.endswith(f"?v={hashlib.sha256(face.content).hexdigest()[:12]}")


async def test_page_run_is_charged_and_needs_a_csrf_token(app: AppFixture) -> None:
    assert (await app.client.post(RUN, json=IMAGE_RUN)).status_code == 401
    token = await signed_in(app)
    for inputs in ([], [(b"X-CSRF-Token", b"wrong")], [(b"X-CSRF-Token", "é".encode())]):
        assert (await app.client.post(RUN, json=IMAGE_RUN, headers=inputs)).status_code == 403
    good = await app.client.post(RUN, json=IMAGE_RUN, headers={"X-CSRF-Token": token})
    assert await app.balance() == ("4.96", "0.00")
    page = await app.client.get(f"/predictions/{good.json()['id']}")
    assert page.status_code == 200
    assert "charged" in page.text
    assert good.json()["output"]["url"].rpartition("/media/")[2] in page.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
async def test_cross_site_requests_are_403(app: AppFixture, headers: dict[str, str]) -> None:
    token = await signed_in(app)
    form = {"csrf": token, "email": "a@b.c", "password": "x"}
    response = await app.client.post(RUN, json=IMAGE_RUN, headers={**headers, "X-CSRF-Token": token})
    posted = [await app.client.post(path, data=form, headers=headers) for path in ("/signin", "/signout")]
    assert [response.status_code, *(answer.status_code for answer in posted)] == [403] * 3
    assert await app.balance() == ("5.00", "0.00")
    if "Host" in headers:
        for path in ("/", "/account", "/docs", "/signin"):
            answer = await app.client.get(path, headers={**HTML, **headers})
            assert answer.status_code == 403
            assert "ada@example.com" not in answer.text


async def test_sign_in_link_works_once_and_cookie_is_http_only(app: AppFixture) -> None:
    token = await link(app)
    first = await app.client.get("/signin", params={"token": token})
    assert (first.status_code, first.headers["Location"]) == (303, "/")
    cookie = first.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    second_response = await app.visitor().get("/signin", params={"token": token})
    assert second_response.status_code == 401
    account = await app.client.get("/account")
    assert "ada@example.com" in account.text
    assert "5.00" in account.text
    assert (await app.visitor().get("/account")).headers["Location"] == "/signin?next=%2Faccount"


async def test_signing_out_ends_the_session_on_the_server(app: AppFixture) -> None:
    token = await signed_in(app)
    remaining = dict(app.client.cookies)
    wrong = await app.client.post("/signout", data={"csrf": "x"})
    assert wrong.status_code == 403
    response = await app.client.post("/signout", data={"csrf": token})
    assert response.headers["Location"] == "/signin"
    old = app.visitor()
    old.cookies.update(remaining)
    assert (await old.get("/account")).status_code == 303


async def test_password_logins_are_checked_and_rate_limited(app: AppFixture) -> None:
    stored = passwords.make("correct horse")
    await app.database.write(accounts.set_password_hash(app.account.id, stored))

    async def try_sign_in(email: str, password: str) -> int:
        response = await app.visitor().post("/signin", data={"email": email, "password": password})
        return response.status_code

    assert await try_sign_in("Ada@example.com ", "correct horse") == 303
    assert [await try_sign_in("ada@example.com", "wrong") for _ in range(4)] == [401] * 4
    assert [await try_sign_in("ada@example.com", "correct horse") for _ in range(3)] == [303] * 3
    assert await try_sign_in("ada@example.com", "wrong") == 401
    assert await try_sign_in("ada@example.com", "correct horse") == 429
    assert await try_sign_in("nobody@example.com", "x") == 401
    assert await try_sign_in("ben@example.com", "x") == 401
    assert not passwords.verify("x", "no hash at all")


async def test_html_in_a_prompt_is_escaped(app: AppFixture) -> None:
    token = await signed_in(app)
    attack = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    response = await app.client.post(
        RUN, json={**IMAGE_RUN, "input": {"prompt": attack}}, headers={"X-CSRF-Token": token}
    )
    page = (await app.client.get(f"/predictions/{response.json()['id']}")).text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<img src=x" not in page


async def test_the_reference_lists_every_path_and_errors_are_pages(app: AppFixture) -> None:
    page = (await app.client.get("/docs")).text.replace("<wbr>", "")
    for path in ("/api/ra1", "/create_image", "/api/containers/run", "/api/uploads"):
        assert f"<code>{path}</code>" in page
    lost = await app.client.post("/docs")
    assert lost.status_code == 405
    assert lost.headers["Content-Type"].startswith("text/html")
    assert (await app.client.get("/static/pages.py")).status_code == 404


async def test_every_guide_is_a_page_and_its_images_are_immutable(app: AppFixture) -> None:
    links = re.findall(r'href="(/docs/[^"]+)"', (await app.client.get("/docs")).text)
    assert len(links) == len(set(links)) == len(DocsRepository().snapshot().guides)
    image_urls = set[str]()
    for path in links:
        page = await app.client.get(path)
        assert page.status_code == 200, path
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        image_urls |= set(re.findall(r'src="(/docs/[^"]+)"', page.text))
    assert len(image_urls) > 20
    for path in image_urls:
        image = await app.client.get(path)
        assert image.headers["Content-Type"].startswith("image/"), path
        assert "immutable" in image.headers["Cache-Control"]
    for path in ("/docs/howto/gone", "/docs/howto/keys.md", "/docs/conf.py", "/docs/pictures/..%2fconf.py"):
        lost = await app.client.get(path)
        assert (lost.status_code, lost.headers["Content-Type"][:9]) == (404, "text/html"), path


async def test_form_with_hardware_and_variant_shows_their_price(app: AppFixture) -> None:
    token = await signed_in(app)
    page = (await app.client.get("/catalog/fast-image-native")).text
    assert "4.78 USD per hour" in page
    # The model needs 60 GB.
    assert ">48 GB" not in page
    assert 'id="option-variant"' in (await app.client.get("/catalog/text-llm")).text
    headers = {"X-CSRF-Token": token}
    request = {"model": "fast-image-native", "input": {"prompt": "a fox"}, "hardware": "gpu-141gb"}
    body = (await app.client.post("/pages/quote", json=request, headers=headers)).json()
    assert '"hardware": "gpu-141gb"' in body["samples"]["curl"]
    assert "--hardware gpu-141gb" in body["samples"]["Terminal"]
    response = await app.client.post("/pages/run", json=request, headers=headers)
    result = await app.predictions.get_any(response.json()["id"])
    assert (result.hardware, result.rate) == ("gpu-141gb", 6_380_000)
    second_html = (await app.client.get(f"/catalog/fast-image-native?from={result.id}")).text
    assert re.search(r'value="gpu-141gb" selected', second_html)
    for terms, name in (
        ({"hardware": "gpu-16gb-a"}, "hardware"),
        ({"hardware": "none"}, "hardware"),
        ({"variant": "x"}, "variant"),
    ):
        response = await app.client.post("/pages/run", json={**request, **terms}, headers=headers)
        assert response.status_code == 400
        assert response.json()["errors"][0]["input"] == name


async def test_run_with_wait_returns_its_prediction_or_error(tmp_path: Path) -> None:
    async with running_app(tmp_path, failpoints="engine.run.anime=fail", max_attempts=1) as app:
        headers = {"X-CSRF-Token": await signed_in(app)}
        request = {"model": "photoreal", "input": {"prompt": "hello"}, "wait": True}
        response = await app.client.post("/pages/run", json=request, headers=headers)
        assert (response.status_code, response.json()["status"]) == (200, "succeeded")
        assert response.json()["output"]["url"].startswith("http")
        failed = await app.client.post("/pages/run", json={**request, "model": "anime"}, headers=headers)
        assert (failed.status_code, failed.json()["code"]) == (502, "generation_failed")


def test_scripts_of_all_pages_are_within_150_kb() -> None:
    packed = {path.name: len(gzip.compress(path.read_bytes())) for path in STATIC.glob("*.js")}
    assert len(packed) > 5
    assert sum(packed.values()) <= 150_000, packed


async def test_start_page_shows_real_outputs_and_links_the_apis(app: AppFixture) -> None:
    await signed_in(app, app.operator)
    page = (await app.client.get("/", headers=HTML)).text
    assert page.count('class="sample') == 8
    for path in ("/memory", "/workflows", "/catalog", "/gallery", "/admin/engines"):
        assert f'href="{path}"' in page
    example = (await app.client.get("/catalog/anime?from=example")).text
    assert "a girl with a red umbrella" in example


async def test_the_catalog_lists_one_section_also_for_earlier_links(app: AppFixture) -> None:
    for query in ("section=Audio", "shelf=Audio", "shelf=Sound"):
        page = (await app.client.get(f"/catalog?{query}")).text
        assert 'href="/catalog/piano"' in page, query
        assert 'href="/catalog/anime"' not in page, query


async def test_error_page_shows_a_signed_in_user_as_signed_in(app: AppFixture) -> None:
    await signed_in(app)
    lost = await app.client.get("/nowhere", headers={"Accept": "text/html"})
    assert lost.status_code == 404
    assert '<a href="/account">Account</a>' in lost.text
    assert "Sign out" in lost.text
    assert "Sign in" not in lost.text
