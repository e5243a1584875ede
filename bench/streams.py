"""Measure many open chat streams: memory, descriptors and CPU time of each, and memory after their end.

.venv/bin/python -m bench streams; SIXFOLD_BENCH_STREAMS (2000,4000,6000) are the numbers of streams.

The model server runs in a separate process: `python -m bench.streams PORT` sends the first token of each
stream immediately, one more to all of them after each `GET /next`, and their ends after `GET /end`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from bench import modelserver
from bench.gateway import _process, _raw, _up, free_port, prepare_sixfold, process_cpu
from bench.reporting import Row, calibration
from bench.server import _pss

TITLE = "Open chat streams"
COUNTS = tuple(map(int, os.environ.get("SIXFOLD_BENCH_STREAMS", "2000,4000,6000").split(",")))
# The memory of streams is returned within a minute.
OPENED_AT_ONCE, SETTLE_SECONDS, TOKENS = 64, 62, 5


class _SlowConnection(asyncio.Protocol):
    """A connection of the model server, which answers one request at a time."""

    def __init__(self, streams: set[asyncio.Transport]) -> None:
        self._streams = streams

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._buffer = cast("asyncio.Transport", transport), b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._streams.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._buffer.startswith(b"GET "):
            path, self._buffer = self._buffer.split()[1], b""
            for stream in tuple(self._streams):
                stream.writelines(modelserver.STREAM[-3:] if path == b"/end" else modelserver.STREAM[:1])
            if path == b"/end":
                self._streams.clear()
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        elif self._buffer.endswith(b"}"):
            self._buffer = b""
            self._streams.add(self._transport)
            self._transport.writelines((modelserver.HEAD, modelserver.STREAM[0]))


class _Stream(asyncio.Protocol):
    """A stream of a client; `tokens` counts its events."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self.tokens = 0
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._arrival: asyncio.Future[None] = loop.create_future()

    async def until(self, tokens: int) -> None:
        """Wait until `tokens` tokens have arrived in total."""
        while self.tokens < tokens:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._raw)

    def data_received(self, data: bytes) -> None:
        self.tokens += data.count(b"data: {")
        if not self._arrival.done():
            self._arrival.set_result(None)
        if b"data: [DONE]" in data:
            self.ended.set_result(None)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self._arrival, self.ended):
            if not future.done():
                future.set_exception(ConnectionError("the stream was closed before its end"))


async def _get(port: int, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    assert b" 204 " in await reader.readline()
    writer.close()


async def _open(port: int, key: str, count: int) -> list[_Stream]:
    raw, loop = _raw(key, stream=True), asyncio.get_running_loop()

    async def one() -> _Stream:
        _, stream = await loop.create_connection(lambda: _Stream(raw), "127.0.0.1", port)
        await stream.until(1)
        return stream

    streams = list[_Stream]()
    while len(streams) < count:
        streams += await asyncio.gather(*(one() for _ in range(min(OPENED_AT_ONCE, count - len(streams)))))
    return streams


def _descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


class _Measured(NamedTuple):
    """Measurements of the server: PSS in MB and descriptors while streams are open, and PSS after their end.

    `opening` and `chunk` are CPU time in seconds.
    """

    memory: float
    descriptors: int
    after: float
    opening: float
    chunk: float


class _Server(NamedTuple):
    pid: int
    port: int
    key: str
    models: int


async def _streams(server: _Server, count: int, seconds: float) -> _Measured:
    """Open streams, send tokens to all of them, end them, and return the measurements."""
    pid, began = server.pid, process_cpu(server.pid)
    streams = await _open(server.port, server.key, count)
    opened, memory, descriptors = process_cpu(pid), _pss(pid), _descriptors(pid)
    for number in range(TOKENS):
        await _get(server.models, "/next")
        await asyncio.gather(*(stream.until(number + 2) for stream in streams))
    chunk = (process_cpu(pid) - opened) / TOKENS
    await _get(server.models, "/end")
    await asyncio.gather(*(stream.ended for stream in streams))
    await asyncio.sleep(seconds)
    return _Measured(memory, descriptors, _pss(pid), opened - began, chunk)


async def _rows(server: _Server, count: int, rest: float, files: int) -> list[Row]:
    first = await _streams(server, count, SETTLE_SECONDS)
    again = await _streams(server, count, SETTLE_SECONDS)
    name, note = f"{count:,} streams", f"{first.after:.1f} MB, {rest:.1f} MB at the start"
    return [
        Row(f"{name}: memory per stream", (first.memory - rest) * 1024 / count, "KB", note="aim 25"),
        Row(f"{name}: descriptors per stream", (first.descriptors - files) / count, ""),
        Row(f"{name}: CPU to open one", first.opening / count * 1e6, "µs"),
        Row(f"{name}: CPU per chunk", first.chunk / count * 1e6, "µs"),
        Row(f"{name}: memory a minute after", first.after / rest, "times", note=note),
        Row(f"{name}: memory after as many further streams", again.after / first.after, "times"),
    ]


async def _measure(folder: Path) -> list[Row]:
    models, port = free_port(), free_port()
    with ExitStack() as stack:
        stack.enter_context(_process([sys.executable, "-m", "bench.streams", str(models)], 1))
        await _up(models)
        command, environ, key = prepare_sixfold(folder, models)
        process = stack.enter_context(_process([*command, "serve", "--port", str(port)], 0, **environ))
        await _up(port)
        server = _Server(process.pid, port, key, models)
        rest = (await _streams(server, OPENED_AT_ONCE, SETTLE_SECONDS)).after
        files = _descriptors(server.pid)
        return [row for count in COUNTS for row in await _rows(server, count, rest, files)]


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        return [*calibration(), *uvloop.run(_measure(Path(folder)))]


async def _serve(port: int) -> None:
    streams = set[asyncio.Transport]()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _SlowConnection(streams), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
