"""A Unix socket in the data folder, whose clients act as the operator.

The kernel reports the user of a client, which a proxy cannot forward. Only the server's own user and root are
admitted. Requests without a credential get one that only this process knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from sixfold.web.connections.uvicorn_protocol import HttpProtocol

FILE = "sixfold.sock"
# Since Python 3.13, a server looks for the file at the address of its socket to delete it at the end. That
# address is relative to a descriptor that is closed by then.
SERVER_OPTIONS: Mapping[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
_BACKLOG = 128
# The fields of SO_PEERCRED: process, user and group id.
_CREDENTIALS = struct.Struct("3i")
_MODE_MASK = 0o177
_CREDENTIAL_HEADERS = frozenset({b"authorization", b"x-api-key"})


@contextlib.contextmanager
def address(path: Path) -> Generator[str]:
    """Yield an address of a socket in a folder, shorter than the system's limit of 107 bytes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


@contextlib.contextmanager
def listening(path: Path) -> Generator[socket.socket]:
    """Yield a socket that listens at `path`, accessible to its user only; raises `OSError`.

    The caller holds the lock of the folder, so an existing file belongs to no running server.
    """
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        old_mask = os.umask(_MODE_MASK)
        try:
            with address(path) as name:
                listener.bind(name)
        finally:
            os.umask(old_mask)
        listener.listen(_BACKLOG)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def user_of(peer: socket.socket) -> int:
    """Return the user id of the process at the other end."""
    options = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(options)[1])


class LocalHttpProtocol(HttpProtocol):
    """A connection to the local socket; those of other users are closed."""

    is_foreign = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as peer:
            self.is_foreign = user_of(peer) not in {0, os.geteuid()}
        if self.is_foreign:
            transport.abort()
            return
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self.is_foreign:
            super().data_received(data)

    def eof_received(self) -> None:
        """Do nothing, because the client's process closes the connection."""

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_foreign:
            super().connection_lost(exc)


class LocalOperator:
    """An ASGI application that adds the operator's `token` to requests without a credential."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._header = (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope["headers"]}
        if not names & _CREDENTIAL_HEADERS and b"token=" not in scope["query_string"]:
            scope["headers"] = [*scope["headers"], self._header]
        await self._app(scope, receive, send)
