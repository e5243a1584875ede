"""Limits on connections, enforced while descriptors are left to respond with an error.

A request may open a second connection, such as to a model server, so a server accepts half as many
connections as it has descriptors. A connection beyond that replaces the oldest one that has not sent the
headers of a request. Without such a connection, the application answers 503 in the error format of the path,
except that health probes work as usual. If too many refused connections are waiting for their request
already, a fixed response is written at once.
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

# The scope key of the error with which a request is refused.
OVERLOADED = "sixfold.overloaded"
Refusal = TooManyConnections | TooManyRequests
PROBES = frozenset({"/livez", "/readyz"})

# The fraction of descriptors for the database, files, workers and connections that are being refused.
_RESERVED = 0.1
_UNLIMITED = 1 << 20
# A connection without a request is kept for this time before another may replace it.
MIN_SILENT_SECONDS = 1.0
# The same for a connection that is being refused.
MIN_WAIT_SECONDS = 0.25
# The timeout for the request of a refused connection, and for reading the rest of it.
_REQUEST_TIMEOUT_SECONDS = 2.0
# The timeout for the response to it.
_RESPONSE_TIMEOUT_SECONDS = 10.0
_UNREAD_BYTES = 64 * 1024


def fixed_response(error: Refusal) -> bytes:
    """Return a complete HTTP response with an error, for a request whose path is not known."""
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
    """The number of connections that a process with `limit` descriptors accepts."""

    def __init__(self, limit: int) -> None:
        reserved = max(16, int(limit * _RESERVED))
        self.descriptors = limit - reserved
        self.connections = max(1, self.descriptors // 2)
        # The times at which connections without headers were made, oldest first.
        self._starting: dict[Any, float] = {}
        # The limit on refused connections that have not sent their request.
        self.max_waiting = reserved // 2
        self._waiting = 0
        # Refused connections that have sent no request, with their times, oldest first.
        self._silent: dict[RefusedTransport, float] = {}

    def is_full(self, connections: Collection[object], descriptor: int) -> bool:
        """Return whether another connection is too many.

        The kernel assigns the lowest free number, so a high `descriptor` means that all lower ones are in
        use.
        """
        return len(connections) >= self.connections or descriptor >= self.descriptors

    def start(self, connection: Any, now: float) -> None:
        """Record a new connection; `now` is the event loop's time in seconds."""
        self._starting[connection] = now

    def started(self, connection: Any) -> None:
        """Record that a connection has sent the headers of a request or has been closed."""
        self._starting.pop(connection, None)

    def pop_silent(self, connections: Collection[object], now: float) -> Any | None:
        """Remove and return the oldest connection that has sent no headers, or None if there is none."""
        oldest = next(iter(self._starting), None)
        if oldest is None or self._starting[oldest] > now - MIN_SILENT_SECONDS:
            return None
        if oldest not in connections:
            return None
        del self._starting[oldest]
        refusals.recorder().add("silent")
        return oldest

    def refuse(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop
    ) -> RefusedTransport | None:
        """Return the transport that refuses a request, or None if a fixed response was written already."""
        now = loop.time()
        if self._waiting >= self.max_waiting and not self._drop_waiting(now):
            transport.set_protocol(asyncio.Protocol())
            transport.write(fixed_response(TooManyConnections()))
            _discard_input(transport)
            transport.close()
            return None
        self._waiting += 1
        refused = RefusedTransport(transport, loop, self)
        self._silent[refused] = now
        return refused

    def request_received(self, refused: RefusedTransport) -> None:
        """Record that a refused connection has sent its request."""
        self._silent.pop(refused, None)

    def closed(self, refused: RefusedTransport) -> None:
        self._silent.pop(refused, None)
        self._waiting -= 1

    def _drop_waiting(self, now: float) -> bool:
        oldest = next(iter(self._silent), None)
        if oldest is None or self._silent[oldest] > now - MIN_WAIT_SECONDS:
            return False
        del self._silent[oldest]
        oldest.abort()
        return True


def _discard_input(transport: asyncio.Transport) -> None:
    """Read pending input, since closing a socket with unread input resets it and loses the response."""
    # There is no more input, or the client has disconnected.
    with contextlib.suppress(OSError):
        descriptor = transport.get_extra_info("socket").fileno()
        while len(os.read(descriptor, _UNREAD_BYTES)) == _UNREAD_BYTES:
            pass


@functools.cache
def capacity() -> ConnectionCapacity:
    """Return the capacity of this process, by its limit on descriptors at the first connection."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ConnectionCapacity(_UNLIMITED if soft == resource.RLIM_INFINITY else soft)


class RefusedTransport:
    """The transport of a refused connection, which reads the rest of a request after the response.

    `close` only shuts down sending, so that unread input does not reset the connection. The client has two
    seconds to send its request, and two to close after the response.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, capacity: ConnectionCapacity
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._capacity = capacity
        self._is_closing = False
        self._is_lost = False
        self._ending = loop.call_later(_REQUEST_TIMEOUT_SECONDS, transport.abort)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return whether the response was sent."""
        return self._is_closing or self._transport.is_closing()

    def request_received(self) -> None:
        """Extend the timeout, so that the application can respond."""
        self._capacity.request_received(self)
        self._wait(_RESPONSE_TIMEOUT_SECONDS)

    def close(self) -> None:
        """Shut down sending and discard further input."""
        if self.is_closing():
            return
        self._is_closing = True
        self._transport.set_protocol(_DiscardingProtocol(self._transport.get_protocol()))
        self._transport.write_eof()
        self._transport.resume_reading()
        self._wait(_REQUEST_TIMEOUT_SECONDS)

    def lost(self) -> None:
        """Remove the closed connection from the count of refused connections."""
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
