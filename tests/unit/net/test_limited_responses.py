"""Hostile responses of configured servers: endless, compressed, of many values, or in tiny chunks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from sixfold import errors
from sixfold.clients.cog import CogClient, CogUnreachable
from sixfold.clients.comfyui.errors import ComfyError
from sixfold.clients.comfyui.server import ComfyServer
from sixfold.clients.fal import FAL
from sixfold.clients.gradio.spaces import GradioSpaces
from sixfold.clients.oidc import OidcClient
from sixfold.clients.provider_client import ProviderClient, ProviderLimits
from sixfold.core.catalog.engines import EngineError
from sixfold.core.catalog.gradio_spaces import SpaceId
from sixfold.net import limited_responses
from sixfold.net.addresses import AllowList
from sixfold.net.clients import HttpClients
from sixfold.net.fetch import Fetcher
from sixfold.net.limited_responses import UnreadableResponse
from sixfold.net.response_memory import response_memory
from sixfold.payments.stripe import StripeClient
from sixfold.settings import Settings
from tests import loop_time
from tests.unit.net import servers
from tests.unit.net.servers import Answering, ReceivedRequest

MIB = 2**20
LISTS = b'{"a":[%s[]]}' % (b"[]," * (700 * 1024))


async def endless(_seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(servers.head("Content-Length: 1000000000"))
    for _ in range(300):
        writer.write(bytes(MIB))
        await writer.drain()


@functools.cache
def compressed() -> Answering:
    return servers.reply(gzip.compress(bytes(200 * MIB), 9), headers=("Content-Encoding: gzip",))


ANSWERS: dict[str, Callable[[], Answering]] = {
    "endless": lambda: endless,
    "compressed": compressed,
    "many values": lambda: servers.reply(LISTS),
}


def hub(client: HttpClients, url: str) -> Awaitable[Any]:
    spaces = GradioSpaces(client, url, "", lambda: "")
    return spaces.read(SpaceId("a", "b"), hardware=None, private=False)


async def provider(client: HttpClients, url: str) -> Any:
    limits = ProviderLimits(attempts=1, answer_bytes=8 * MIB)
    with response_memory(url) as memory:
        provider = ProviderClient(client.upstream, FAL, "key", base_url=url, limits=limits, memory=memory)
        return await provider.get("models")


def configured(url: str) -> Settings:
    return Settings(oidc_issuer=url, oidc_client_id="a", oidc_name="b", stripe_url=url, stripe_secret_key="c")


Call = Callable[[HttpClients, str], Awaitable[Any]]
CALLS: dict[str, tuple[type[Exception], Call]] = {
    "sign-in": (errors.EngineFailed, lambda c, url: OidcClient(c.upstream, configured(url)).begin("b")),
    "payments": (
        errors.EngineFailed,
        lambda c, url: StripeClient(c.upstream, configured(url)).top_up("a", "b", 1),
    ),
    "hub": (errors.EngineFailed, hub),
    "cog": (CogUnreachable, lambda c, url: CogClient(c.upstream, url).document()),
    "provider": (EngineError, provider),
    "comfyui": (ComfyError, lambda c, url: ComfyServer(c.upstream, url).models("loras")),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("name", CALLS)
async def test_hostile_response_fails_in_bounded_memory(name: str, answer: str) -> None:
    kind, call = CALLS[name]
    clients = HttpClients(Fetcher(AllowList.parse("127.0.0.0/8")))
    async with servers.serving() as server:
        server.routes = servers.AnyPath(ANSWERS[answer]())
        tracemalloc.start()
        try:
            with pytest.raises(kind):
                await call(clients, server.url("").rstrip("/"))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            await clients.aclose()
    # ComfyUI's limit is 64 MiB, in a buffer that doubles.
    assert peak < (150 if (name, answer) == ("comfyui", "endless") else 40) * MIB


async def test_a_response_in_tiny_chunks_lets_other_tasks_run() -> None:
    chunks = servers.head("Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n"
    async with (
        httpx.AsyncClient() as client,
        servers.serving(routes={"/": servers.raw(chunks)}) as server,
        loop_time.watched() as seen,
    ):
        response = await limited_responses.request(client, "GET", server.url(), max_bytes=MIB, seconds=60)
    assert (response.status, len(response.body)) == (200, 20_000)
    assert seen.longest < 0.05


async def test_tiny_chunks_of_many_responses_let_other_tasks_run() -> None:
    chunks = servers.head("Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 5_000 + b"0\r\n\r\n"
    clients = HttpClients(Fetcher(AllowList()))
    async with servers.serving(routes={"/": servers.raw(chunks)}) as server, loop_time.watched() as seen:
        calls = (
            limited_responses.request(clients.upstream, "GET", server.url(), max_bytes=MIB, seconds=60)
            for _ in range(32)
        )
        responses = await asyncio.gather(*calls)
        await clients.aclose()
    assert {len(response.body) for response in responses} == {5_000}
    assert seen.longest < 0.1


HEADS = {"interim": b"HTTP/1.1 103 E\r\n\r\n", "headers": b"a:b\r\n", "long": b"a" * 64}


@pytest.mark.parametrize("kind", HEADS)
async def test_endless_heads_of_configured_servers_are_refused(kind: str) -> None:
    start = b"" if kind == "interim" else b"HTTP/1.1 200 OK\r\nA: b\r\n"
    sent = 0

    async def endless(_seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(start)
        for _ in range(16):
            writer.write(HEADS[kind] * (65_536 // len(HEADS[kind])))
            sent += 65_536
            await writer.drain()
        writer.write(b"\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    clients = HttpClients(Fetcher(AllowList()))
    async with servers.serving(routes={"/": endless}) as server, loop_time.watched() as seen:
        calls = (clients.upstream.get(server.url(), timeout=30) for _ in range(12))
        results = await asyncio.gather(*calls, return_exceptions=True)
        await clients.aclose()
    assert {type(result) for result in results} == {httpx.RemoteProtocolError}
    assert all("of headers" in str(result) for result in results)
    assert seen.longest < 0.1


async def test_heads_are_limited_for_each_request_of_a_connection() -> None:
    connections, closed = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(servers.head(f"A: {'a' * 50_000}", "Content-Length: 1") + b"x")
        writer.close()
        await writer.wait_closed()
        closed.set()

    clients = HttpClients(Fetcher(AllowList()))
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for _ in range(3):
            assert (await clients.upstream.get(url)).content == b"x"
        assert connections == 1
        await clients.aclose()
        await closed.wait()


async def test_slow_response_ends_at_the_total_timeout() -> None:
    async def drip(_seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(servers.head("Content-Length: 1000"))
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with httpx.AsyncClient() as client, servers.serving(routes={"/": drip}) as server:
        with pytest.raises(httpx.ReadTimeout, match=r"more than 0\.2 seconds"):
            await limited_responses.request(client, "GET", server.url(), max_bytes=MIB, seconds=0.2)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"a":' * 100_000])
async def test_body_other_than_a_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableResponse):
        await limited_responses.json_object(body)
