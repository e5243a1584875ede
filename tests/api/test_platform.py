"""Uploads, stored files, the account, health."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import ORIGIN, AppFixture, bearer, running_app

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100


async def test_upload_is_stored_with_the_type_of_its_content(app: AppFixture) -> None:
    headers = {**app.bearer, "Content-Type": "text/html"}
    raw = await app.client.post("/api/uploads", content=PNG, headers=headers)
    form = await app.client.post(
        "/api/uploads", files={"file": ("x.svg", PNG, "image/svg+xml")}, headers=app.bearer
    )
    for answer in (raw, form):
        assert answer.status_code == 201
        body = answer.json()
        assert set(body) == {"url", "id", "media_type", "bytes", "sha256"}
        assert (body["media_type"], body["bytes"]) == ("image/png", len(PNG))
        assert body["sha256"] == hashlib.sha256(PNG).hexdigest()
        assert body["id"].startswith("blob_")
        assert body["url"].startswith(f"{ORIGIN}/media/")
        response = await app.client.get(body["url"])
        assert response.content == PNG
        assert response.headers["Content-Type"] == "image/png"


TYPED = [
    (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "image/svg+xml", True),
    (b"<?xml version='1.0'?><svg/>", "image/svg+xml", True),
    (b"  <!DOCTYPE html><script>alert(1)</script>", "text/html", True),
    (b"plain words", "text/plain", False),
    (b"\x00\x01\x02\x03binary", "application/octet-stream", True),
    (b"PK\x03\x04rest", "application/zip", True),
    (b"RIFF\x10\x00\x00\x00WAVEfmt ", "audio/wav", False),
    (b"\x00\x00\x00\x20ftypisom....", "video/mp4", False),
    (b"glTF\x02\x00\x00\x00", "model/gltf-binary", False),
    ("ünïcode".encode(), "text/plain", False),
]


@pytest.mark.parametrize(("data", "kind", "handed_over"), TYPED)
async def test_uploads_are_served_without_active_content(
    app: AppFixture, data: bytes, kind: str, handed_over: bool
) -> None:
    headers = {**app.bearer, "Content-Type": "image/png"}
    body = (await app.client.post("/api/uploads", content=data, headers=headers)).json()
    response = await app.client.get(body["url"])
    assert body["media_type"] == kind
    assert response.headers["Content-Type"].partition(";")[0] == kind
    assert ("attachment" in response.headers.get("Content-Disposition", "")) is handed_over
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response.headers["Content-Security-Policy"]


@pytest.mark.parametrize("declared", ["text/html", "text/html; charset=utf-8"])
async def test_uploads_declared_html_are_attachments(app: AppFixture, declared: str) -> None:
    headers = {**app.bearer, "Content-Type": declared}
    body = (await app.client.post("/api/uploads", content=b"<h1>Hello</h1>", headers=headers)).json()
    response = await app.client.get(body["url"])
    assert body["media_type"] == "text/html"
    assert body["url"].endswith(".html")
    assert response.headers["Content-Disposition"] == "attachment"
    assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/form-data; boundary=x", b"--x\r\n"),
        ("multipart/form-data; boundary=x", b"not a form at all"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nab'),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="other"\r\n\r\nab\r\n--x--',
        ),
        ("multipart/form-data; boundary=x", b"--x\r\n" + b"A" * 20_000 + b": 1\r\n\r\nab\r\n--x--"),
        ("multipart/form-data; boundary=" + "y" * 500, b"x"),
        ("application/octet-stream", b""),
    ],
)
async def test_malformed_upload_is_400_and_leaves_no_file(app: AppFixture, kind: str, content: bytes) -> None:
    response = await app.client.post(
        "/api/uploads", content=content, headers={**app.bearer, "Content-Type": kind}
    )
    assert response.status_code == 400, response.text
    folder = app.settings.data_dir / "tmp"
    assert not folder.exists() or not list(folder.iterdir())


async def test_uploads_have_a_limit_and_a_quota(tmp_path: Path) -> None:
    async with running_app(tmp_path, upload_body_bytes=1000, upload_quota_bytes=1500) as app:

        async def send(size: int) -> int:
            response = await app.client.post("/api/uploads", content=b"x" * size, headers=app.bearer)
            return response.status_code

        assert [await send(size) for size in (1001, 1000, 501, 500)] == [413, 201, 413, 201]

        async def dripping() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b"x" * 100

        streamed = await app.client.post("/api/uploads", content=dripping(), headers=app.bearer)
        assert (streamed.status_code, streamed.json()["code"]) == (413, "too_large")


async def test_limited_keys_upload_nothing_and_see_no_secrets(app: AppFixture) -> None:
    key = await app.limited_key(KeyLimits(collections=("work",)))
    headers = {"Authorization": f"Bearer {key}"}
    assert (await app.client.post("/api/uploads", content=b"x", headers=headers)).status_code == 403
    for path in ("/api/account", "/api/account/ledger", "/api/containers/predictions"):
        assert (await app.client.get(path, headers=headers)).status_code == 403


RANGES = [
    ("bytes=0-4", 206, b"01234", "bytes 0-4/10"),
    ("bytes=5-", 206, b"56789", "bytes 5-9/10"),
    ("bytes=-3", 206, b"789", "bytes 7-9/10"),
    ("bytes=-100", 206, b"0123456789", "bytes 0-9/10"),
    ("bytes=9-100", 206, b"9", "bytes 9-9/10"),
    ("BYTES = 1-1", 206, b"1", "bytes 1-1/10"),
    ("bytes=10-", 416, b"", "bytes */10"),
    ("bytes=-0", 416, b"", "bytes */10"),
    ("bytes=4-2", 200, b"0123456789", None),
    ("bytes=0-1,3-4", 200, b"0123456789", None),
    ("items=0-1", 200, b"0123456789", None),
    ("bytes=", 200, b"0123456789", None),
    ("bytes=-", 200, b"0123456789", None),
    ("bytes=" + "9" * 40 + "-", 200, b"0123456789", None),
    ("bytes=٣-٤", 200, b"0123456789", None),
]


@pytest.mark.parametrize(("byte_range", "status", "data", "message"), RANGES)
async def test_uploads_are_served_in_byte_ranges(
    app: AppFixture, byte_range: str, status: int, data: bytes, message: str | None
) -> None:
    body = (await app.client.post("/api/uploads", content=b"0123456789", headers=app.bearer)).json()
    response = await app.client.get(body["url"], headers=[(b"Range", byte_range.encode())])
    assert (response.status_code, response.content) == (status, data)
    assert response.headers.get("Content-Range") == message
    head = await app.client.head(body["url"])
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", "10")


async def test_uploads_support_conditional_requests(app: AppFixture) -> None:
    body = (await app.client.post("/api/uploads", content=b"0123456789", headers=app.bearer)).json()
    tag = (await app.client.get(body["url"])).headers["ETag"]
    for inputs in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        response = await app.client.get(body["url"], headers={"If-None-Match": inputs})
        assert (response.status_code, response.content) == (304, b"")
    for condition, status in ((tag, 206), ('"other"', 200)):
        headers = {"If-Range": condition, "Range": "bytes=0-1"}
        assert (await app.client.get(body["url"], headers=headers)).status_code == status


async def test_account_and_its_ledger_are_returned(app: AppFixture) -> None:
    for _ in range(3):
        await app.client.post("/api/ra1", json={"prompt": "x"}, headers=app.bearer)
    body = (await app.client.get("/api/account", headers=app.bearer)).json()
    secret = body.pop("webhook_secret")
    assert secret.startswith("whsec_")
    assert body == {
        "account_id": app.account.id,
        "email": "ada@example.com",
        "balance_usd": "4.88",
        "held_usd": "0.00",
        "credits": 488,
        "plan": "free",
    }
    entries, cursor, pages = [], "", 0
    while cursor is not None:
        query = {"limit": "2", **({"cursor": cursor} if cursor else {})}
        page = (await app.client.get("/api/account/ledger", params=query, headers=app.bearer)).json()
        entries += page["entries"]
        cursor, pages = page["next_cursor"], pages + 1
    assert [entry["amount_usd"] for entry in entries] == ["-0.04", "-0.04", "-0.04", "5.00"]
    assert [entry["kind"] for entry in entries] == ["charge", "charge", "charge", "credit"]
    assert pages == 2
    assert all(entry["request_id"].startswith("req_") for entry in entries[:3])
    for bad in ("0", "201", "x", "-1", "9" * 30):
        response = await app.client.get("/api/account/ledger", params={"limit": bad}, headers=app.bearer)
        assert (response.status_code, response.json()["code"]) == (400, "invalid_input")
        message = f"limit must be from 1 to 200 (got {bad[:20]})"
        assert response.json()["errors"] == [{"input": "limit", "message": message}]
    nonsense = await app.client.get("/api/account/ledger", params={"cursor": "x"}, headers=app.bearer)
    assert nonsense.status_code == 400


async def test_health_checks_and_metrics(app: AppFixture) -> None:
    await app.client.post("/api/ra1", json={"prompt": "x"}, headers=app.bearer)
    await app.client.get("/media/guess-me-not")
    for path in ("/livez", "/readyz"):
        assert (await app.client.get(path)).json() == {"status": "ok"}
    operator = bearer(await app.operator_key())
    figures = (await app.client.get("/metrics", headers=operator)).text
    assert (await app.client.get("/metrics")).status_code == 401
    counted = 'sixfold_requests_total{face="media",method="POST",route="/api/ra1",status="200"} 1.0'
    assert counted in figures
    assert 'route="/media/{name}",status="404"' in figures
    assert "guess-me-not" not in figures
    assert 'sixfold_predictions{state="queued"} 0.0' in figures
    assert "sixfold_held_usd 0.0" in figures
    assert "sixfold_engines_waiting_for_memory 0.0" in figures
    assert re.search(r'sixfold_worker_memory_bytes{state="allowed"} [1-9]', figures)
    workers = re.findall(r'sixfold_workers{engine="scene-painter",state="(?:busy|idle)"} (\S+)', figures)
    assert sum(map(float, workers)) == 1, "the one that made the picture"
    away = app.visitor("203.0.113.9")
    assert (await away.get("/metrics")).status_code == 401
    assert (await away.get("/metrics", headers=app.bearer)).status_code == 403


async def test_request_with_the_hop_header_is_403(app: AppFixture) -> None:
    response = await app.client.get("/livez", headers={"X-Sixfold-Hop": "1"})
    assert response.status_code == 403


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/api/services", "/api/containers/templates", "/api/posts"]
)
async def test_head_requests_have_the_headers_of_get(app: AppFixture, path: str) -> None:
    head, get = await app.client.head(path), await app.client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert (await app.client.head("/api/service")).status_code == 405


@pytest.mark.parametrize(
    "path", ["/api/account", "/api/pages", "/v1/models", "/ollama/api/tags", "/replicate/v1/account"]
)
async def test_error_of_a_missing_key_names_the_header(app: AppFixture, path: str) -> None:
    sentence = "This request requires the header Authorization: Bearer <API_KEY>"
    missing = await app.client.get(path)
    assert missing.status_code == 401
    assert sentence in missing.text
    for value in (app.key, f"Token {app.key}"):
        other = await app.client.get(path, headers={"authorization": value})
        assert (other.status_code, sentence in other.text) == (401, True)
    unknown = await app.client.get(path, headers=bearer("sf_unknown"))
    assert unknown.status_code == 401
    assert "Invalid API key" in unknown.text
