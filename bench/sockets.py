"""Open many websockets in one process at little cost: only the arrival times of poses are recorded."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import time
from urllib.parse import urlsplit

_SHORT, _LONG = 126, 127
_POSE = b'{"type":"pose"'
_CLOSING = 0x88


def masked(text: str) -> bytes:
    """Return a short string as a masked frame of a client."""
    body, mask = text.encode(), os.urandom(4)
    hidden = bytes(a ^ b for a, b in zip(body, itertools.cycle(mask), strict=False))
    return bytes((0x81, 0x80 | len(body))) + mask + hidden


class Watcher(asyncio.Protocol):
    """A websocket: `moments` are the arrival times of poses; `first` is set at the first pose."""

    def __init__(self, path: str) -> None:
        self.moments: list[float] = []
        self.first: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._path = path
        self._buffer = bytearray()
        self._open = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (f"GET {self._path} HTTP/1.1", f"Host: {transport.get_extra_info('peername')[0]}:"
                 f"{transport.get_extra_info('peername')[1]}", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", "")  # fmt: skip
        transport.write("\r\n".join(lines).encode())

    def send(self, text: str) -> None:
        assert self._transport is not None
        self._transport.write(masked(text))

    def disconnect(self) -> None:
        """Close the connection without a close frame."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the connection has ended."""
        if not self.over.done():
            self.over.set_result(None)
        if not self.first.done():
            self.first.set_exception(ConnectionError("the socket was closed before the first pose"))

    def data_received(self, data: bytes) -> None:
        moment = time.perf_counter()
        self._buffer += data
        if not self._open:
            head, separator, rest = bytes(self._buffer).partition(b"\r\n\r\n")
            if not separator:
                return
            if b" 101 " not in head[:20]:
                raise SystemExit(f"the socket was refused: {head[:200]!r}")
            self._open, self._buffer = True, bytearray(rest)
            self.send('{"type":"hello"}')
        self._cut(moment)

    def _cut(self, moment: float) -> None:
        buffer, at = self._buffer, 0
        while len(buffer) - at >= 2:
            length, head = buffer[at + 1] & 0x7F, 2
            if length >= _SHORT:
                head = 4 if length == _SHORT else 10
                length = int.from_bytes(buffer[at + 2 : at + head])
            if len(buffer) - at < head + length:
                break
            if buffer.startswith(_POSE, at + head):
                self._posed(moment)
            elif buffer[at] == _CLOSING:
                self.disconnect()
            at += head + length
        del buffer[:at]

    def _posed(self, moment: float) -> None:
        self.moments.append(moment)
        if not self.first.done():
            self.first.set_result(moment)


async def watch(url: str) -> Watcher:
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}"
    _, watcher = await asyncio.get_running_loop().create_connection(
        lambda: Watcher(path), str(parts.hostname), int(parts.port or 80)
    )
    return watcher
