"""Refuses connections while there are still descriptors left to say so.

Each request may open a second connection, to a model server or another service, so a server takes half as
many connections as it may have descriptors. A connection beyond that takes the place of the oldest one that
has not sent the headers of a request. Where there is none, its request is answered 503 by the application,
in the dialect of its path, except that the probes are answered as usual. Beyond the number of refusals that
can wait for a request, one fixed response is written at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import resource
from collections.abc import Collection
from http import HTTPStatus
from typing import Any

from sixfold.core import ids
from sixfold.errors import TooManyConnections, TooManyRequests
from sixfold.web import refusals

OVERLOADED = "sixfold.overloaded"  # in the scope of a request whose connection is refused
Refusal = TooManyConnections | TooManyRequests
PROBES = frozenset({"/livez", "/readyz"})

_RESERVED = 0.1  # of the limit: for the database, files, workers and connections that are being refused
_UNLIMITED = 1 << 20
_MIN_SILENT_SECONDS = 1.0  # before a connection without a request may be dropped for another
_MIN_WAIT_SECONDS = 0.25  # before a refused one may
_PATIENCE_SECONDS = 2.0  # for the request of a connection that is being refused, and for reading its rest
_ANSWER_SECONDS = 10.0  # for the response to it
_UNREAD_BYTES = 64 * 1024


def fixed_response(error: Refusal) -> bytes:
    """A whole response without a dialect, for a request whose path is not known."""
    request_id = ids.new("req")
    body = json.dumps(
        {"error": error.message, "code": error.code, "status": error.status, "request_id": request_id}
    )
    return (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nRetry-After: {error.retry_after}\r\n"
        f"Connection: close\r\nX-Request-Id: {request_id}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


class ConnectionCapacity:
    """How many connections a process with `limit` descriptors takes."""

    def __init__(self, limit: int) -> None:
        reserved = max(16, int(limit * _RESERVED))
        self.descriptors = limit - reserved
        self.connections = max(1, self.descriptors // 2)
        self._starting: dict[Any, float] = {}  # since when a connection has had no headers, oldest first
        self._most_waiting = reserved // 2  # refused connections whose request is awaited
        self._waiting = 0
        self._silent: dict[RefusedTransport, float] = {}  # of those, the ones without a request, oldest first

    def is_full(self, connections: Collection[object], descriptor: int) -> bool:
        """Whether one more connection is too many.

        The kernel hands out the lowest free number, so a high `descriptor` means that all below are in use.
        """
        return len(connections) >= self.connections or descriptor >= self.descriptors

    def start(self, connection: Any, moment: float) -> None:
        """Note that a connection was made at `moment`, in the event loop's seconds."""
        self._starting[connection] = moment

    def started(self, connection: Any) -> None:
        """Note that a connection sent the headers of a request, or was closed."""
        self._starting.pop(connection, None)

    def silent(self, connections: Collection[object], moment: float) -> Any | None:
        """Remove and return the oldest connection that has sent no headers; None where all are busy."""
        oldest = next(iter(self._starting), None)
        if oldest is None or self._starting[oldest] > moment - _MIN_SILENT_SECONDS:
            return None
        if oldest not in connections:
            return None
        del self._starting[oldest]
        refusals.recorder().add("silent")
        return oldest

    def refuse(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop
    ) -> RefusedTransport | None:
        """Return the transport on which a request is refused; None where a response was sent already."""
        moment = loop.time()
        if self._waiting >= self._most_waiting and not self._drop_waiting(moment):
            transport.set_protocol(asyncio.Protocol())
            transport.write(fixed_response(TooManyConnections()))
            _discard_input(transport)
            transport.close()
            return None
        self._waiting += 1
        refused = RefusedTransport(transport, loop, self)
        self._silent[refused] = moment
        return refused

    def answering(self, refused: RefusedTransport) -> None:
        """Note that a refused connection sent its request."""
        self._silent.pop(refused, None)

    def closed(self, refused: RefusedTransport) -> None:
        """Note that a refused connection is closed."""
        self._silent.pop(refused, None)
        self._waiting -= 1

    def _drop_waiting(self, moment: float) -> bool:
        oldest = next(iter(self._silent), None)
        if oldest is None or self._silent[oldest] > moment - _MIN_WAIT_SECONDS:
            return False
        del self._silent[oldest]
        oldest.abort()
        return True


def _discard_input(transport: asyncio.Transport) -> None:
    """Read what has arrived, since closing a socket with unread input resets it and loses the response."""
    with contextlib.suppress(OSError):  # nothing more, or the client is gone
        descriptor = transport.get_extra_info("socket").fileno()
        while len(os.read(descriptor, _UNREAD_BYTES)) == _UNREAD_BYTES:
            pass


@functools.cache
def capacity() -> ConnectionCapacity:
    """The capacity of this process, by the limit that it has when its first connection comes."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ConnectionCapacity(_UNLIMITED if soft == resource.RLIM_INFINITY else soft)


class RefusedTransport:
    """The transport of a refused connection, which reads the rest of a request after its response.

    `close` ends the sending direction alone, so that unread input does not reset the connection. The client
    has two seconds for its request, and two to close after the response.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, capacity: ConnectionCapacity
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._capacity = capacity
        self._is_closing = False
        self._is_lost = False
        self._ending = loop.call_later(_PATIENCE_SECONDS, transport.abort)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether the response was sent."""
        return self._is_closing or self._transport.is_closing()

    def answering(self) -> None:
        """Give the application its time to answer."""
        self._capacity.answering(self)
        self._wait(_ANSWER_SECONDS)

    def close(self) -> None:
        """End the sending direction and drop what still comes."""
        if self.is_closing():
            return
        self._is_closing = True
        self._transport.set_protocol(_DiscardingProtocol(self._transport.get_protocol()))
        self._transport.write_eof()
        self._transport.resume_reading()
        self._wait(_PATIENCE_SECONDS)

    def lost(self) -> None:
        """Release what the refusal held; the connection is closed."""
        if not self._is_lost:
            self._is_lost = True
            self._ending.cancel()
            self._capacity.closed(self)

    def _wait(self, seconds: float) -> None:
        self._ending.cancel()
        self._ending = self._loop.call_later(seconds, self._transport.abort)


class _DiscardingProtocol(asyncio.Protocol):
    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
