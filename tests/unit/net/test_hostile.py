"""Forbidden URLs against canary servers, which prove that no request was sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress

import httpx
import pytest

from sixfold.errors import FetchFailed, FetchRefused
from sixfold.net.addresses import AllowList
from sixfold.net.clients import HttpClients
from sixfold.net.fetch import Fetcher, FetchLimits
from tests.unit.net import corpus
from tests.unit.net.servers import Answering, Server, redirect, reply, serving

NOTHING = AllowList()
LOOPBACK = AllowList.parse("127.0.0.0/8")
WORDS = ("127.", "::1", "10.0", "169.254", "loopback", "private", "internal")


class Canaries:
    """Listeners on every local address, on a separate port and, if permitted, on ports 80 and 443."""

    def __init__(self, servers: Sequence[Server], port: int) -> None:
        self.servers = servers
        self.port = port

    @property
    def hits(self) -> int:
        return sum(server.connections for server in self.servers)

    def reset(self) -> None:
        for server in self.servers:
            server.connections = 0


@pytest.fixture
async def canaries() -> AsyncIterator[Canaries]:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(serving("0.0.0.0"))
        servers = [first, await stack.enter_async_context(serving("::", first.port))]
        for port in (80, 443):
            for host in ("0.0.0.0", "::"):
                # The port may be in use or require permission.
                with suppress(OSError):
                    servers.append(await stack.enter_async_context(serving(host, port)))
        yield Canaries(servers, first.port)


async def poke(host: str, port: int) -> None:
    """Connect to a canary without the guard, and wait until it has noticed the disconnect."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await reader.read()
    writer.close()
    await writer.wait_closed()


async def attempt(fetcher: Fetcher, url: str) -> None:
    with pytest.raises(FetchRefused) as excinfo:
        await fetcher.fetch(url, max_bytes=1000, timeout_seconds=60)
    message = excinfo.value.message
    assert message.startswith("This URL may not be fetched: ")
    assert message.endswith(".")
    assert not any(word in message for word in WORDS), message
    with pytest.raises(FetchRefused):
        await fetcher.send("POST", url, content=b"{}", timeout_seconds=60, max_bytes=0)


async def test_canaries_record_each_request(canaries: Canaries) -> None:
    for host in ("127.0.0.1", "127.1.2.3", "::1", "0.0.0.0"):
        await poke(host, canaries.port)
    assert canaries.hits == 4


def test_corpus_is_large_and_has_no_duplicates() -> None:
    assert len(corpus.HOSTILE_URLS) == len(set(corpus.HOSTILE_URLS)) >= 250
    assert len(corpus.HOSTILE_ALWAYS) >= 200


async def test_no_hostile_url_reaches_a_canary(canaries: Canaries) -> None:
    fetcher = Fetcher(NOTHING, lookup=corpus.lookup)
    for url in corpus.hostile_urls(canaries.port):
        await attempt(fetcher, url)
    assert canaries.hits == 0


async def test_allowed_loopback_opens_no_other_spelling_or_address(canaries: Canaries) -> None:
    fetcher = Fetcher(LOOPBACK, lookup=corpus.lookup)
    for url in corpus.always_hostile_urls(canaries.port):
        await attempt(fetcher, url)
    assert canaries.hits == 0


async def test_own_names_are_refused_by_the_system_resolver_too(canaries: Canaries) -> None:
    fetcher = Fetcher(NOTHING)
    for url in (f"http://localhost:{canaries.port}/", "http://localhost/", "https://localhost/"):
        await attempt(fetcher, url)
    await fetcher.aclose()
    assert canaries.hits == 0


async def test_redirect_from_allowed_server_to_hostile_url_is_refused(canaries: Canaries) -> None:
    fetcher = Fetcher(AllowList.parse("127.0.0.77/32"), lookup=corpus.lookup)
    async with serving("127.0.0.77") as server:
        for status in ("301 x", "302 x", "303 x", "307 x", "308 x"):
            for url in corpus.hostile_urls(canaries.port):
                if not url.isprintable() or not url.strip().lower().startswith(
                    ("http:", "https:", "file:", "//")
                ):
                    # The URL cannot be part of a header, or is a path on the allowed server.
                    continue
                server.routes["/"] = _locate(url, status)
                with pytest.raises((FetchRefused, FetchFailed)):
                    await fetcher.fetch(server.url(), max_bytes=1000, timeout_seconds=60)
        assert server.connections > 5 * 150
    assert canaries.hits == 0


def _locate(url: str, status: str) -> Answering:
    return redirect(url.encode("utf-8").decode("latin-1"), status=status)


async def test_each_hop_of_a_chain_is_checked(canaries: Canaries) -> None:
    fetcher = Fetcher(AllowList.parse("127.0.0.77/32"), lookup=corpus.lookup)
    async with serving("127.0.0.77") as server:
        server.routes = {
            "/1": redirect("/2"),
            "/2": redirect(server.url("/3")),
            "/3": redirect(f"http://127.0.0.1:{canaries.port}/"),
        }
        with pytest.raises(FetchRefused):
            await fetcher.fetch(server.url("/1"), max_bytes=1000, timeout_seconds=60)
        assert [seen.path for seen in server.requests] == ["/1", "/2", "/3"]
    assert canaries.hits == 0


class Rebinding:
    """A name server that returns another address for each lookup."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = answers
        self.query_count = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.query_count += 1
        return self.answers[min(self.query_count, len(self.answers)) - 1]


async def test_name_is_resolved_once_and_that_address_is_used(canaries: Canaries) -> None:
    async with serving("127.0.0.77", routes={"/": reply(b"first")}) as server:
        lookup = Rebinding(["127.0.0.77"], ["127.0.0.1"])
        fetcher = Fetcher(AllowList.parse("127.0.0.77"), lookup=lookup)
        actual = await fetcher.fetch(server.url(host="rebind.test"), max_bytes=1000, timeout_seconds=60)
        assert actual.body == b"first"
        assert lookup.query_count == 1
        assert server.requests[0].headers["host"] == f"rebind.test:{server.port}"
        with pytest.raises(FetchRefused):
            await fetcher.fetch(server.url(host="rebind.test"), max_bytes=1000, timeout_seconds=60)
        assert lookup.query_count == 2
    assert canaries.hits == 0


async def test_dns_rebinding_during_a_redirect_is_refused(canaries: Canaries) -> None:
    lookup = Rebinding(["127.0.0.77"], ["127.0.0.1"])
    fetcher = Fetcher(AllowList.parse("127.0.0.77"), lookup=lookup)
    async with serving(
        "127.0.0.77", routes={"/": redirect(f"http://rebind.test:{canaries.port}/")}
    ) as server:
        with pytest.raises(FetchRefused):
            await fetcher.fetch(server.url(host="rebind.test"), max_bytes=1000, timeout_seconds=60)
        assert server.connections == 1
    assert canaries.hits == 0


@pytest.mark.parametrize("order", [1, -1])
async def test_dns_answer_with_one_forbidden_address_is_refused(canaries: Canaries, order: int) -> None:
    async with serving("127.0.0.77") as server:
        answer = ["127.0.0.77", "127.0.0.1"][::order]
        fetcher = Fetcher(AllowList.parse("127.0.0.77"), lookup=Rebinding(answer))
        with pytest.raises(FetchRefused):
            await fetcher.fetch(server.url(host="mixed.test"), max_bytes=1000, timeout_seconds=60)
        assert server.connections == 0
    assert canaries.hits == 0


async def test_missing_name_and_private_name_have_the_same_error() -> None:
    fetcher = Fetcher(NOTHING, lookup=corpus.lookup)
    messages: set[str] = set()
    for host in ("nowhere.test", "private.test", "mixed.test", "localhost"):
        with pytest.raises(FetchRefused) as excinfo:
            await fetcher.fetch(f"http://{host}/", max_bytes=1000, timeout_seconds=60)
        messages.add(excinfo.value.message)
    assert len(messages) == 1


async def test_no_client_bypasses_the_address_check(
    canaries: Canaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{canaries.port}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    clients = HttpClients(Fetcher(AllowList.parse("127.0.0.77"), lookup=corpus.lookup))
    async with serving("127.0.0.77") as server:
        server.routes = {"/": redirect(f"http://127.0.0.1:{canaries.port}/"), "/ok": reply(b"fine")}
        assert (await clients.guarded.get(server.url("/ok"))).content == b"fine"
        assert (
            await clients.fetcher.fetch(server.url("/ok"), max_bytes=9, timeout_seconds=60)
        ).body == b"fine"
        with pytest.raises(FetchRefused):
            await clients.guarded.get(server.url("/"), follow_redirects=True)
        for url in corpus.hostile_urls(canaries.port):
            with pytest.raises((FetchRefused, httpx.HTTPError, httpx.InvalidURL)):
                await clients.guarded.get(url, follow_redirects=True)
    with pytest.raises(FetchRefused):
        await clients.fetcher.backend.connect_unix_socket("/var/run/docker.sock")
    await clients.aclose()
    assert canaries.hits == 0


async def test_unresponsive_name_server_times_out() -> None:
    async def lookup(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    fetcher = Fetcher(NOTHING, FetchLimits(resolve_seconds=0.05), lookup=lookup)
    with pytest.raises(FetchFailed, match="could not be looked up"):
        await fetcher.fetch("http://slow.test/", max_bytes=1000, timeout_seconds=30)
