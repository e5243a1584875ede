"""Uvicorn server for tests that leaves signals to pytest and stops without uvicorn's pauses of 0.1 s."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn

_POLL_SECONDS = 0.01


def open_listener(port: int = 0) -> socket.socket:
    """Return a listening socket on loopback; `port` 0 selects a free port.

    The option applies to its connections. Without it the kernel holds back the body of a response until
    the client acknowledges the head, 40 ms later; asyncio sets it only for sockets that are named as TCP.
    """
    result = socket.create_server(("127.0.0.1", port))
    result.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return result


class EmbeddedServer(uvicorn.Server):
    """Uvicorn server in this process; set `should_exit` to stop it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def main_loop(self) -> None:
        """Run until `should_exit` is set, possibly by another thread."""
        while not await self.on_tick(0):  # noqa: ASYNC110 - another thread may set `should_exit`
            await asyncio.sleep(_POLL_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the sockets and wait for open requests up to the configured timeout."""
        for each in (*self.servers, *(sockets or ())):
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self._busy() and not self.force_exit:  # noqa: ASYNC110 - uvicorn has no event for it
                    await asyncio.sleep(_POLL_SECONDS)
        for task in self.server_state.tasks:
            task.cancel("the server stops")

    def _busy(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)
