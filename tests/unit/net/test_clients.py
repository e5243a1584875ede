from __future__ import annotations

import asyncio

import httpx
import pytest

from sixfold.net.addresses import AllowList
from sixfold.net.clients import HttpClients
from sixfold.net.fetch import Fetcher
from tests.unit.net.servers import head, raw, reply, serving


async def test_guarded_client_is_an_httpx_client() -> None:
    clients = HttpClients(Fetcher(AllowList.parse("127.0.0.0/8")))
    async with serving(routes={"/": reply(b"{}"), "/cut": raw(head("Content-Length: 9") + b"x")}) as server:
        assert (await clients.guarded.post(server.url(), json={"a": 1})).json() == {}
        assert server.requests[0].body == b'{"a":1}'
        with pytest.raises(httpx.RemoteProtocolError):
            await clients.guarded.get(server.url("/cut"))
    with pytest.raises(httpx.ConnectError):
        await clients.guarded.get(server.url())
    await clients.aclose()


async def test_upstream_client_ignores_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(routes={"/": reply(b"upstream")}) as server, serving() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url())
        monkeypatch.setenv("NETRC", "/nonexistent")
        clients = HttpClients(Fetcher(AllowList()))
        assert (await clients.upstream.get(server.url())).content == b"upstream"
        assert "authorization" not in server.requests[0].headers
        await clients.aclose()
        assert proxy.connections == 0


async def test_close_closes_only_the_opened_clients() -> None:
    clients = HttpClients(Fetcher(AllowList()))
    upstream = clients.upstream
    assert clients.upstream is upstream
    await clients.aclose()
    assert upstream.is_closed
    assert "guarded" not in vars(clients)
    await asyncio.wait_for(clients.aclose(), 1)
