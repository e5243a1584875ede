"""Refuses connections while there are still descriptors left to say so.

Each request may open a second connection, to a model server or another service, so a server takes half as
many connections as it may have descriptors. A connection beyond that is answered 503 and closed.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import resource
import time
from collections import Counter
from collections.abc import Callable, Collection

_RESERVED = 0.1  # of the limit: for the database, files, workers and connections that are being refused
_UNLIMITED = 1 << 20
_RETRY_SECONDS = 5
_PATIENCE_SECONDS = 2.0  # for the request of a connection that is being refused
_LOG_SECONDS = 10.0  # between two lines in the log
_LOG = logging.getLogger("sixfold.server")

_MESSAGE = "The server has too many connections; ask again in a moment"
_BODY = json.dumps({"error": _MESSAGE, "code": "too_many_connections", "status": 503})
_ANSWER = (
    f"HTTP/1.1 503 Service Unavailable\r\nRetry-After: {_RETRY_SECONDS}\r\nConnection: close\r\n"
    f"Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n{_BODY}"
).encode()


class Capacity:
    """How many connections a process with `limit` descriptors takes."""

    def __init__(self, limit: int) -> None:
        reserved = max(16, int(limit * _RESERVED))
        self.descriptors = limit - reserved
        self._most_waiting = reserved // 2  # refused connections whose request is awaited
        self._waiting = 0
        self.connections = max(1, self.descriptors // 2)
        self.refused = Counter[str]()  # connections that this process closed, by reason
        self._quiet_until = 0.0

    def is_full(self, connections: Collection[object], descriptor: int) -> bool:
        """Whether one more connection is too many.

        The kernel hands out the lowest free number, so a high `descriptor` means that all below are in use.
        """
        return len(connections) >= self.connections or descriptor >= self.descriptors

    def refuse(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Answer 503 to the first bytes of a connection and close it."""
        self.refused["too_many"] += 1
        if (moment := time.monotonic()) >= self._quiet_until:
            self._quiet_until = moment + _LOG_SECONDS
            _LOG.warning(
                "Refused a connection (%d since the start): this process has %d descriptors and takes %d "
                "connections at a time",
                self.refused["too_many"],
                self.descriptors,
                self.connections,
            )
        if self._waiting < self._most_waiting:
            self._waiting += 1
            transport.set_protocol(_Refusal(transport, loop, self._ended))
        else:
            transport.set_protocol(asyncio.Protocol())
            transport.write(_ANSWER)
            transport.close()

    def _ended(self) -> None:
        self._waiting -= 1


@functools.cache
def capacity() -> Capacity:
    """The capacity of this process, by the limit that it has when its first connection comes."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Capacity(_UNLIMITED if soft == resource.RLIM_INFINITY else soft)


class _Refusal(asyncio.Protocol):
    """Reads and drops what a connection sends, so that the answer is not lost to a reset."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._ended = ended
        self._answered = False
        self._ending = loop.call_later(_PATIENCE_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        if not self._answered:
            self._answered = True
            self._transport.write(_ANSWER)
            self._transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ending.cancel()
        self._ended()
