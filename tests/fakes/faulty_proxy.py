"""Proxy between a store and its server that forwards requests, or injects faults."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_WHY = b"<Error><Code>InvalidAccessKeyId</Code><Message>secret-of-the-store</Message></Error>"
REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(_WHY), _WHY)
BROKEN = b"HTTP/1.1 %b Broken\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass
class FaultyProxy:
    """Faulty proxy; `rule` returns the action for the nth request (from 0): `pass`, or one of these.

    `403`, `500`, `501`; `hang` (no response); `drop` (half the request is read); `cut` (half a response);
    `lie` (a response of the right length with other bytes).
    """

    port: int
    rule: Callable[[int, str], str]
    request_lines: list[str] = field(default_factory=list)
    endpoint: str = ""
    _writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    def methods(self) -> list[str]:
        """Return the methods of the requests so far."""
        return [line.partition(" ")[0] for line in self.request_lines]

    def of(self, method: str) -> list[str]:
        """Return the requests of one method so far."""
        return [line for line in self.request_lines if line.startswith(f"{method} ")]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection with one request."""
        self._writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.close()
            self._writers.discard(writer)

    async def close(self) -> None:
        """Close the connections that clients have left open, and wait for their end."""
        open_writers = tuple(self._writers)
        for writer in open_writers:
            writer.transport.abort()
        waits = (writer.wait_closed() for writer in open_writers)
        await asyncio.gather(*waits, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line = head.split(b"\r\n", 1)[0].decode()
        rows = [row.partition(b":") for row in head.lower().split(b"\r\n")]
        size = next((int(value) for name, _, value in rows if name == b"content-length"), 0)
        what = self.rule(len(self.request_lines), line)
        self.request_lines.append(line)
        if what == "drop":
            await reader.readexactly(size // 2)
            writer.transport.abort()
            return
        body = await reader.readexactly(size)
        match what:
            case "hang":
                # Wait until the client closes the connection.
                await reader.read()
            case "403":
                writer.write(REFUSED)
            case "500" | "501":
                writer.write(BROKEN % what.encode())
            case _:
                answer = await self._passed(head, body)
                cut = answer.index(b"\r\n\r\n") + 4
                if what == "cut":
                    answer = answer[: cut + (len(answer) - cut) // 2]
                elif what == "lie":
                    answer = answer[:cut] + bytes(len(answer) - cut)
                writer.write(answer)
        await writer.drain()

    async def _passed(self, head: bytes, body: bytes) -> bytes:
        first, _, rest = head.partition(b"\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(first + b"\r\nConnection: close\r\n" + rest + body)
            return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def faulty_proxy(port: int, rule: Callable[[int, str], str]) -> AsyncIterator[FaultyProxy]:
    result = FaultyProxy(port, rule)
    server = await asyncio.start_server(result.serve, "127.0.0.1", 0, limit=64 << 20)
    result.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        try:
            yield result
        finally:
            await result.close()
