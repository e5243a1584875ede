"""Revocation of a credential on one server ends its streams and sessions on another."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import websockets

from tests.e2e.servers import Server
from tests.e2e.test_two_servers import both
from tests.harness import postgres

EMAIL, BACK = "ada@example.com", "https://assistant.example/callback"
RUN, ACCOUNT = "/api/containers/run", "/api/account"
HANGING = {"SIXFOLD_TESTING": "1", "SIXFOLD_FAILPOINTS": "engine.run.ra1=hang"}
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]


@dataclass
class Access:
    """A credential of the account: a bearer token, or the cookies of a browser on each server."""

    first: httpx.AsyncClient
    second: httpx.AsyncClient
    token: str = ""
    events: str = ""
    refresh: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class TwoServers:
    """Two servers and an account with a key."""

    first: Server
    second: Server
    key: str
    visitors: list[httpx.AsyncClient] = field(default_factory=list[httpx.AsyncClient])

    def visitor(self, server: Server, token: str = "") -> httpx.AsyncClient:
        origin = f"http://127.0.0.1:{server.port}"
        headers = {"Origin": origin} | ({"Authorization": f"Bearer {token}"} if token else {})
        self.visitors.append(httpx.AsyncClient(base_url=origin, headers=headers, timeout=60))
        return self.visitors[-1]

    async def of_key(self, key: str) -> Access:
        access = Access(self.visitor(self.first, key), self.visitor(self.second, key), key)
        request = {"model": "ra1", "input": {"prompt": "x"}, "wait": 0}
        body = (await access.first.post(RUN, json=request)).json()
        access.events = f"/api/containers/predictions/{body['id']}/events"
        return access

    async def of_browser(self) -> Access:
        """The access of a session, which sees the prediction of the account's key."""
        code, text = await self.first.command("account", "link", EMAIL, "--json")
        assert code == 0, text
        token = json.loads(text)["url"].partition("token=")[2]
        access = Access(self.visitor(self.first), self.visitor(self.second))
        assert (await access.first.get("/signin", params={"token": token})).status_code == 303
        access.second.cookies.set("sixfold_session", access.first.cookies["sixfold_session"])
        result = (await self.of_key(self.key)).events.split("/")[-2]
        access.events = f"/pages/predictions/{result}/events"
        return access

    async def of_program(self) -> Access:
        """The access of a program that was let in to run models."""
        browser = (await self.of_browser()).first
        verifier = secrets.token_urlsafe(48)
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        body = {"client_name": "A program", "redirect_uris": [BACK]}
        client_id = (await browser.post("/oauth/register", json=body)).json()["client_id"]
        request = {"response_type": "code", "client_id": client_id, "redirect_uri": BACK, "scope": "models"}
        request |= {"code_challenge": digest, "code_challenge_method": "S256"}
        csrf = await csrf_of(browser, "/oauth/authorize", request)
        sent = await browser.post("/oauth/authorize", data={**request, "csrf": csrf, "decision": "allow"})
        code = parse_qs(urlsplit(sent.headers["location"]).query)["code"][0]
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": BACK,
            "client_id": client_id,
        }
        tokens = (await browser.post("/oauth/token", data={**form, "code_verifier": verifier})).json()
        access = await self.of_key(tokens["access_token"])
        access.refresh = {"grant_type": "refresh_token", "client_id": client_id}
        access.refresh["refresh_token"] = tokens["refresh_token"]
        return access


async def csrf_of(browser: httpx.AsyncClient, path: str, params: dict[str, str] | None = None) -> str:
    result = re.search(r'name="csrf" value="([^"]+)"', (await browser.get(path, params=params)).text)
    assert result is not None
    return result[1]


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[TwoServers]:
    async with both(tmp_path, SIXFOLD_WORKERS="2", **HANGING) as (first, second, _):
        code, text = await first.command("account", "create", EMAIL, "--credit", "5", "--json")
        assert code == 0, text
        servers = TwoServers(first, second, json.loads(text)["api_key"])
        try:
            yield servers
        finally:
            await asyncio.gather(*(visitor.aclose() for visitor in servers.visitors))


async def _revoke_key(servers: TwoServers, _access: Access) -> None:
    _, output = await servers.first.command("key", "list", EMAIL, "--json")
    (key,) = [row["id"] for row in json.loads(output)["keys"]]
    code, text = await servers.first.command("key", "revoke", key)
    assert code == 0, text


async def _revoke_program(servers: TwoServers, access: Access) -> None:
    form = {"token": access.refresh["refresh_token"]}
    assert (await servers.visitor(servers.first).post("/oauth/revoke", data=form)).status_code == 200


async def _change_password(servers: TwoServers, _access: Access) -> None:
    browser = (await servers.of_browser()).first
    form = {"csrf": await csrf_of(browser, "/account/security"), "password": "a long password"}
    response = await browser.post("/account/password", data={**form, "end_keys": "1"})
    assert (response.status_code, response.headers["location"].partition("?")[0]) == (
        303,
        "/account/security",
    )


async def _close_account(servers: TwoServers, _access: Access) -> None:
    owner = servers.visitor(servers.first, servers.key)
    response = await owner.request("DELETE", ACCOUNT, json={"confirm": EMAIL})
    assert response.status_code == 202, response.text


async def _sign_out(_stage: TwoServers, access: Access) -> None:
    form = {"csrf": await csrf_of(access.first, "/account")}
    assert (await access.first.post("/signout", data=form)).status_code == 303


Ending = Callable[[TwoServers, Access], Awaitable[None]]
ENDS: dict[str, tuple[str, Ending]] = {
    "key revoked": ("key", _revoke_key),
    "key, password changed": ("key", _change_password),
    "key, account closed": ("key", _close_account),
    "program revoked": ("program", _revoke_program),
    "program, password changed": ("program", _change_password),
    "program, account closed": ("program", _close_account),
    "session signed out": ("session", _sign_out),
    "session, password changed": ("session", _change_password),
    "session, account closed": ("session", _close_account),
}


@asynccontextmanager
async def connect(servers: TwoServers, access: Access) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Open an event stream and, for a token, a websocket on the second server."""
    open_event = asyncio.Event()

    async def stream() -> str:
        async with access.second.stream("GET", access.events) as response:
            assert response.status_code == 200
            text = ""
            async for block in response.aiter_text():
                open_event.set()
                text += block
            return text

    async with asyncio.timeout(60):
        ending: list[asyncio.Task[Any]] = [asyncio.create_task(stream())]
        await open_event.wait()
        if not access.token:
            yield ending
            return
        url = f"ws://127.0.0.1:{servers.second.port}/ws?clientId=one&token={access.token}"
        async with websockets.connect(url) as socket:
            await socket.recv()
            yield [*ending, asyncio.create_task(socket.wait_closed())]
            assert socket.close_code == 4401


@pytest.mark.parametrize("name", ENDS)
async def test_revocation_on_one_server_ends_requests_on_the_other(servers: TwoServers, name: str) -> None:
    kind, end = ENDS[name]
    result = {
        "key": lambda: servers.of_key(servers.key),
        "program": servers.of_program,
        "session": servers.of_browser,
    }
    access = await result[kind]()
    path = ACCOUNT if kind == "session" else "/api/containers/predictions"
    known = (await access.second.get("/account" if kind == "session" else path)).status_code
    assert known == 200
    async with connect(servers, access) as ending:
        await end(servers, access)
        first, *_ = await asyncio.gather(*ending)
    assert "revoked" in first
    response = await access.second.get("/account" if kind == "session" else path)
    assert response.status_code == (303 if kind == "session" else 401)
    if access.refresh:
        assert (
            await servers.visitor(servers.second).post("/oauth/token", data=access.refresh)
        ).status_code == 400
