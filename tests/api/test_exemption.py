"""The loopback exemption: all its conditions together allow keyless requests, and none may be missing."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.test_own_work import PIXEL

SMALL = {"prompt": "x", "width": "64", "height": "64"}
ROUTES = (
    ("GET", "/create_image", SMALL),
    ("GET", "/create_and_upload_image", {**SMALL, "save_path": "x.png"}),
    ("GET", "/create_and_upload_image_klein", {**SMALL, "save_path": "x.png"}),
    ("POST", "/api/style-transfer", {}),
)


async def statuses(visitor: httpx.AsyncClient, headers: dict[str, str]) -> list[int]:
    """Return the status of each keyless route."""
    results = [
        await visitor.request(method, path, params=query, headers=headers) for method, path, query in ROUTES
    ]
    return [response.status_code for response in results]


# The request for style transfer is accepted, but has no body.
OPEN = [200, 200, 200, 422]
CLOSED = [401] * 4


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["127.0.0.1:8600", "localhost:8600", "[::1]:8600", "LOCALHOST", "127.1.2.3"])
async def test_loopback_requests_need_no_key(app: AppFixture, peer: str, host: str) -> None:
    assert await statuses(app.visitor(peer), {"Host": host}) == OPEN
    for site in ("none", "same-origin"):
        assert await statuses(app.visitor(peer), {"Host": host, "Sec-Fetch-Site": site}) == OPEN


@pytest.mark.parametrize(
    "peer", ["10.0.0.5", "192.168.1.2", "203.0.113.9", "fe80::1", "::ffff:10.0.0.1", "testclient", ""]
)
async def test_requests_from_another_address_need_a_key(app: AppFixture, peer: str) -> None:
    assert await statuses(app.visitor(peer), {}) == CLOSED


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "127.0.0.1@evil.example",
        "evil.example:127",
        "0.0.0.0",
        "10.0.0.1",
        "[::ffff:10.0.0.1]",
        "localhost/evil",
        "2130706433",
        "127.1",
        "localhost.",
        "",
        "[",
    ],
)
async def test_requests_with_another_host_header_need_a_key(app: AppFixture, host: str) -> None:
    assert await statuses(app.visitor(), {"Host": host}) == CLOSED


@pytest.mark.parametrize(
    "name",
    [
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Forwarded-Anything",
        "Forwarded",
        "Via",
        "X-Real-IP",
        "CF-Connecting-IP",
        "CF-Ray",
        "True-Client-IP",
        "X-Client-IP",
        "X-Original-Forwarded-For",
        "Fly-Client-IP",
        "ngrok-trace-id",
        "Tailscale-User-Login",
        "x-amzn-trace-id",
    ],
)
async def test_proxied_requests_need_a_key(app: AppFixture, name: str) -> None:
    for value in ("127.0.0.1", "for=127.0.0.1", ""):
        assert await statuses(app.visitor(), {name: value}) == CLOSED


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
async def test_cross_site_requests_need_a_key(app: AppFixture, site: str) -> None:
    assert await statuses(app.visitor(), {"Sec-Fetch-Site": site}) == CLOSED


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8600", "file://"]
)
async def test_requests_from_another_origin_need_a_key(app: AppFixture, origin: str) -> None:
    answered = await statuses(app.visitor(), {"Origin": origin})
    # The same host and port by https is this very server seen through TLS, and stays its own.
    assert answered == (OPEN if origin == "https://127.0.0.1:8600" else CLOSED)


async def test_public_url_disables_the_exemption(tmp_path: Path) -> None:
    async with running_app(tmp_path, public_url="https://pictures.example", previews="allow") as app:
        assert await statuses(app.visitor(), {}) == CLOSED
        assert (await app.visitor().get("/metrics")).status_code == 401


async def test_open_image_service_needs_no_key(tmp_path: Path) -> None:
    settings = {"open_image_service": True, "public_url": "https://pictures.example", "previews": "allow"}
    async with running_app(tmp_path, **settings) as app:
        assert await statuses(app.visitor("203.0.113.9"), {"Host": "pictures.example"}) == OPEN


async def test_exemption_applies_to_the_image_utility_api_only(app: AppFixture) -> None:
    request = {"prompt": "x", "model": "ra2", "input": {"prompt": "x"}}
    for path in ("/api/ra1", "/api/anime", "/api/containers/run", "/api/uploads"):
        assert (await app.client.post(path, json=request)).status_code == 401
    for path in ("/api/account", "/api/account/ledger", "/api/containers/predictions"):
        assert (await app.client.get(path)).status_code == 401


async def test_uploads_of_the_operator_need_a_key(any_database_app: AppFixture) -> None:
    app = any_database_app
    key = bearer(await app.operator_key())
    upload = (await app.client.post("/api/uploads", content=PIXEL, headers=key)).json()["id"]
    body = {"source_image_url": upload, "style_prompt": "watercolor"}
    own = await app.client.post("/api/style-transfer", json=body, headers=key)
    assert own.status_code == 200, own.text
    for visit in (app.visitor("127.0.0.1"), app.visitor("::1")):
        refused = await visit.post("/api/style-transfer", json=body)
        assert refused.status_code == 422, refused.text
        assert "Upload not found" in refused.text


async def test_request_with_two_host_headers_needs_a_key(app: AppFixture) -> None:
    transport = app.visitor()
    request = transport.build_request("GET", "/create_image", params=SMALL)
    request.headers = httpx.Headers([("host", "127.0.0.1"), ("host", "evil.example")])
    assert (await transport.send(request)).status_code == 401
