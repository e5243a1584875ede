"""The local socket: a Unix socket in the data folder, whose clients are the operator.

The kernel says which user a client runs as, and a proxy cannot forward that. Only the server's own user and
root are admitted. Requests that carry no credential get one that is known to this process alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Generator
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from sixfold.web.uvicorn_protocol import HttpProtocol

FILE = "sixfold.sock"
_BACKLOG = 128
_CREDENTIALS = struct.Struct("3i")  # of SO_PEERCRED: process, user, group
_MODE_MASK = 0o177
_CREDENTIAL_HEADERS = frozenset({b"authorization", b"x-api-key"})


@contextlib.contextmanager
def address(path: Path) -> Generator[str]:
    """The address of a socket in a folder; the system allows 107 bytes, whatever the folder's path is."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


@contextlib.contextmanager
def listening(path: Path) -> Generator[socket.socket]:
    """A socket that listens at `path`, readable and writable by its user only; raises `OSError`.

    The caller holds the lock of the folder, so that a file from before belongs to no server.
    """
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(_MODE_MASK)
        try:
            with address(path) as short:
                listener.bind(short)
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def user_of(peer: socket.socket) -> int:
    """The user that the process at the other end runs as."""
    options = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(options)[1])


class LocalLine(HttpProtocol):
    """A connection to the local socket; one of another user is closed."""

    is_foreign = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Admit the server's own user and root."""
        with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as peer:
            self.is_foreign = user_of(peer) not in {0, os.geteuid()}
        if self.is_foreign:
            transport.abort()
            return
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Read a request."""
        if not self.is_foreign:
            super().data_received(data)

    def eof_received(self) -> None:
        """Leave it to the client's process to end."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection held."""
        if not self.is_foreign:
            super().connection_lost(exc)


class LocalOperator:
    """An application whose requests without a credential carry the operator's `token`."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._header = (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI server."""
        names = {name for name, _ in scope["headers"]}
        if not names & _CREDENTIAL_HEADERS and b"token=" not in scope["query_string"]:
            scope["headers"] = [*scope["headers"], self._header]
        await self._app(scope, receive, send)
