"""Real servers on loopback: one with configurable responses, and canaries that must not be reached."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ReceivedRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answering = Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


def reply(body: bytes = b"", *, status: str = "200 OK", headers: tuple[str, ...] = ()) -> Answering:
    """Return a response with the correct length."""
    return raw(head(f"Content-Length: {len(body)}", *headers, status=status) + body)


def raw(content: bytes) -> Answering:
    """Return a response of exactly these bytes."""

    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        await writer.drain()

    return answer


def head(*headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, "", "")).encode("latin-1")


class AnyPath(dict[str, Answering]):
    """Routes that return one response on every path."""

    def __init__(self, answer: Answering) -> None:
        super().__init__()
        self._answer = answer

    def get(self, key: str, default: Any = None) -> Any:
        del key, default
        return self._answer


def redirect(location: str, *, status: str = "302 Found") -> Answering:
    return reply(status=status, headers=(f"Location: {location}",))


@dataclass
class Server:
    """Counts connections, records requests, and responds by path."""

    host: str = "127.0.0.1"
    port: int = 0
    connections: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list)
    routes: dict[str, Answering] = field(default_factory=dict)
    request_event: asyncio.Event = field(default_factory=asyncio.Event)
    disconnect_event: asyncio.Event = field(default_factory=asyncio.Event)
    open: set[asyncio.Task[None]] = field(default_factory=set)

    def url(self, path: str = "/", *, host: str | None = None, scheme: str = "http") -> str:
        return f"{scheme}://{host or self.host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(task := _current())
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                seen = await _read(reader)
                self.requests.append(seen)
                self.request_event.set()
                answer = self.routes.get(seen.path.partition("?")[0], reply(status="404 Not Found"))
                await _until_gone(asyncio.ensure_future(answer(seen, writer)), reader)
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
            self.disconnect_event.set()
            self.open.discard(task)


def _current() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _until_gone(answering: asyncio.Future[None], reader: asyncio.StreamReader) -> None:
    """Respond until the client disconnects."""
    leaving = asyncio.ensure_future(reader.read())
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in (answering, leaving):
            future.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    pairs = (line.partition(":") for line in lines[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    return ReceivedRequest(
        method, path, headers, await reader.readexactly(int(headers.get("content-length", "0")))
    )


@asynccontextmanager
async def serving(
    host: str = "127.0.0.1",
    port: int = 0,
    routes: dict[str, Answering] | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Server, None]:
    server = Server(host, routes=routes or {})
    listening = await asyncio.start_server(server.serve, host, port, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        while server.open:
            await asyncio.wait(server.open)
