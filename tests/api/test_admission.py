"""Limits on open requests of one account or one address, tested on a whole server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import websockets
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher
from websockets.asyncio.client import ClientConnection

from sixfold.core.accounts import accounts
from sixfold.ui.login import passwords
from sixfold.web import refusals
from sixfold.web.connections.websocket_protocol import WebSocketProtocol
from sixfold.web.sessions import BROWSER_COOKIE
from tests.api.app_fixture import AppFixture, bearer, client, running_app
from tests.harness.embedded_server import EmbeddedServer
from tests.harness.waiting import wait_until

PUBLIC = "https://six.example.com"
RIGHT = "correct horse"


@asynccontextmanager
async def listening(app: AppFixture) -> AsyncIterator[int]:
    """The port of a server on a socket."""
    config = uvicorn.Config(app.asgi, ws=WebSocketProtocol, lifespan="off", log_config=None)
    server = EmbeddedServer(config)
    task = asyncio.create_task(server.serve())
    config.port = 0
    try:
        await wait_until(lambda: server.started)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def _open_socket(stack: AsyncExitStack, port: int, key: str) -> tuple[ClientConnection, int | None]:
    """Open a websocket; return it, and the code with which it was closed at once, if any."""
    url = f"ws://127.0.0.1:{port}/ws"
    socket = await stack.enter_async_context(
        websockets.connect(url, additional_headers=bearer(key), ping_interval=None)
    )
    try:
        await socket.recv()
    except websockets.ConnectionClosed:
        return socket, socket.close_code
    return socket, None


@pytest.mark.slow
async def test_400_websockets_of_one_account_do_not_block_others(app: AppFixture) -> None:
    before = refusals.recorder().totals["websockets"]
    async with AsyncExitStack() as stack, listening(app) as port:
        results = [await _open_socket(stack, port, app.poor) for _ in range(400)]
        assert [code for _, code in results] == [None] * 100 + [1013] * 300
        assert results[-1][0].close_reason == "too_many_websockets"
        assert refusals.recorder().totals["websockets"] == before + 300
        assert (await _open_socket(stack, port, app.key))[1] is None
        for socket, _ in results[:3]:
            await socket.close()
        async with asyncio.timeout(60):
            while (await _open_socket(stack, port, app.poor))[1] is not None:
                # Wait until the server has noticed the disconnects.
                pass


async def test_ended_event_stream_frees_its_slot(tmp_path: Path) -> None:
    async with running_app(tmp_path, event_streams_per_account=1, event_streams=1) as app:
        response = await app.client.post(
            "/api/containers/run", json={"model": "ra1", "input": {"prompt": "x"}}, headers=app.bearer
        )
        path = f"/api/containers/predictions/{response.json()['id']}/events"
        for _ in range(3):
            assert (await app.client.get(path, headers=app.bearer)).status_code == 200
            assert (await app.client.head(path, headers=app.bearer)).status_code == 200


async def test_rate_limit_applies_to_each_account_but_the_operators(tmp_path: Path) -> None:
    # One request in 10 s: the test must not depend on how long its requests take.
    async with running_app(tmp_path, requests_per_second_per_account=0.1) as app:
        ours = [await app.client.get("/api/account", headers=app.bearer) for _ in range(2)]
        assert [response.status_code for response in ours] == [200, 429]
        assert ours[-1].json()["code"] == "rate_limited"
        assert int(ours[-1].headers["Retry-After"]) >= 1
        chat = await app.client.get("/v1/models", headers=app.bearer)
        assert (chat.status_code, chat.json()["error"]["code"]) == (429, "rate_limited")
        assert (await app.client.get("/api/account", headers=bearer(app.other))).status_code == 200
        operator = bearer(await app.operator_key())
        theirs = [(await app.client.get("/api/account", headers=operator)).status_code for _ in range(5)]
        assert theirs == [200] * 5


async def test_requests_without_a_valid_key_are_limited_per_address(tmp_path: Path) -> None:
    async with running_app(tmp_path, requests_per_second_per_peer=1, public_url=PUBLIC) as app:

        async def ask(peer: str, key: str = "", forwarded: str = "", path: str = "/api/models") -> int:
            async with client(app.asgi, peer, PUBLIC) as visitor:
                headers = (bearer(key) if key else {}) | ({"X-Forwarded-For": forwarded} if forwarded else {})
                return (await visitor.get(path, headers=headers)).status_code

        usual = await ask("93.184.216.34")
        assert usual != 429
        assert [await ask("93.184.216.34") for _ in range(10)] == [usual] * 9 + [429]
        assert await ask("93.184.216.34", path="/livez") == 200
        assert await ask("93.184.216.34", app.key, path="/api/account") == 200
        assert await ask("93.184.216.34", "sf_" + "x" * 43, path="/api/account") == 429
        assert await ask("93.184.216.35") == usual
        assert [await ask("127.0.0.1") for _ in range(20)] == [usual] * 20
        proxied = [await ask("127.0.0.1", forwarded="2a00:1:2:3::" + str(n)) for n in range(1, 12)]
        assert proxied == [usual] * 10 + [429]
        assert await ask("127.0.0.1", forwarded="2a00:1:2:4::1") == usual


async def test_requests_to_unconfigured_routes_are_counted_not_logged(
    app: AppFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    before = refusals.recorder().totals["not_configured"]
    for _ in range(50):
        assert (await app.client.post("/api/webhooks/stripe", content=b"{}")).status_code == 503
    assert not caplog.records
    assert refusals.recorder().totals["not_configured"] == before + 50
    operator = await app.client.get("/metrics", headers={"Host": "127.0.0.1:8600"})
    if operator.status_code == 200:
        assert f'sixfold_refused_total{{reason="not_configured"}} {before + 50}.0' in operator.text


# -- signing in ------------------------------------------------------------------------------------


@pytest.fixture
async def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AppFixture]:
    """A server with a public URL, whose first account has a password that is hashed quickly."""
    quick = Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "HASHES", PasswordHash((quick,)))
    async with running_app(tmp_path, public_url=PUBLIC) as app:
        stored = passwords.make(RIGHT)
        await app.database.write(accounts.set_password_hash(app.account.id, stored))
        yield app


async def _try_sign_in(app: AppFixture, peer: str, password: str, cookies: Any = None) -> tuple[int, Any]:
    async with client(app.asgi, peer, PUBLIC) as visitor:
        visitor.cookies.update(cookies or {})
        form = {"email": "ada@example.com", "password": password}
        response = await visitor.post("/signin", data=form)
        return response.status_code, visitor.cookies


async def test_failed_logins_of_one_address_do_not_block_another(public: AppFixture) -> None:
    before = refusals.recorder().totals["sign_in"]
    strange = [(await _try_sign_in(public, "93.184.216.34", "wrong"))[0] for _ in range(7)]
    assert strange == [401] * 5 + [429] * 2
    assert refusals.recorder().totals["sign_in"] == before + 2
    assert (await _try_sign_in(public, "93.184.216.34", RIGHT))[0] == 429
    assert (await _try_sign_in(public, "198.51.100.7", RIGHT))[0] == 303


async def test_login_attempts_are_counted_per_ipv6_64_prefix(public: AppFixture) -> None:
    results = [(await _try_sign_in(public, f"2a00:1:2:3::{number}", "wrong"))[0] for number in range(1, 7)]
    assert results == [401] * 5 + [429]
    assert (await _try_sign_in(public, "2a00:1:2:4::1", "wrong"))[0] == 401


async def test_attempts_that_succeed_are_not_counted(public: AppFixture) -> None:
    assert [(await _try_sign_in(public, "198.51.100.7", RIGHT))[0] for _ in range(12)] == [303] * 12


@pytest.mark.slow
async def test_known_browser_signs_in_despite_foreign_attempts(
    public: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cookies = await _try_sign_in(public, "198.51.100.7", RIGHT)
    trusted = {BROWSER_COOKIE: cookies[BROWSER_COOKIE]}
    monkeypatch.setattr(passwords, "verify", lambda password, stored: bool(stored) and password == RIGHT)
    failed = [(await _try_sign_in(public, f"93.184.{number}.1", "wrong"))[0] for number in range(101)]
    assert failed == [401] * 100 + [429]
    assert (await _try_sign_in(public, "198.51.100.8", RIGHT))[0] == 429
    assert (await _try_sign_in(public, "93.184.0.1", RIGHT, trusted))[0] == 303
    forged = {BROWSER_COOKIE: trusted[BROWSER_COOKIE] + "0"}
    assert (await _try_sign_in(public, "198.51.100.8", RIGHT, forged))[0] == 429
    stolen = [(await _try_sign_in(public, "198.51.100.9", "wrong", trusted))[0] for _ in range(11)]
    assert stolen == [401] * 10 + [429]


async def test_password_change_invalidates_the_known_browser_cookie(public: AppFixture) -> None:
    _, cookies = await _try_sign_in(public, "198.51.100.7", RIGHT)
    for _ in range(5):
        await _try_sign_in(public, "93.184.216.34", "wrong")
    trusted = {BROWSER_COOKIE: cookies[BROWSER_COOKIE]}
    assert (await _try_sign_in(public, "93.184.216.34", RIGHT, trusted))[0] == 303
    stored = passwords.make("battery staple")
    await public.database.write(accounts.set_password_hash(public.account.id, stored))
    assert (await _try_sign_in(public, "93.184.216.34", "battery staple", trusted))[0] == 429


async def test_wrong_links_and_passkeys_count_per_address(public: AppFixture) -> None:
    async with client(public.asgi, "93.184.216.34", PUBLIC) as visitor:
        wrong = [(await visitor.get("/signin", params={"token": f"x{n}"})).status_code for n in range(31)]
        assert wrong == [401] * 30 + [429]
        assert (await visitor.post("/signin/passkey", json={})).status_code == 429
    async with client(public.asgi, "93.184.216.35", PUBLIC) as visitor:
        assert (await visitor.get("/signin", params={"token": "x"})).status_code == 401
    assert (await _try_sign_in(public, "198.51.100.7", RIGHT))[0] == 303
