"""Network between the servers of a cluster and their stores, which stalls, resets or refuses connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

_PIECE_BYTES = 1 << 16


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


@dataclass
class FaultyNetwork:
    """Proxy of byte streams; each fault applies to all of its connections."""

    connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
    _gate: asyncio.Event = field(default_factory=_open_gate)
    _refusing: bool = False
    _writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])
    _connections: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def stall(self, seconds: float) -> None:
        """Deliver nothing for `seconds`, and everything after that."""
        self._gate.clear()
        await asyncio.sleep(seconds)
        self._gate.set()

    async def refuse(self, seconds: float) -> None:
        """Reset every connection, and each new one for `seconds`."""
        self._refusing = True
        self.reset()
        await asyncio.sleep(seconds)
        self._refusing = False

    def reset(self) -> None:
        """Abort every connection; data that it has not delivered is lost."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        """Abort every connection, and wait for its end."""
        self.reset()
        await asyncio.gather(*self._connections)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection in a separate task."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            target_reader, target_writer = await self.connect()
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, target_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._forward(reader, target_writer), self._forward(target_reader, writer))
        finally:
            self._writers -= pair
            for each in pair:
                each.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                await self._gate.wait()
                writer.write(piece)
                await writer.drain()
            writer.write_eof()


@asynccontextmanager
async def tcp_network(port: int) -> AsyncIterator[tuple[FaultyNetwork, int]]:
    """Run a proxy for a port of this machine, and yield it with the port of its clients."""
    network = FaultyNetwork(lambda: asyncio.open_connection("127.0.0.1", port))
    server = await asyncio.start_server(network.accept, "127.0.0.1", 0)
    async with server:
        yield network, server.sockets[0].getsockname()[1]
        await network.close()


@asynccontextmanager
async def unix_network(path: Path, target: Path) -> AsyncIterator[FaultyNetwork]:
    """Run a proxy on the socket `path` for the socket `target`."""
    network = FaultyNetwork(lambda: asyncio.open_unix_connection(str(target)))
    async with await asyncio.start_unix_server(network.accept, str(path)):
        yield network
        await network.close()
