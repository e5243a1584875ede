"""Model servers over plain HTTP/1.1, on the event loop itself: for those on this machine and beside it.

Another client's threads cost more here than all else that a call takes (see the page on the relay). There is
no TLS, no proxy and no redirect in it. Each answer has an object of its own: a connection is used again only
once an answer has come to its end, and is closed when it says anything that nobody asked for.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from sixfold.clients.chat.transport import HEADERS, MAX_ANSWER, USER_AGENT
from sixfold.core.gateway.ports import UpstreamFailure

_KEPT, _KEPT_SECONDS = 256, 60.0  # connections to one server that wait for the next call, and for how long
_AHEAD = 256 * 1024  # bytes of a stream that wait for their reader before the server has to
_MAX_URLS = 64  # whose beginnings are kept, and as many sets of headers
_ALWAYS = {**HEADERS, "User-Agent": USER_AGENT, "Accept": "*/*"}


class _Address(NamedTuple):
    """Where a URL leads, and how a request to it begins."""

    host: str
    port: int
    path: bytes
    hosted: bytes


class Client:
    """One pool of connections, and one timer for all of them."""

    def __init__(self, connect_seconds: float, quiet_seconds: float) -> None:
        self._connect_seconds = connect_seconds
        self._quiet_seconds = quiet_seconds
        self._addresses: dict[str, _Address] = {}
        self._kept: dict[tuple[str, int], list[_Connection]] = {}
        self._busy: set[_Connection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool
    ) -> Coroutine[Any, Any, HttpReply]:
        """POST `body`; of what is no stream the whole answer is waited for."""
        more = b"Content-Length: %d\r\n" % len(body)
        return self._send(b"POST ", url, _headed(headers, more), body, stream)

    def get(self, url: str, headers: Mapping[str, str]) -> Coroutine[Any, Any, HttpReply]:
        """GET."""
        return self._send(b"GET ", url, _headed(headers, b""), b"", True)

    async def aclose(self) -> None:
        """Let go of the connections."""
        for lines in self._kept.values():
            for line in tuple(lines):
                line.close()
        for line in tuple(self._busy):
            line.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await asyncio.sleep(0)  # the connections are closed a turn later

    async def _send(self, method: bytes, url: str, headers: bytes, body: bytes, stream: bool) -> HttpReply:
        address = self._addresses.get(url) or self._address(url)
        raw = b"".join((method, address.path, address.hosted, headers, b"\r\n", body))
        line = self._take(address)
        while True:
            if line is None:
                line = await self._connect(address)
            answer = line.ask(raw, whole=not stream)
            self._busy.add(line)
            if self._timer is None:
                self._timer = line.loop.call_later(self._quiet_seconds, self._ring)
            try:
                await answer.begun()
            except _ConnectionReset:  # it was hung up while it waited, and has not been heard
                line.close()
                line = None
            except BaseException:
                line.close()
                raise
            else:
                return answer

    def _take(self, address: _Address) -> _Connection | None:
        kept = self._kept.get((address.host, address.port))
        if not kept:
            return None
        line = kept.pop()
        if line.loop.time() - line.heard < _KEPT_SECONDS:
            return line
        line.close()
        return self._take(address)

    async def _connect(self, address: _Address) -> _Connection:
        loop = asyncio.get_running_loop()
        where = address.host, address.port
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, line = await loop.create_connection(lambda: _Connection(self, where, loop), *where)
        except TimeoutError as error:
            raise UpstreamFailure("did not answer in time") from error
        except OSError as error:
            raise UpstreamFailure("could not be reached") from error
        return line

    def keep(self, line: _Connection) -> None:
        """A connection whose answer has come to its end waits for the next call."""
        self._busy.discard(line)
        kept = self._kept.setdefault(line.where, [])
        kept.append(line)
        if len(kept) > _KEPT or line.heard - kept[0].heard > _KEPT_SECONDS:
            kept[0].close()

    def forget(self, line: _Connection) -> None:
        """A connection is closed."""
        self._busy.discard(line)
        kept = self._kept.get(line.where)
        if kept is not None and line in kept:
            kept.remove(line)

    def _address(self, url: str) -> _Address:
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        said = "".join(f"{name}: {value}\r\n" for name, value in {"Host": parts.netloc, **_ALWAYS}.items())
        hosted = f" HTTP/1.1\r\n{said}".encode("ascii")
        address = _Address(parts.hostname or "", parts.port or 80, path.encode("ascii"), hosted)
        if len(self._addresses) >= _MAX_URLS:
            self._addresses.clear()
        self._addresses[url] = address
        return address

    def _ring(self) -> None:
        """End whatever has been quiet for too long, and look again when the next may have been."""
        self._timer = None
        if not self._busy:
            return
        moment = asyncio.get_running_loop().time()
        for line in [line for line in self._busy if line.heard + self._quiet_seconds <= moment]:
            line.time_out()
        if self._busy:
            due = min(line.heard for line in self._busy) + self._quiet_seconds
            self._timer = asyncio.get_running_loop().call_at(due, self._ring)


class _ConnectionReset(Exception):
    """A connection that was used before ended before it said anything."""


class _Connection(asyncio.Protocol):
    """One connection; it speaks to `_answer`, and to nobody between two answers."""

    def __init__(self, client: Client, where: tuple[str, int], loop: asyncio.AbstractEventLoop) -> None:
        self.where = where
        self.loop = loop
        self.heard = 0.0
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: HttpReply | None = None
        self._used = False

    def ask(self, raw: bytes, *, whole: bool) -> HttpReply:
        """Send a request; gives its answer, of which nothing is there yet."""
        self._answer = answer = HttpReply(self, whole=whole, stale=self._used)
        self._used = True
        self.heard = self.loop.time()
        if self._transport is None:
            answer.fail("could not be reached")
        else:
            self._transport.write(raw)
        return answer

    def leave(self, answer: HttpReply) -> None:
        """Nobody reads this answer any more: the connection is kept if it has come to its end."""
        if self._answer is not answer:
            return
        transport, self._answer = self._transport, None
        if answer.again and transport is not None and not transport.get_write_buffer_size():
            if answer.paused:
                transport.resume_reading()
            self._client.keep(self)
        else:
            self.close()

    def close(self) -> None:
        """Hang up."""
        self._client.forget(self)
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._fail("broke off its answer")

    def time_out(self) -> None:
        """It has said nothing for too long."""
        began = self._answer is not None and self._answer.status
        self._fail("stopped answering" if began else "did not answer in time")
        self.close()

    def pause(self, *, reading: bool) -> None:
        """Let the server wait for a reader, or go on."""
        if self._transport is not None:
            (self._transport.resume_reading if reading else self._transport.pause_reading)()

    def _fail(self, why: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.fail(why)

    # -- what asyncio tells ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard = self.loop.time()
        if self._answer is None:
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail("gave an answer that cannot be read")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        answer = self._answer
        self._transport = None
        if answer is not None:
            answer.hung_up(in_order=exc is None)
        self.close()

    # -- what httptools tells ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.complete:
            raise ValueError("an answer to no question")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._answer is not None:
            self._answer.head(name.lower(), value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._answer is not None and status >= 200:
            self._answer.begin(status)

    def on_body(self, data: bytes) -> None:
        if self._answer is not None:
            self._answer.take(data)

    def on_message_complete(self) -> None:
        if self._answer is not None and self._answer.status:
            self._answer.end(again=self._parser.should_keep_alive())


class HttpReply:
    """An answer as it comes; `status` is 0 before its head is there."""

    __slots__ = (
        "_blocks",
        "_fault",
        "_line",
        "_size",
        "_sized",
        "_stale",
        "_unheard",
        "_waiting",
        "_whole",
        "again",
        "complete",
        "paused",
        "retry_after",
        "status",
    )

    def __init__(self, line: _Connection, *, whole: bool, stale: bool) -> None:
        self.status = 0
        self.retry_after = ""
        self.complete = False
        self.again = False  # whether its connection may be used again
        self.paused = False
        self._line = line
        self._whole = whole
        self._stale = stale
        self._unheard = False
        self._fault = ""
        self._sized = False
        self._blocks: list[bytes] = []
        self._size = 0
        self._waiting: asyncio.Future[None] | None = None

    async def begun(self) -> None:
        """Wait for its head, or for all of it where it was asked for whole.

        Raises `UpstreamFailure` and `_ConnectionReset`.
        """
        while not (self.complete if self._whole else self.status):
            self._check()
            await self._more()

    async def read(self) -> bytes:
        """The next bytes as they came in; none at the end. Raises `UpstreamFailure`."""
        while not self._blocks:
            if self.complete:
                return b""
            self._check()
            await self._more()
        blocks, self._blocks, self._size = self._blocks, [], 0
        if self.paused:
            self.paused = False
            self._line.pause(reading=True)
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    async def read_all(self) -> bytes:
        """All that is left; raises `UpstreamFailure`."""
        self._whole = True
        while not self.complete:
            self._check()
            if self.paused:
                self.paused = False
                self._line.pause(reading=True)
            await self._more()
        return await self.read()

    async def aclose(self) -> None:
        """Let go of the connection; one whose answer has come to its end is used again."""
        self._line.leave(self)

    def _check(self) -> None:
        if self._unheard:
            raise _ConnectionReset
        if self._fault:
            raise UpstreamFailure(self._fault)

    def _more(self) -> asyncio.Future[None]:
        self._waiting = waiting = self._line.loop.create_future()
        return waiting

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # -- what its connection tells -----------------------------------------------------------------

    def head(self, name: bytes, value: bytes) -> None:
        """A header."""
        if name == b"retry-after":
            self.retry_after = value.decode("latin-1")
        elif name in {b"content-length", b"transfer-encoding"}:
            self._sized = True

    def begin(self, status: int) -> None:
        """Its head is there."""
        self.status = status
        if not self._whole:
            self._wake()

    def take(self, data: bytes) -> None:
        """More of its body."""
        self._blocks.append(data)
        self._size += len(data)
        if not self._whole:
            if self._size > _AHEAD and not self.paused:
                self.paused = True
                self._line.pause(reading=False)
            self._wake()
        elif self._size > MAX_ANSWER:
            self.fail("gave an answer that is too long")

    def end(self, *, again: bool) -> None:
        """It has come to its end."""
        self.complete, self.again = True, again
        self._wake()

    def hung_up(self, *, in_order: bool) -> None:
        """The server closed the connection: the end of a body whose length it never told."""
        if self.complete or (self.status and not self._sized and in_order):
            self.end(again=False)
        elif self.status:
            self.fail("broke off its answer")
        else:
            self._unheard = self._stale
            self.fail("could not be reached")

    def fail(self, why: str) -> None:
        """Nothing more will come."""
        if not self.complete:
            self._fault = self._fault or why
            self._wake()


def _headed(headers: Mapping[str, str], more: bytes) -> bytes:
    """Headers as they are sent; of two names that differ in their case only the later one counts."""
    return _said(tuple(headers.items())) + more


@functools.lru_cache(maxsize=_MAX_URLS)
def _said(headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = {name.lower(): f"{name}: {value}\r\n" for name, value in headers}
    said = "".join(lines.values())
    if said.count("\r") + said.count("\n") != 2 * len(lines):
        raise UpstreamFailure("cannot be told such headers")
    return said.encode("latin-1")
