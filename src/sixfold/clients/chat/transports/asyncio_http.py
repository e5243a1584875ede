"""Plain HTTP/1.1 transport on the event loop, for model servers in the local network.

The threads of other clients cost more than everything else in a call (see the architecture page of the
gateway). TLS, proxies and redirects are not supported. Each response is a separate object; a connection is
reused only after its response has ended, and closed if it receives unrequested data.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from sixfold.clients.chat.transport import HEADERS, USER_AGENT
from sixfold.core.concurrency.loop_turns import MAX_PARTS, SLICE_BYTES, LoopTurns
from sixfold.core.gateway.ports import UpstreamFailure

# Maximum number of idle connections to one server, and seconds until they are closed.
_MAX_IDLE, IDLE_SECONDS = 256, 5.0
# Pause reading from the server when this many bytes are buffered.
_MAX_BUFFERED_BYTES = 256 * 1024
# A longer body is read in parts. One iteration of the event loop parses as many bytes of large reads.
_MAX_WHOLE_BYTES = READ_BYTES = 2**20
# Maximum bytes between two parts of a body: status line and headers, interim responses, or trailers.
_MAX_HEAD_BYTES = 512 * 1024
# Maximum number of separate parts of a body; further parts are joined, as a small object takes 50 bytes.
_MAX_BLOCKS = 64
# Maximum number of cached URLs, and of cached sets of headers.
_MAX_URLS = 64
_DEFAULT_HEADERS = {**HEADERS, "User-Agent": USER_AGENT, "Accept": "*/*"}


class _Address(NamedTuple):
    """A parsed URL, with the serialized first lines of a request."""

    host: str
    port: int
    path: bytes
    request_prefix: bytes


class AsyncioTransport:
    """A connection pool, with one timer for all busy connections and one for all idle ones."""

    def __init__(self, connect_seconds: float, quiet_seconds: float) -> None:
        self._connect_seconds = connect_seconds
        self._quiet_seconds = quiet_seconds
        self._addresses: dict[str, _Address] = {}
        self._idle: dict[tuple[str, int], list[_Connection]] = {}
        self._busy: set[_Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self.reads, self.parts = LoopTurns(READ_BYTES), LoopTurns()

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool
    ) -> Coroutine[Any, Any, HttpReply]:
        """POST `body`; without `stream`, wait for the complete response, or for 1 MiB of it."""
        content_length = b"Content-Length: %d\r\n" % len(body)
        return self._send(b"POST ", url, _serialize_headers(headers, content_length), body, stream)

    def get(self, url: str, headers: Mapping[str, str]) -> Coroutine[Any, Any, HttpReply]:
        return self._send(b"GET ", url, _serialize_headers(headers, b""), b"", True)

    def delete(self, url: str, headers: Mapping[str, str]) -> Coroutine[Any, Any, HttpReply]:
        return self._send(b"DELETE ", url, _serialize_headers(headers, b""), b"", True)

    async def aclose(self) -> None:
        for connections in self._idle.values():
            for connection in tuple(connections):
                connection.close()
        for connection in tuple(self._busy):
            connection.close()
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._idle_timer = None
        # Connections are closed in the next iteration of the event loop.
        await asyncio.sleep(0)

    async def _send(self, method: bytes, url: str, headers: bytes, body: bytes, stream: bool) -> HttpReply:
        address = self._addresses.get(url) or self._address(url)
        head = b"".join((method, address.path, address.request_prefix, headers, b"\r\n"))
        # A large body is not kept while its response is awaited, so it is sent only on a new connection.
        is_large = len(body) > _MAX_WHOLE_BYTES
        connection = None if is_large else self._take_idle(address)
        while True:
            if connection is None:
                connection = await self._connect(address)
            reply = connection.ask(head, body, whole=not stream)
            if is_large:
                body = b""
            self._busy.add(connection)
            if self._timer is None:
                self._timer = connection.loop.call_later(self._quiet_seconds, self._time_out_quiet)
            try:
                await reply.started()
            except _ConnectionReset:
                # The server closed the idle connection and did not receive the request.
                connection.close()
                connection = None
            except BaseException:
                connection.close()
                raise
            else:
                return reply

    def _take_idle(self, address: _Address) -> _Connection | None:
        idle = self._idle.get((address.host, address.port))
        if not idle:
            return None
        connection = idle.pop()
        if connection.loop.time() - connection.last_activity < IDLE_SECONDS:
            return connection
        connection.close()
        return self._take_idle(address)

    async def _connect(self, address: _Address) -> _Connection:
        loop = asyncio.get_running_loop()
        endpoint = address.host, address.port
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self, endpoint, loop), *endpoint
                )
        except TimeoutError as error:
            raise UpstreamFailure("did not respond in time") from error
        except OSError as error:
            raise UpstreamFailure("could not be reached") from error
        return connection

    def release(self, connection: _Connection) -> None:
        """Return a connection to the pool after its response has ended."""
        self._busy.discard(connection)
        idle = self._idle.setdefault(connection.endpoint, [])
        idle.append(connection)
        if len(idle) > _MAX_IDLE:
            idle[0].close()
        if self._idle_timer is None:
            self._idle_timer = connection.loop.call_later(IDLE_SECONDS, self._close_idle)

    def forget(self, connection: _Connection) -> None:
        self._busy.discard(connection)
        idle = self._idle.get(connection.endpoint)
        if idle is not None and connection in idle:
            idle.remove(connection)

    def _address(self, url: str) -> _Address:
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        header_lines = "".join(
            f"{name}: {value}\r\n" for name, value in {"Host": parts.netloc, **_DEFAULT_HEADERS}.items()
        )
        request_prefix = f" HTTP/1.1\r\n{header_lines}".encode("ascii")
        address = _Address(parts.hostname or "", parts.port or 80, path.encode("ascii"), request_prefix)
        if len(self._addresses) >= _MAX_URLS:
            self._addresses.clear()
        self._addresses[url] = address
        return address

    def _close_idle(self) -> None:
        """Close connections that have been idle for too long, and start the timer for the next one."""
        self._idle_timer = None
        loop = asyncio.get_running_loop()
        # The idle connections of each server are ordered by idle time, longest first.
        for connections in self._idle.values():
            while connections and connections[0].last_activity + IDLE_SECONDS <= loop.time():
                connections[0].close()
        oldest = [connections[0].last_activity for connections in self._idle.values() if connections]
        if oldest:
            self._idle_timer = loop.call_at(min(oldest) + IDLE_SECONDS, self._close_idle)

    def _time_out_quiet(self) -> None:
        """Time out quiet connections, and start the timer for the next one."""
        self._timer = None
        if not self._busy:
            return
        current_time = asyncio.get_running_loop().time()
        for connection in [
            connection
            for connection in self._busy
            if connection.last_activity + self._quiet_seconds <= current_time
        ]:
            connection.time_out()
        if self._busy:
            due = min(connection.last_activity for connection in self._busy) + self._quiet_seconds
            self._timer = asyncio.get_running_loop().call_at(due, self._time_out_quiet)


class _ConnectionReset(Exception):
    """Raised if a reused connection is closed before the first byte of the response."""


class _Connection(asyncio.Protocol):
    """A connection, which is closed if it receives data between two responses."""

    def __init__(
        self, client: AsyncioTransport, endpoint: tuple[str, int], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.endpoint = endpoint
        self.loop = loop
        self.last_activity = 0.0
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._reply: HttpReply | None = None
        self._used = False
        # Data that waits for a turn, during which nothing is read.
        self._unparsed = b""
        # Headers and parts of a body in this turn, and whether the last data had many of them.
        self._parts = 0
        self._is_dense = False

    def ask(self, head: bytes, body: bytes, *, whole: bool) -> HttpReply:
        """Send a request and return its response, whose headers have not arrived yet."""
        self._reply = reply = HttpReply(self, whole=whole, stale=self._used)
        self._used = True
        self.last_activity = self.loop.time()
        if self._transport is None:
            reply.fail("could not be reached")
        else:
            # A large body is not copied.
            for part in (head, body) if len(body) > _MAX_WHOLE_BYTES else (head + body,):
                self._transport.write(part)
        return reply

    def leave(self, reply: HttpReply) -> None:
        """Release a response: the connection is kept if the response has ended."""
        if self._reply is not reply:
            return
        transport, self._reply = self._transport, None
        is_read = not self._unparsed and transport is not None and not transport.get_write_buffer_size()
        if reply.reusable and transport is not None and is_read:
            if reply.paused:
                transport.resume_reading()
            self._client.release(self)
        else:
            self.close()

    def close(self) -> None:
        self._client.forget(self)
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        # The parser refers to this connection.
        self._parser = None
        self._unparsed = b""
        self._fail("disconnected before the response was complete")

    def time_out(self) -> None:
        """Fail the response because nothing arrived within the time limit."""
        has_begun = self._reply is not None and self._reply.status
        self._fail("stopped responding" if has_begun else "did not respond in time")
        self.close()

    def pause(self, *, reading: bool) -> None:
        """Pause or resume reading from the server."""
        if self._transport is not None and not self._unparsed:
            (self._transport.resume_reading if reading else self._transport.pause_reading)()

    def _fail(self, reason: str) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.fail(reason)

    # asyncio calls these methods.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.last_activity = self.loop.time()
        if self._unparsed:
            self._unparsed += data
        elif self._is_dense or not self._client.reads.take(len(data)):
            self._wait_turn(data)
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse data; if it has too many parts for one turn, the rest waits for another turn."""
        self._parts = 0
        for start in range(0, len(data), SLICE_BYTES):
            if self._parts > MAX_PARTS:
                self._wait_turn(data[start:])
                break
            self._feed(data[start : start + SLICE_BYTES])
        self._is_dense = self._parts > MAX_PARTS

    def _wait_turn(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
            self._unparsed = data
            self._client.parts.call(self._continue)

    def _continue(self) -> None:
        data, self._unparsed = self._unparsed, b""
        if data:
            self.last_activity = self.loop.time()
            self._parse(data)
            self.pause(reading=self._reply is None or not self._reply.paused)

    def _feed(self, data: bytes) -> None:
        parser = self._parser
        if self._reply is None or parser is None:
            self.close()
            return
        self._reply.head_size += len(data)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail("returned a response that cannot be parsed")
            self.close()
            return
        if self._reply is not None and self._reply.head_size > _MAX_HEAD_BYTES:
            self._fail(f"returned headers of more than {_MAX_HEAD_BYTES:,} bytes")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        reply = self._reply
        self._transport = None
        if reply is not None:
            reply.connection_closed(in_order=exc is None)
        self.close()

    # httptools calls these methods.

    def on_message_begin(self) -> None:
        if self._reply is None or self._reply.complete:
            raise ValueError("response without a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._parts += 1
        if self._reply is not None:
            self._reply.head(name.lower(), value)

    def on_headers_complete(self) -> None:
        if self._reply is None or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self._reply.begin(status)

    def on_body(self, data: bytes) -> None:
        self._parts += 1
        if self._reply is not None:
            self._reply.take(data)

    def on_message_complete(self) -> None:
        if self._reply is not None and self._reply.status and self._parser is not None:
            self._reply.end(reusable=self._parser.should_keep_alive())


class HttpReply:
    """A response as it arrives; `status` is 0 until its headers have arrived."""

    __slots__ = (
        "_blocks",
        "_connection",
        "_fault",
        "_has_length",
        "_size",
        "_stale",
        "_waiting",
        "_was_reset",
        "_whole",
        "complete",
        "head_size",
        "paused",
        "retry_after",
        "reusable",
        "status",
    )

    def __init__(self, connection: _Connection, *, whole: bool, stale: bool) -> None:
        self.status = 0
        self.retry_after = ""
        self.complete = False
        # Bytes received since the last part of the body.
        self.head_size = 0
        # Whether the connection can be reused.
        self.reusable = False
        self.paused = False
        self._connection = connection
        self._whole = whole
        self._stale = stale
        self._was_reset = False
        self._fault = ""
        self._has_length = False
        self._blocks: list[bytes | bytearray] = []
        self._size = 0
        self._waiting: asyncio.Future[None] | None = None

    async def started(self) -> None:
        """Wait for the headers; with `whole`, wait for the end of the response or 1 MiB of its body.

        Raises `UpstreamFailure` and `_ConnectionReset`.
        """
        while not (self.complete if self._whole else self.status):
            self._check()
            await self._wait_more()

    async def read(self) -> bytes:
        while not self._blocks:
            if self.complete:
                return b""
            self._check()
            await self._wait_more()
        blocks, self._blocks, self._size = self._blocks, [], 0
        if self.paused:
            self.paused = False
            self._connection.pause(reading=True)
        return b"".join(blocks)

    async def aclose(self) -> None:
        """Release the connection; it is reused if the response has ended."""
        self._connection.leave(self)

    def _check(self) -> None:
        if self._was_reset:
            raise _ConnectionReset
        if self._fault:
            raise UpstreamFailure(self._fault)

    def _wait_more(self) -> asyncio.Future[None]:
        self._waiting = waiter = self._connection.loop.create_future()
        return waiter

    def _wake(self) -> None:
        waiter, self._waiting = self._waiting, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # The connection calls these methods.

    def head(self, name: bytes, value: bytes) -> None:
        if name == b"retry-after":
            self.retry_after = value.decode("latin-1")
        elif name in {b"content-length", b"transfer-encoding"}:
            self._has_length = True

    def begin(self, status: int) -> None:
        """Set the status code, once all headers are received."""
        self.status = status
        if not self._whole:
            self._wake()

    def take(self, data: bytes) -> None:
        """Add body bytes."""
        self.head_size = 0
        if len(self._blocks) <= _MAX_BLOCKS:
            self._blocks.append(data if len(self._blocks) < _MAX_BLOCKS else bytearray(data))
        else:
            self._blocks[-1] += data
        self._size += len(data)
        self._whole = self._whole and self._size <= _MAX_WHOLE_BYTES
        if not self._whole:
            if self._size > _MAX_BUFFERED_BYTES and not self.paused:
                self.paused = True
                self._connection.pause(reading=False)
            self._wake()

    def end(self, *, reusable: bool) -> None:
        """Mark the response as complete."""
        self.complete, self.reusable = True, reusable
        self._wake()

    def connection_closed(self, *, in_order: bool) -> None:
        """Handle a closed connection, which ends a body of unknown length."""
        if self.complete or (self.status and not self._has_length and in_order):
            self.end(reusable=False)
        elif self.status:
            self.fail("disconnected before the response was complete")
        else:
            self._was_reset = self._stale
            self.fail("could not be reached")

    def fail(self, reason: str) -> None:
        if not self.complete:
            self._fault = self._fault or reason
            self._wake()


def _serialize_headers(headers: Mapping[str, str], extra: bytes) -> bytes:
    """Serialize the headers; of names that differ only in case, the last one counts."""
    return _header_lines(tuple(headers.items())) + extra


@functools.lru_cache(maxsize=_MAX_URLS)
def _header_lines(headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = {name.lower(): f"{name}: {value}\r\n" for name, value in headers}
    serialized = "".join(lines.values())
    if serialized.count("\r") + serialized.count("\n") != 2 * len(lines):
        raise UpstreamFailure("cannot be called: the name or the value of a header contains a line break")
    return serialized.encode("latin-1")
