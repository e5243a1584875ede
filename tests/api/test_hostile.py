"""Hostile requests: path traversal, URLs of internal hosts, and bodies that attack parsers."""

from __future__ import annotations

import asyncio
import io
import itertools
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from sixfold.core.accounts.keys import KeyLimits
from sixfold.web.logs import JsonFormatter
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_pages import signed_in
from tests.harness import databases
from tests.unit.net import corpus

SMALL = {"prompt": "x", "width": "64", "height": "64"}


def climbing() -> list[str]:
    """Return two hundred paths that escape a folder."""
    ups = (
        "..",
        ".",
        "",
        "...",
        "%2e%2e",
        "..%2f",
        "%2e%2e%2f",
        "..%5c",
        "..\\",
        "%252e%252e",
        "..%00",
        "..;",
        "．．",
        "‥",
        "..%c0%af",
        "~",
        "$HOME",
        "..\u2215",
    )
    ends = ("etc/passwd", "sixfold.db", "local.key", "server.key", "x.png", "store/blobs", "../x.png")
    results = [f"{up}/{end}" for up, end in itertools.product(ups, ends)]
    results += [f"a/{up}/{end}" for up, end in itertools.product(ups[:8], ends[:5])]
    results += [
        "/etc/passwd",
        "//etc/passwd",
        "a//b.png",
        "a/",
        "/",
        ".",
        "..",
        "a/.",
        "a/..",
        "./a.png",
        "a/./b.png",
        "C:/x.png",
        "C:\\x.png",
        "\\\\host\\x.png",
        "file:///etc/passwd",
        "a\x00.png",
        "a\n.png",
        "a b.png",
        "a%20b.png",
        "é.png",
        "a.png\u202e",
        "a?b.png",
        "a#b.png",
        "a&b.png",
        "a*b.png",
        "a:b.png",
        "a|b.png",
        "'a.png",
        '"a.png',
        "a`b.png",
        "{a}.png",
        "~new/x.png",
        "con\tfig.png",
        " a.png",
        "a.png ",
        "\ufeffa.png",
    ]
    return list(dict.fromkeys(results))


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


async def test_hostile_save_paths_write_no_file_outside_the_folder(app: AppFixture, tmp_path: Path) -> None:
    paths = climbing()
    assert len(paths) >= 190
    for path in paths:
        response = await app.client.get("/create_and_upload_image", params={**SMALL, "save_path": path})
        # The name is unusual, but inside the folder.
        if response.status_code == 200:
            assert path == "x.png" or set(path) <= set("abcdefghijklmnopqrstuvwxyz./-_0123456789"), path
            continue
        assert response.status_code == 422, path
        assert response.json()["detail"][0]["loc"] == ["query", "save_path"]
    assert not (tmp_path.parent / "x.png").exists()
    outside = {name for name in files(tmp_path) if name.endswith(".png") and not name.startswith("uploads/")}
    assert outside == set()
    secrets = [(tmp_path / "server.key").read_bytes()]
    for path, prefix in itertools.product(paths, ("/media/", "/uploads/", "/static/", "/openapi/")):
        for written in (path, quote(path, safe="")):
            response = await raw_response(app, prefix + written)
            assert response[0] in {200, 404, 405, 307}, prefix + written
            assert not any(secret in response[1] for secret in secrets)
            assert b"root:" not in response[1]


async def raw_response(app: AppFixture, path: str) -> tuple[int, bytes]:
    """Send a decoded path that is not normalized, as an ASGI server passes it; return status and body."""
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1:8600")],
        "client": ("127.0.0.1", 4000),
        "server": ("127.0.0.1", 8600),
    }
    await app.asgi(scope, receive, send)  # pyright: ignore[reportArgumentType]  # plain dictionaries, as servers send
    status = next(int(str(m["status"])) for m in sent if m["type"] == "http.response.start")
    body = b"".join(
        m["body"] for m in sent if m["type"] == "http.response.body" and isinstance(m["body"], bytes)
    )
    return status, body


async def test_hostile_urls_do_not_reach_this_machine(app: AppFixture) -> None:
    hits: list[bytes] = []
    # Names resolve as the corpus states, without DNS requests.
    app.server.fetcher.resolver.lookup = corpus.lookup

    async def canary(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hits.append(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(canary, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        gate = asyncio.Semaphore(16)

        async def refuse(url: str) -> tuple[str, int]:
            async with gate:
                body = {"source_image_url": url, "style_prompt": "ukiyo-e"}
                response = await app.client.post("/api/style-transfer", json=body, headers=app.bearer)
                return url, response.status_code

        urls = [url for url in corpus.hostile_urls(port) if encodable(url)]
        responses = await asyncio.gather(*map(refuse, urls))
    assert [pair for pair in responses if pair[1] != 422] == []
    assert hits == []
    assert await app.balance() == ("5.00", "0.00")


METADATA = "http://169.254.169.254/latest/meta-data"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": [{"image_url": {"url": METADATA}}]}]}),
        ("embeddings", {"messages": [{"role": "user", "content": [{"image_url": {"url": METADATA}}]}]}),
        ("moderations", {"input": [{"type": "image_url", "image_url": {"url": METADATA}}]}),
        ("audio/speech", {"input": "x", "voice": "alloy", "ref_audio": METADATA}),
        ("completions", {"prompt": "x", "image_url": METADATA}),
    ],
)
async def test_model_server_in_the_local_network_opens_no_url(
    gateway: Gateway, path: str, fields: dict[str, Any]
) -> None:
    body = {"model": "acme/small", **fields}
    response = await gateway.app.client.post(f"/v1/{path}", json=body, headers=gateway.headers)
    assert (response.status_code, "may not be fetched" in response.text) == (400, True), response.text
    assert gateway.acme.requests == []
    assert await gateway.pending() == 0


def encodable(url: str) -> bool:
    """Return whether JSON can represent a URL."""
    return not any("\ud800" <= char <= "\udfff" for char in url)


HOSTILE = {
    "deep arrays": b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "arrays just below the recursion limit": b'{"prompt":' + b"[" * 970 + b"]" * 970 + b"}",
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a huge integer": b'{"prompt":"x","seed":' + b"9" * 10_000 + b"}",
    "a huge exponent": b'{"prompt":"x","seed":1e999999999}',
    "not a number": b'{"prompt":"x","seed":NaN}',
    "infinity": b'{"prompt":"x","seed":-Infinity}',
    "a lone surrogate": b'{"prompt":"\\ud800"}',
    "two lone surrogates": b'{"prompt":"\\udfff\\ud800"}',
    "raw surrogates": b'{"prompt":"\xed\xa0\x80"}',
    "bad UTF-8": b'{"prompt":"\xff\xfe"}',
    "a raw control": b'{"prompt":"\x00"}',
    "UTF-16": '{"prompt":"x"}'.encode("utf-16"),
    "a comment": b'{"prompt":"x"/*y*/}',
    "single quotes": b"{'prompt':'x'}",
    "a trailing comma": b'{"prompt":"x",}',
    "half an object": b'{"prompt":"x"',
    "two objects": b'{"prompt":"x"}{"prompt":"y"}',
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_bodies_are_rejected_and_free(app: AppFixture, name: str) -> None:
    browser = {"X-CSRF-Token": await signed_in(app)}
    for path in ("/api/ra1", "/api/anime", "/api/style-transfer", "/api/containers/run", "/pages/run"):
        headers = browser if path == "/pages/run" else app.bearer
        response = await app.client.post(path, content=HOSTILE[name], headers=headers)
        assert response.status_code in {400, 422}, (path, response.text)
    assert await app.balance() == ("5.00", "0.00")


async def test_unusual_valid_json_is_accepted(app: AppFixture) -> None:
    twice = await app.client.post("/api/ra1", content=b'{"prompt":"a","prompt":"b"}', headers=app.bearer)
    escaped = await app.client.post(
        "/api/ra1", content=b'{"prompt":"\\u0000\\ud83e\\udd8a"}', headers=app.bearer
    )
    full_response = await app.client.post(
        "/api/ra1", content=b'{"prompt":"x","seed":7.0}', headers=app.bearer
    )
    keys = b'{"prompt":"x",' + b",".join(b'"k%d":0' % n for n in range(20_000)) + b"}"
    many = await app.client.post("/api/ra1", content=keys, headers=app.bearer)
    assert twice.json()["prompt_used"] == "b"
    assert [a.status_code for a in (escaped, full_response, many)] == [200] * 3


async def test_nul_in_a_list_of_ids_matches_no_object(either: Path) -> None:
    async with running_gateway(either) as gateway:
        client, headers = gateway.app.client, gateway.headers
        reference = {"model": "acme/small", "input": [{"type": "item_reference", "id": "a\0b"}]}
        limited = bearer(await gateway.app.limited_key(KeyLimits(collections=("a\0b",))))
        responses = [
            await client.post("/v1/responses", json=reference, headers=headers),
            await client.post("/history", json={"delete": ["a\0b"]}, headers=headers),
            await client.get("/api/pages", headers=limited),
        ]
        assert [response.status_code for response in responses] == [404, 200, 200]


async def test_body_over_the_limit_is_413_in_the_format_of_the_api(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"json_body_bytes": 2000, "inline_body_bytes": 2000, "upload_body_bytes": 2000}
    async with running_app(tmp_path, **limits) as app:
        big = b'{"prompt":"' + b"x" * 2000 + b'"}'
        for path, shape in (
            ("/api/ra1", {"error", "status"}),
            ("/api/style-transfer", {"detail"}),
            ("/api/containers/run", {"error", "code", "status", "request_id"}),
            ("/api/uploads", {"error", "code", "status", "request_id"}),
        ):
            response = await app.client.post(path, content=big, headers=app.bearer)
            streamed = await app.client.post(path, content=slowly(big), headers=app.bearer)
            lying = {**app.bearer, "Content-Length": "9" * 30}
            lied = await app.client.post(path, content=b"{}", headers=lying)
            assert [a.status_code for a in (response, streamed, lied)] == [413] * 3, path
            assert set(response.json()) == shape


async def test_small_unexpected_body_is_ignored(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        for path in ("/health", "/v1/models", "/api/services", "/api/containers/config", "/object_info"):
            requests = [
                await app.client.request("GET", path, content=body, headers=app.bearer)
                for body in (b"{}", b"not json", slowly(b"x" * 1000), b"x" * 2**17)
            ]
            assert [response.status_code for response in requests] == [200, 200, 200, 413], path


async def slowly(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 100):
        yield data[start : start + 100]


async def test_errors_and_logs_contain_no_secrets(app: AppFixture) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("sixfold")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    canary = "sf_" + "canary0123456789" * 3
    job = (
        await app.client.post(
            "/api/ra1", json={"prompt": "x", "response_mode": "polling"}, headers=app.bearer
        )
    ).json()
    try:
        responses = [
            await app.client.post("/api/ra1", json={"api_key": canary, "prompt": "x"}),
            await app.client.post("/api/ra1", content=canary.encode() + b"{", headers=bearer(canary)),
            await app.client.get("/api/account", headers=bearer(canary)),
            await app.client.get("/create_image", params={**SMALL, "token": canary}, headers=bearer(canary)),
            await app.client.get("/signin", params={"token": canary}),
            await app.client.post("/signin", data={"email": "a@b.c", "password": canary}),
            await app.client.get(f"/media/{canary}"),
            await app.client.get(f"/api/containers/predictions/{canary}", headers=app.bearer),
            await app.client.get(job["status_url"]),
            await app.client.post(
                "/api/style-transfer", json={"source_image_url": canary, "style_prompt": "x"}
            ),
            await app.client.post(
                "/api/containers/run", json={"model": "ra2", "input": {"prompt": "FAIL"}}, headers=app.bearer
            ),
        ]
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert not any(canary in response.text for response in responses)
    assert not any("Traceback" in response.text for response in responses)
    written = stream.getvalue()
    assert "sixfold.access" in written
    for secret in (canary, app.key, job["job_id"], "canary0123456789"):
        assert secret not in written
    stored = databases.stored_bytes(app.settings.database_url, app.settings.data_dir)
    assert app.key.encode() not in stored
    assert canary.encode() not in stored


async def test_internal_error_is_500_without_details(
    app: AppFixture, caplog: pytest.LogCaptureFixture
) -> None:
    # No request can cause this error.
    await app.database.close()
    seen = []
    for method, path, shape in (
        ("POST", "/api/ra1", {"error", "status"}),
        ("GET", "/create_image?prompt=x", {"detail"}),
        ("GET", "/api/account", {"error", "code", "status", "request_id"}),
    ):
        response = await app.client.request(
            method, path, headers=app.bearer, json={} if method == "POST" else None
        )
        assert response.status_code in {500, 503}
        assert set(response.json()) == shape
        assert "sqlite" not in response.text
        assert response.headers["X-Request-Id"].startswith("req_")
        seen.append(response.status_code)
    assert "closed database" in caplog.text or 500 not in seen
