"""Responses of an allowed server: every limit, on real sockets."""

from __future__ import annotations

import asyncio
import gzip
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sixfold import disk_space
from sixfold.errors import FetchFailed, FetchRefused, TooLarge
from sixfold.net.addresses import AllowList
from sixfold.net.fetch import Fetcher, FetchLimits, FetchResult
from tests import loop_time
from tests.harness.waiting import wait_until
from tests.unit.net.servers import Answering, ReceivedRequest, head, raw, redirect, reply, serving

LOOPBACK = AllowList.parse("127.0.0.0/8 ::1")
QUICK = FetchLimits(grace_seconds=0.1, idle_seconds=5.0)


def fetcher(limits: FetchLimits = QUICK) -> Fetcher:
    return Fetcher(LOOPBACK, limits, user_agent="Sixfold/test")


async def get(
    answer: Answering, *, max_bytes: int = 1000, limits: FetchLimits = QUICK, seconds: float = 5.0
) -> FetchResult:
    async with serving(routes={"/": answer}) as server:
        return await fetcher(limits).fetch(server.url(), max_bytes=max_bytes, timeout_seconds=seconds)


def dripping(first: bytes, piece: bytes, pause_seconds: float) -> Answering:
    """Send `first`, then `piece` repeatedly until the client disconnects."""

    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_seconds)

    return answer


async def silent(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """Send nothing until the client disconnects."""
    await asyncio.Event().wait()


# -- what arrives ----------------------------------------------------------------------------------


async def test_response_has_body_type_size_and_url() -> None:
    async with serving(
        routes={"/a": redirect("/b?x=1#y"), "/b": reply(b"hello", headers=("Content-Type: Image/PNG; q=1",))}
    ) as server:
        actual = await fetcher().fetch(server.url("/a"), max_bytes=5, timeout_seconds=60, accept="image/*")
        assert (actual.body, actual.path, actual.size) == (b"hello", None, 5)
        assert actual.content_type == "image/png"
        assert actual.final_url == server.url("/b?x=1")
        first = server.requests[0]
        assert first.method == "GET"
        assert first.headers == {
            "host": f"127.0.0.1:{server.port}",
            "connection": "close",
            "accept-encoding": "identity",
            "user-agent": "Sixfold/test",
            "accept": "image/*",
        }
        core = await fetcher().fetch_bytes(server.url("/b"), max_bytes=5, timeout_seconds=60)
        assert (core.data, core.content_type, core.url) == (b"hello", "image/png", server.url("/b"))


async def test_ipv6_addresses_and_names_reach_an_allowed_server() -> None:
    async with serving("::1", routes={"/": reply(b"six")}) as server:
        actual = await fetcher().fetch(server.url(host="[::1]"), max_bytes=5, timeout_seconds=60)
        assert actual.body == b"six"
        assert server.requests[0].headers["host"] == f"[::1]:{server.port}"


async def test_second_address_is_tried_if_the_first_fails() -> None:
    async def lookup(host: str, port: int) -> list[str]:
        return ["127.0.0.55", "127.0.0.1"]

    async with serving(routes={"/": reply(b"second")}) as server:
        actual = await Fetcher(LOOPBACK, lookup=lookup).fetch(
            server.url(host="two.test"), max_bytes=10, timeout_seconds=60
        )
    assert actual.body == b"second"


async def test_large_body_is_written_to_a_file(tmp_path: Path) -> None:
    body, path = bytes(range(256)) * 20_000, tmp_path / "video.mp4"
    async with serving(routes={"/": reply(body)}) as server:
        actual = await fetcher().fetch(server.url(), into=path, max_bytes=len(body), timeout_seconds=10)
    assert (actual.body, actual.path, actual.size) == (b"", path, len(body))
    assert path.read_bytes() == body


async def test_a_part_of_the_disk_remains_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "_RESERVE_BYTES", 2**62)
    monkeypatch.setattr(disk_space, "_RESERVE_PART", 1)
    path = tmp_path / "video.mp4"
    async with serving(routes={"/": reply(b"video")}) as server:
        with pytest.raises(FetchFailed, match="of the disk would remain free"):
            await fetcher().fetch(server.url(), into=path, max_bytes=10, timeout_seconds=10)
    assert not path.exists()


async def test_chunked_and_unsized_bodies_are_read_to_the_end() -> None:
    chunked = head("Transfer-Encoding: chunked") + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    assert (await get(raw(chunked))).body == b"abcde"
    assert (await get(raw(head() + b"until the end"))).body == b"until the end"


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["Content-Length: 1001", "Content-Length: " + "9" * 18])
async def test_declared_body_above_the_limit_is_refused_unread(framing: str) -> None:
    with pytest.raises(TooLarge, match="larger than 1000 bytes"):
        await get(raw(head(framing) + b"x"))


@pytest.mark.parametrize("framing", ["Connection: close", "Transfer-Encoding: chunked"])
async def test_undeclared_body_above_the_limit_is_refused(framing: str, tmp_path: Path) -> None:
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n" if "chunked" in framing else b"x" * 0x10000
    path = tmp_path / "file"
    async with serving(routes={"/": dripping(head(framing), piece, 0.0)}) as server:
        with pytest.raises(TooLarge, match="larger than 2 MiB"):
            await fetcher().fetch(server.url(), into=path, max_bytes=2 << 20, timeout_seconds=10)
        await asyncio.wait_for(server.disconnect_event.wait(), 60)
    assert not path.exists()


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd", "gzip, identity", "x"])
async def test_compressed_body_is_refused_undecoded(coding: str) -> None:
    bomb = gzip.compress(bytes(1 << 20))
    with pytest.raises(FetchFailed, match="compressed"):
        await get(reply(bomb, headers=(f"Content-Encoding: {coding}",)), max_bytes=1 << 20)


async def test_identity_is_not_compression() -> None:
    assert (await get(reply(b"x", headers=("Content-Encoding: identity",)))).body == b"x"


@pytest.mark.parametrize(
    "content",
    [
        head("X: " + "a" * 200_000),
        head(*(f"X-{number}: y" for number in range(20_000))),
        head(*(f"X-{number}: y" for number in range(600))),
        head(status="103 Early Hints") * 400 + head("Content-Length: 0"),
        b"HTTP/1.1 200 " + b"a" * 200_000 + b"\r\n\r\n",
        head("Transfer-Encoding: chunked") + b"1;" + b"a" * 200_000 + b"\r\nx\r\n0\r\n\r\n",
        head("Transfer-Encoding: chunked") + b"0\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    ],
    ids=["one header", "many headers", "600 headers", "400 interim", "reason", "chunk extension", "trailer"],
)
async def test_endless_headers_are_refused(content: bytes) -> None:
    with pytest.raises(FetchFailed, match="not valid HTTP"):
        await get(raw(content))


async def test_a_response_may_follow_interim_responses() -> None:
    hints = head(*(f"Link: </{number}>" for number in range(20)), status="103 Early Hints")
    content = hints * 3 + head("Content-Length: 2", *(f"X-{number}: y" for number in range(200))) + b"hi"
    assert (await get(raw(content))).body == b"hi"


@pytest.mark.parametrize(
    "content",
    [
        head(status="103 E") * 4000,
        head(*("a:1" for _ in range(16_000))),
        head("Transfer-Encoding: chunked") + b"0\r\n" + b"a:1\r\n" * 16_000 + b"\r\n",
        head("Transfer-Encoding: chunked") + b"1\r\na\r\n" * 16_000 + b"0\r\n\r\n",
    ],
    ids=["interim", "headers", "trailers", "chunks"],
)
async def test_many_hostile_responses_at_once_let_other_tasks_run(content: bytes) -> None:
    """The loop parses one in each iteration, even if several arrive together."""
    together = asyncio.Barrier(20)

    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await together.wait()
        writer.write(content)
        await writer.drain()

    async with serving(routes={"/": answer}) as server, loop_time.watched() as seen:
        url, client = server.url(), fetcher()
        sending = [
            client.send("POST", url, timeout_seconds=60, max_bytes=2**20) for _ in range(together.parties)
        ]
        results = await asyncio.gather(*sending, return_exceptions=True)
    assert len(results) == together.parties
    assert seen.longest < 0.15


# -- answers that are none -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        head("Content-Length: 10") + b"short",
        head("Transfer-Encoding: chunked") + b"a\r\nshort",
        head("Transfer-Encoding: chunked") + b"5\r\nshort\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nConte",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        head("Content-Length: -1"),
        head("Content-Length: 1, 2") + b"x",
        head("Content-Length: " + "9" * 5000) + b"x",
        head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
        head("Transfer-Encoding: chunked") + b"zz\r\nx\r\n",
        head("Bad Name: x"),
        head("X: a\x00b"),
        head("Upgrade: websocket", "Connection: upgrade", status="101 Switching Protocols"),
    ],
)
async def test_truncated_or_invalid_response_fails(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    async with serving(routes={"/": raw(content)}) as server:
        with pytest.raises(FetchFailed, match=r"was cut off or is not valid HTTP|compressed"):
            await fetcher().fetch(server.url(), into=path, max_bytes=1000, timeout_seconds=60)
    assert not path.exists()


@pytest.mark.parametrize(
    "status", ["404 Not Found", "500 Oops", "204 No Content", "206 Partial Content", "304 x", "300 x"]
)
async def test_other_status_fails_and_is_named(status: str) -> None:
    with pytest.raises(FetchFailed, match=f"returned status {status[:3]}"):
        await get(raw(head(status=status)))


async def test_refused_connection_is_a_failure_without_an_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(FetchFailed, match="could not be reached") as excinfo:
        await fetcher().fetch(f"http://127.0.0.1:{port}/", max_bytes=1, timeout_seconds=60)
    assert "127" not in excinfo.value.message


# -- redirects -------------------------------------------------------------------------------------


async def test_five_redirects_are_followed_and_a_sixth_is_not() -> None:
    routes = {f"/{number}": redirect(f"/{number + 1}") for number in range(6)}
    async with serving(routes=routes | {"/6": reply(b"end")}) as server:
        assert (await fetcher().fetch(server.url("/1"), max_bytes=9, timeout_seconds=60)).body == b"end"
        with pytest.raises(FetchFailed, match="redirects more than 5 times"):
            await fetcher().fetch(server.url("/0"), max_bytes=9, timeout_seconds=60)


async def test_redirect_loop_ends_after_six_requests() -> None:
    async with serving(routes={"/": redirect("/")}) as server:
        with pytest.raises(FetchFailed, match="redirects more than 5 times"):
            await fetcher().fetch(server.url(), max_bytes=9, timeout_seconds=60)
        assert server.connections == 6


@pytest.mark.parametrize("headers", [(), ("Location: /a", "Location: /b")])
async def test_redirect_needs_one_location(headers: tuple[str, ...]) -> None:
    with pytest.raises(FetchFailed, match="without a Location header"):
        await get(reply(status="302 Found", headers=headers))


async def test_the_body_of_a_redirect_is_not_read() -> None:
    moved = dripping(head("Location: /to", status="302 Found"), b"x" * 65536, 0.0)
    async with serving(routes={"/": moved, "/to": reply(b"there")}) as server:
        assert (await fetcher().fetch(server.url(), max_bytes=9, timeout_seconds=60)).body == b"there"


# -- time ------------------------------------------------------------------------------------------


async def test_body_below_the_minimum_rate_fails() -> None:
    with pytest.raises(FetchFailed, match="too slowly"):
        await get(dripping(head("Content-Length: 900"), b"x", 0.01))


async def test_slow_reader_does_not_time_out_the_server() -> None:
    async with serving(routes={"/": reply(b"x" * 300_000)}) as server:
        context = fetcher().stream("GET", server.url(), timeout_seconds=60)
        async with context as stream:
            size = 0
            async for chunk in stream.chunks:
                size += len(chunk)
                await asyncio.sleep(0.05)
    assert size == 300_000


@pytest.mark.parametrize(
    "answer",
    [
        silent,
        dripping(b"HTTP/1.1 200 OK\r\nX: ", b"a", 0.01),
        dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01),
        dripping(head(), b"x" * 2000, 0.01),
    ],
    ids=["silence", "endless header", "endless continue", "endless body"],
)
async def test_deadline_covers_the_whole_response(answer: Answering, tmp_path: Path) -> None:
    path = tmp_path / "file"
    async with serving(routes={"/": answer}) as server:
        with pytest.raises(FetchFailed, match=r"longer than 0\.3 seconds"):
            await fetcher().fetch(server.url(), into=path, max_bytes=1 << 30, timeout_seconds=0.3)
        await asyncio.wait_for(server.disconnect_event.wait(), 60)
    assert not path.exists()


async def test_the_deadline_is_one_for_all_redirects() -> None:
    async def slow(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.15)
        writer.write(head("Location: /", "Content-Length: 0", status="302 Found"))

    with pytest.raises(FetchFailed, match=r"longer than 0\.4 seconds"):
        await get(slow, seconds=0.4)


async def test_headers_have_a_deadline_of_their_own() -> None:
    limits = FetchLimits(head_seconds=0.1)
    with pytest.raises(FetchFailed, match=r"longer than 0\.1 seconds"):
        await get(dripping(b"HTTP/1.1 200 OK\r\nX: ", b"a", 0.01), limits=limits)


async def test_stalled_response_times_out() -> None:
    async def stop(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(head("Content-Length: 900") + b"x" * 100)
        await silent(seen, writer)

    with pytest.raises(FetchFailed, match="did not respond in time"):
        await get(stop, limits=FetchLimits(idle_seconds=0.1))


async def test_waiting_for_a_slot_counts_towards_the_deadline() -> None:
    async with serving(routes={"/": silent, "/quick": reply(b"x")}) as server:
        narrow = fetcher(FetchLimits(concurrent=1))
        first = asyncio.create_task(narrow.fetch(server.url(), max_bytes=1, timeout_seconds=0.3))
        await asyncio.wait_for(server.request_event.wait(), 60)
        with pytest.raises(FetchFailed, match=r"longer than 0\.1 seconds"):
            await narrow.fetch(server.url("/quick"), max_bytes=1, timeout_seconds=0.1)
        with pytest.raises(FetchFailed):
            await first
        assert (await narrow.fetch(server.url("/quick"), max_bytes=1, timeout_seconds=60)).body == b"x"


async def test_canceled_fetch_closes_its_connection_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    async with serving(routes={"/": dripping(head(), b"x" * 65536, 0.001)}) as server:
        task = asyncio.create_task(
            fetcher().fetch(server.url(), into=path, max_bytes=1 << 40, timeout_seconds=30)
        )
        await asyncio.wait_for(server.request_event.wait(), 60)
        await wait_until(lambda: path.exists())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.disconnect_event.wait(), 60)
    assert not path.exists()


# -- send and stream -------------------------------------------------------------------------------


async def test_send_posts_and_returns_any_status() -> None:
    answer = reply(b'{"no":1}', status="409 Conflict", headers=("X-Two: a", "X-Two: b"))
    async with serving(routes={"/hook": answer}) as server:
        actual = await fetcher().send(
            "POST",
            server.url("/hook"),
            headers={"Content-Type": "application/json", "Host": "evil.test", "Content-Length": "999"},
            content=b"{}",
            timeout_seconds=60,
            max_bytes=100,
        )
        assert (actual.status, actual.body, actual.headers["x-two"]) == (409, b'{"no":1}', "a, b")
        seen = server.requests[0]
        assert (seen.method, seen.body) == ("POST", b"{}")
        assert seen.headers["host"] == f"127.0.0.1:{server.port}"
        assert seen.headers["content-length"] == "2"
        assert seen.headers["content-type"] == "application/json"


async def test_send_follows_no_redirect_and_can_skip_the_body() -> None:
    async with serving(
        routes={"/": redirect("/other"), "/endless": dripping(head(), b"x" * 9999, 0)}
    ) as server:
        moved = await fetcher().send("POST", server.url(), timeout_seconds=60, max_bytes=100)
        assert (moved.status, moved.headers["location"]) == (302, "/other")
        assert server.requests[0].headers["content-length"] == "0"
        actual = await fetcher().send("POST", server.url("/endless"), timeout_seconds=60, max_bytes=0)
        assert (actual.status, actual.body) == (200, b"")
        with pytest.raises(TooLarge):
            await fetcher().send("POST", server.url("/endless"), timeout_seconds=60, max_bytes=100)
        with pytest.raises(FetchFailed):
            await fetcher().send("POST", server.url("/endless"), timeout_seconds=0.1, max_bytes=1 << 40)


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"X Y": "a"}, {"X": "日"}, {"Ü": "a"}])
async def test_header_that_injects_another_is_refused(headers: dict[str, str]) -> None:
    async with serving() as server:
        with pytest.raises(FetchFailed):
            await fetcher().send("POST", server.url(), headers=headers, timeout_seconds=60, max_bytes=1)
        assert not server.requests


async def test_a_method_is_one_of_six() -> None:
    for method in ("CONNECT", "TRACE", "get", "GET / HTTP/1.1\r\nX:"):
        with pytest.raises(ValueError, match="is not a supported method"):
            await fetcher().send(method, "http://127.0.0.1/", timeout_seconds=60, max_bytes=1)


async def test_stream_yields_each_chunk_as_it_arrives() -> None:
    more = asyncio.Event()

    async def events(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(head("Content-Type: text/event-stream") + b"data: 1\n\n")
        await more.wait()
        writer.write(b"data: 2\n\n")

    async with (
        serving(routes={"/": events}) as server,
        fetcher().stream("GET", server.url(), timeout_seconds=60) as stream,
    ):
        assert stream.status == 200
        assert await anext(stream.chunks) == b"data: 1\n\n"
        more.set()
        assert [chunk async for chunk in stream.chunks] == [b"data: 2\n\n"]


async def drain(url: str) -> None:
    async with fetcher().stream("GET", url, timeout_seconds=0.2) as stream:
        async for _ in stream.chunks:
            pass


async def test_stream_ends_at_its_deadline_and_keeps_reader_errors() -> None:
    async with serving(routes={"/": dripping(head(), b"x", 0.01)}) as server:
        with pytest.raises(FetchFailed, match="longer than"):
            await drain(server.url())
        with pytest.raises(TimeoutError, match="mine"):
            async with fetcher().stream("GET", server.url(), timeout_seconds=60):
                raise TimeoutError("mine")
        with pytest.raises(FetchRefused):
            async with fetcher().stream("GET", "http://10.0.0.1/", timeout_seconds=60):
                pass


# -- the cost of having it -------------------------------------------------------------------------


def test_importing_the_fetcher_does_not_import_httpx() -> None:
    code = "import sys, sixfold.net.fetch; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


async def test_chunks_of_one_byte_let_other_tasks_run() -> None:
    content = head("Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 30_000 + b"0\r\n\r\n"
    async with loop_time.watched() as seen:
        result = await get(raw(content), max_bytes=2**20, seconds=60)
    assert result.body == b"x" * 30_000
    assert seen.longest < 0.1
