"""Limits on the status lines and headers of HTTP/1.1 responses, checked before a client parses them.

The clients parse all data that one read returns in one turn of the event loop, and follow interim responses
(status 1xx) without a limit. Of many connections that have data, one is parsed in each turn.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

import httpcore

from sixfold.core.concurrency.loop_turns import LoopTurns

MAX_HEAD_BYTES, MAX_HEAD_LINES = 65_536, 512
_READ_BYTES = 1024
_INTERIM = b"1"
# Turns of the event loop, in each of which the response of one connection is parsed.
READ_TURNS = LoopTurns()


class HeadLimits:
    """Counts the bytes and lines of a response's head, including the heads of interim responses."""

    def __init__(self) -> None:
        self.is_complete = False
        self._bytes = self._lines = 0
        self._line = b""
        self._is_interim = self._is_started = False

    def add(self, data: bytes) -> None:
        """Count received bytes up to the end of the head; raises `httpcore.RemoteProtocolError`."""
        *lines, rest = (self._line + data).split(b"\n")
        for line in lines:
            self._lines += 1
            self._bytes += len(line) + 1
            self._read(line.rstrip(b"\r"))
            self._check(self._bytes)
            if self.is_complete:
                return
        self._line = rest
        self._check(self._bytes + len(rest))

    def _read(self, line: bytes) -> None:
        if line and not self._is_started:
            self._is_started = True
            self._is_interim = line.partition(b" ")[2].lstrip()[:1] == _INTERIM
        elif not line and self._is_started:
            # The final response follows an interim one.
            self.is_complete, self._is_started = not self._is_interim, False

    def _check(self, size: int) -> None:
        if size > MAX_HEAD_BYTES or self._lines > MAX_HEAD_LINES:
            raise httpcore.RemoteProtocolError(
                f"The response has more than {MAX_HEAD_BYTES} bytes or {MAX_HEAD_LINES} lines of headers"
            )


class LimitedStream(httpcore.AsyncNetworkStream):
    """A connection that is read in small parts until the head of the response to each request is complete."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._head = HeadLimits()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  httpcore's signature
        if self._head.is_complete:
            data = await self._stream.read(max_bytes, timeout)
        else:
            data = await self._stream.read(min(max_bytes, _READ_BYTES), timeout)
            self._head.add(data)
        await READ_TURNS.next()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  httpcore's signature
        if self._head.is_complete:
            # The connection is used for another request.
            self._head = HeadLimits()
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's signature
    ) -> httpcore.AsyncNetworkStream:
        return LimitedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class LimitedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to servers that the operator has configured, with limits on heads."""

    def __init__(self) -> None:
        self._sockets = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        return LimitedStream(await self._sockets.connect_tcp(*arguments, **options))

    async def connect_unix_socket(self, *arguments: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        return LimitedStream(await self._sockets.connect_unix_socket(*arguments, **options))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
