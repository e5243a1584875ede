"""Plain HTTP/1.1 transport on the event loop, for model servers in the local network.

The threads of other clients cost more than everything else in a call (see the architecture page of the
gateway). It has no TLS, no proxy and no redirects. Each response is an object of its own; a connection is
reused only after its response has ended, and closed if it sends anything unrequested.
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

# Idle connections to one server, and how long they are kept.
_KEPT, _KEPT_SECONDS = 256, 60.0
# Pause reading from the server when this many bytes are buffered.
_AHEAD = 256 * 1024
# Cached URLs, and cached sets of headers.
_MAX_URLS = 64
_ALWAYS = {**HEADERS, "User-Agent": USER_AGENT, "Accept": "*/*"}


class _Address(NamedTuple):
    """A parsed URL, with the serialized first lines of a request."""

    host: str
    port: int
    path: bytes
    hosted: bytes


class Client:
    """A connection pool, with one timer for all connections."""

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
        """POST `body`; without `stream`, wait for the complete response."""
        more = b"Content-Length: %d\r\n" % len(body)
        return self._send(b"POST ", url, _headed(headers, more), body, stream)

    def get(self, url: str, headers: Mapping[str, str]) -> Coroutine[Any, Any, HttpReply]:
        return self._send(b"GET ", url, _headed(headers, b""), b"", True)

    async def aclose(self) -> None:
        for lines in self._kept.values():
            for line in tuple(lines):
                line.close()
        for line in tuple(self._busy):
            line.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # The connections close in the next iteration of the event loop.
        await asyncio.sleep(0)

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
            except _ConnectionReset:
                # The server closed the idle connection and has not received the request.
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
        """Return a connection to the pool after its response has ended."""
        self._busy.discard(line)
        kept = self._kept.setdefault(line.where, [])
        kept.append(line)
        if len(kept) > _KEPT or line.heard - kept[0].heard > _KEPT_SECONDS:
            kept[0].close()

    def forget(self, line: _Connection) -> None:
        """Remove a closed connection."""
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
        """Time out quiet connections, and start the timer for the next one."""
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
    """A reused connection closed before any byte of the response."""


class _Connection(asyncio.Protocol):
    """A connection; between two responses it accepts no data."""

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
        """Send a request and return its response, which has not begun yet."""
        self._answer = answer = HttpReply(self, whole=whole, stale=self._used)
        self._used = True
        self.heard = self.loop.time()
        if self._transport is None:
            answer.fail("could not be reached")
        else:
            self._transport.write(raw)
        return answer

    def leave(self, answer: HttpReply) -> None:
        """Release a response: the connection is kept if the response has ended."""
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
        self._client.forget(self)
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._fail("broke off its answer")

    def time_out(self) -> None:
        """Fail the response because nothing arrived within the time limit."""
        began = self._answer is not None and self._answer.status
        self._fail("stopped answering" if began else "did not answer in time")
        self.close()

    def pause(self, *, reading: bool) -> None:
        """Pause or resume reading from the server."""
        if self._transport is not None:
            (self._transport.resume_reading if reading else self._transport.pause_reading)()

    def _fail(self, why: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.fail(why)

    # asyncio calls these methods.

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

    # httptools calls these methods.

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
    """A response as it arrives; `status` is 0 until its headers have arrived."""

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
        # Whether the connection can be reused.
        self.again = False
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
        """Wait for the headers, or for the whole response if `whole`.

        Raises `UpstreamFailure` and `_ConnectionReset`.
        """
        while not (self.complete if self._whole else self.status):
            self._check()
            await self._more()

    async def read(self) -> bytes:
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
        self._whole = True
        while not self.complete:
            self._check()
            if self.paused:
                self.paused = False
                self._line.pause(reading=True)
            await self._more()
        return await self.read()

    async def aclose(self) -> None:
        """Release the connection; it is reused if the response has ended."""
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

    # The connection calls these methods.

    def head(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        if name == b"retry-after":
            self.retry_after = value.decode("latin-1")
        elif name in {b"content-length", b"transfer-encoding"}:
            self._sized = True

    def begin(self, status: int) -> None:
        """Set the status after the headers."""
        self.status = status
        if not self._whole:
            self._wake()

    def take(self, data: bytes) -> None:
        """Add body bytes."""
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
        """Mark the response as complete."""
        self.complete, self.again = True, again
        self._wake()

    def hung_up(self, *, in_order: bool) -> None:
        """Handle a closed connection, which ends a body of unknown length."""
        if self.complete or (self.status and not self._sized and in_order):
            self.end(again=False)
        elif self.status:
            self.fail("broke off its answer")
        else:
            self._unheard = self._stale
            self.fail("could not be reached")

    def fail(self, why: str) -> None:
        """Mark the response as failed."""
        if not self.complete:
            self._fault = self._fault or why
            self._wake()


def _headed(headers: Mapping[str, str], more: bytes) -> bytes:
    """Serialize the headers; of names that differ only in case, the last one counts."""
    return _said(tuple(headers.items())) + more


@functools.lru_cache(maxsize=_MAX_URLS)
def _said(headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = {name.lower(): f"{name}: {value}\r\n" for name, value in headers}
    said = "".join(lines.values())
    if said.count("\r") + said.count("\n") != 2 * len(lines):
        raise UpstreamFailure("cannot be told such headers")
    return said.encode("latin-1")
