"""uvicorn's HTTP protocol, with parsing in slices and fast writes of whole responses.

uvicorn checks each header of a response by itself and sets a timer after each response. Here a whole response
on a persistent connection is one write, and `ConnectionSweep` closes idle connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import Any, cast

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr

from sixfold import errors
from sixfold.core.concurrency.loop_turns import CONNECTION_TURNS, MAX_PARTS
from sixfold.web import refusals
from sixfold.web.connections import overload
from sixfold.web.connections.compact import CompactEvent, CompactQueue, ConnectionFlow
from sixfold.web.connections.peers import PeerLimits, client_address
from sixfold.web.connections.send_memory import NO_SEND_LIMIT, SendMemory
from sixfold.web.connections.websocket_protocol import WebSocketProtocol
from sixfold.web.raw_asgi import CONNECTION, RawResponse

# Bytes that a header must not contain.
_FORBIDDEN = bytes({*range(0x20), 0x7F} - {0x09})
# The limit on the request line and headers of a request, and on the trailers of a body.
_MAX_HEAD_BYTES = 64 * 1024
# A read of 256 KiB may have 14,000 requests, which take 300 ms to parse and 40 MB until they are answered, so
# data is parsed in slices, and no more while a pipelined request waits.
_PARSED_BYTES = 2 * 1024
# The slices that are parsed before other callbacks run.
_TURN_BYTES = 16 * 1024
# The bytes of headers, and between the parts of a body, that a connection parses before it waits for a turn.
_DENSE_BYTES = 4 * 1024
_NO_LIMITS = PeerLimits()


def _closing_response(status: bytes, message: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        len(message),
        message,
    )


TIMED_OUT = _closing_response(b"408 Request Timeout", b"The request did not arrive in time")
_TOO_LONG = _closing_response(
    b"431 Request Header Fields Too Large",
    b"The request line and headers must have at most %d bytes" % _MAX_HEAD_BYTES,
)
_INVALID = _closing_response(b"400 Bad Request", b"Invalid HTTP request")


class HttpProtocol(HttpToolsProtocol):
    """An HTTP connection; times are the event loop's seconds, 0 if not set.

    `headers_since` is the time at which the connection began to wait for the headers of a request.
    `body_bytes` counts the bytes of all bodies; `body_credit` is the number of bytes by which the current
    body may still be late. `is_counted` and `is_unfinished` are True while `limits` counts the connection
    and its unfinished request.
    """

    # Python shares the names of at most 30 attributes between objects; a connection has more.
    __slots__ = (
        "_at",
        "_data",
        "_flow",
        "_head_bytes",
        "_is_dense",
        "_is_scheduled",
        "_parts",
        "body_bytes",
        "body_credit",
        "body_seen",
        "headers_since",
        "idle_since",
        "is_counted",
        "is_starting",
        "is_unfinished",
        "limits",
        "on_disconnect",
        "peer",
        "receiving",
        "refusal",
        "refused",
        "send_memory",
        "unread_credit",
        "unsent",
        "unsent_at",
    )

    def __init__(
        self,
        *args: Any,
        limits: PeerLimits = _NO_LIMITS,
        send_memory: SendMemory = NO_SEND_LIMIT,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits
        self.send_memory = send_memory
        self.pipeline = cast("Any", CompactQueue())
        self.idle_since = self.headers_since = 0.0
        self.body_bytes = self.body_seen = 0
        self.body_credit = 0.0
        # The bytes that the client had not read at the last sweep, its time, and how many more may be unread.
        self.unsent, self.unsent_at, self.unread_credit = 0, 0.0, 0.0
        self.receiving: RequestResponseCycle | None = None
        self.refused: overload.RefusedTransport | None = None
        self.refusal: overload.Refusal | None = None
        self.on_disconnect: Callable[[], object] | None = None
        self.is_starting = self.is_counted = self.is_unfinished = False
        self.peer: str | None = None
        # Data that is not parsed yet, the position at which it continues, and whether a callback will do so.
        self._data, self._at, self._is_scheduled = b"", 0, False
        # The parts of bodies in this turn, and whether it had many parts or headers.
        self._parts, self._is_dense = 0, False
        # Bytes since a request began or its body continued.
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Accept a connection, or refuse it if the client's address or this process is over its limit."""
        capacity, now = overload.capacity(), self.loop.time()
        client = get_remote_addr(transport)
        self.peer = self.limits.peer(client[0]) if client is not None else None
        descriptor = transport.get_extra_info("socket").fileno()
        refusal = None
        if capacity.is_full(self.connections, descriptor) or self.limits.is_crowded():
            refusal = self._replace_silent(capacity, now)
        refusal = refusal or self.limits.connect(self.peer)
        if refusal is not None:
            self._refuse(transport, capacity, refusal)
            return
        self.is_counted = True
        refusal = self.limits.begin(self.peer)
        if refusal is not None:
            self._release()
            self._refuse(transport, capacity, refusal)
            return
        self.is_unfinished = True
        self.headers_since = now
        self.is_starting = True
        capacity.start(self, now)
        super().connection_made(transport)
        self.flow = self._flow = ConnectionFlow(transport)

    def _replace_silent(self, capacity: overload.ConnectionCapacity, now: float) -> overload.Refusal | None:
        silent = cast("HttpProtocol | None", capacity.pop_silent(self.connections, now))
        if silent is None:
            return errors.TooManyConnections()
        self.connections.discard(silent)
        silent.transport.abort()
        silent._release()
        return None

    def _refuse(
        self, transport: asyncio.Transport, capacity: overload.ConnectionCapacity, refusal: overload.Refusal
    ) -> None:
        refusals.recorder().add(_REASONS[type(refusal)], self.peer or "")
        self.refusal = refusal
        self.refused = capacity.refuse(transport, self.loop)
        if self.refused is None:
            return
        self.ws_protocol_class = None
        super().connection_made(cast("asyncio.Transport", self.refused))
        self.flow = self._flow = ConnectionFlow(cast("asyncio.Transport", self.refused))
        # A refused connection closes by itself and must not count against the capacity.
        self.connections.discard(self)

    def _release(self) -> None:
        if self.is_counted:
            self.is_counted = False
            self.limits.disconnect(self.peer)
        if self.is_unfinished:
            self.is_unfinished = False
            self.limits.finish(self.peer)

    def handle_websocket_upgrade(self) -> None:
        """Switch to the websocket protocol, which releases the connection when it ends."""
        self._data = b""
        self._flow.is_held = False
        self.flow.resume_reading()
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, WebSocketProtocol):
            protocol.on_lost = self._release
            protocol.send_memory = self.send_memory
            # uvicorn passes every handshake on as HTTP/1.1, but keyless access depends on the version.
            if not self.transport.is_closing():
                protocol.scope["http_version"] = self.scope["http_version"]
        else:
            self._release()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.refused is not None:
            self.refused.lost()
        elif self.is_starting:
            overload.capacity().started(self)
        self._release()
        self._data = b""
        self.send_memory.resume(self.transport)
        super().connection_lost(exc)
        cycle: Any = self.cycle
        if cycle is not None:
            # The scope refers to this connection.
            cycle.scope.pop(CONNECTION, None)
        if self.on_disconnect is not None:
            self.on_disconnect()
            self.on_disconnect = None

    def pause_writing(self) -> None:
        """Count the bytes that the client has not read, and make the application wait."""
        super().pause_writing()
        self.send_memory.pause(self.transport, client_address(self))

    def resume_writing(self) -> None:
        self.send_memory.resume(self.transport)
        # The client has read nearly everything, even if more is written before the next sweep.
        self.unsent = 0
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse the data, or buffer it until earlier pipelined requests have been answered."""
        if self._data or self.pipeline or self._is_dense or self._flow.is_held:
            self._data, self._at = self._data[self._at :] + data, 0
            self._flow.hold()
            self._parse_later()
        elif len(data) > _PARSED_BYTES:
            self._data, self._at = data, 0
            self._parse_slices()
        else:
            self._parts = 0
            self._parse(data)
            self._is_dense = self._parts > MAX_PARTS
            self._count_unfinished()

    def _parse_slices(self) -> None:
        """Parse some of the data now, and the rest in later callbacks."""
        self._is_scheduled = self._is_dense = False
        self._parts, start, body_start = 0, self._at, self.body_bytes
        end = start + _TURN_BYTES
        while self._at < min(end, len(self._data)) and not self.pipeline and not self._is_dense:
            piece = self._data[self._at : self._at + _PARSED_BYTES]
            self._at += len(piece)
            self._parse(piece)
            if self.transport.is_closing():
                self._data = b""
            others = self._at - start - (self.body_bytes - body_start)
            self._is_dense = self._parts > MAX_PARTS or others > _DENSE_BYTES
        self._count_unfinished()
        if self._at < len(self._data):
            self._flow.hold()
            self._parse_later()
            return
        self._data, self._at = b"", 0
        if self._flow.is_held and not self.pipeline:
            self._resume()

    def _parse_later(self) -> None:
        """Parse the rest in a later callback; data with many parts waits for a turn of all connections."""
        if self._is_scheduled or self.pipeline:
            return
        self._is_scheduled = True
        if self._is_dense:
            CONNECTION_TURNS.call(self._parse_slices)
        else:
            self.loop.call_soon(self._parse_slices)

    def _resume(self) -> None:
        """Resume reading, unless the buffered part of the body exceeds the high-water limit."""
        self._flow.is_held = False
        cycle = self.current
        if cycle is None or len(cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()

    def _parse(self, data: bytes) -> None:
        try:
            cast("httptools.HttpRequestParser", self.parser).feed_data(data)
        except httptools.HttpParserUpgrade:
            # Other upgrades are ignored, as the standard allows.
            if self._should_upgrade():
                self.handle_websocket_upgrade()
        except httptools.HttpParserError:
            self._reject("invalid_request", _INVALID)
        self._head_bytes += len(data)
        if self._head_bytes > _MAX_HEAD_BYTES:
            self._reject("long_headers", _TOO_LONG)

    def _reject(self, reason: str, response: bytes) -> None:
        if not self.transport.is_closing():
            refusals.recorder().add(reason, self.peer or "")
            self.end(response)

    def end(self, response: bytes) -> None:
        """Close the connection, with this response unless another one has begun."""
        if self.current is not None and self.current.response_started:
            self.transport.abort()
            return
        self.transport.write(response)
        self.transport.close()

    def _count_unfinished(self) -> None:
        """Count the request as unfinished until it is complete."""
        if self.transport.is_closing():
            return
        if self.headers_since or self.is_receiving_body():
            if not self.is_unfinished:
                self._begin()
        elif self.is_unfinished:
            self.is_unfinished = False
            self.limits.finish(self.peer)

    def _begin(self) -> None:
        """Count a request on a persistent connection, or refuse it."""
        if self.refused is not None or self.transport.is_closing():
            return
        refusal = self.limits.begin(self.peer)
        if refusal is None:
            self.is_unfinished = True
            return
        refusals.recorder().add(_REASONS[type(refusal)], self.peer or "")
        cycle = self.current
        # The headers are incomplete.
        if cycle is None:
            self.transport.write(overload.fixed_response(refusal))
            self.transport.close()
            return
        cast("dict[str, Any]", cycle.scope)[overload.OVERLOADED] = refusal
        cycle.keep_alive = False

    def on_message_begin(self) -> None:
        self.idle_since = 0.0
        self.headers_since = self.loop.time()
        self._head_bytes = -_PARSED_BYTES
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Add the connection to the scope, so that a whole response can be sent by `send_response`."""
        self.headers_since = 0.0
        if self.is_starting:
            self.is_starting = False
            overload.capacity().started(self)
        previous: Any = self.cycle
        super().on_headers_complete()
        if self.cycle is not previous:
            # The task of this new request has not begun.
            self.cycle.message_event = cast("asyncio.Event", CompactEvent())
        scope: Any = self.scope
        scope[CONNECTION] = self
        if self.refused is not None:
            self.refused.request_received()
            self.cycle.keep_alive = False
            scope[overload.OVERLOADED] = self.refusal

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        self._parts += 1
        self._head_bytes = -_PARSED_BYTES
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Start the next pipelined request, or the idle time."""
        # The rest of its body is no longer awaited.
        if self.is_unfinished and not self.headers_since:
            self.is_unfinished = False
            self.limits.finish(self.peer)
        # The headers of a pipelined request had to wait for this response.
        if self.headers_since:
            self.headers_since = self.loop.time()
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.idle_since = self.loop.time()
        # More is read when all of the data has been parsed.
        if self._data or self._flow.is_held:
            self._parse_later()
        else:
            self.flow.resume_reading()

    def is_receiving_body(self) -> bool:
        """Return whether the rest of a body is awaited."""
        # uvicorn sets it to None until there is a request.
        cycle: Any = self.cycle
        return cycle is not None and cycle.more_body and not cycle.response_complete

    @property
    def current(self) -> RequestResponseCycle | None:
        """The request that is being received or answered, or None."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return None if cycle is None or cycle.response_complete else cycle

    def send_response(self, scope: Scope, response: RawResponse) -> bool:
        """Send a whole response and return True, or return False if it must go through uvicorn."""
        cycle, flow = self.cycle, self.flow
        # Pipelined requests must be answered in order.
        if cycle.scope is not scope:
            return False
        if cycle.response_started or cycle.disconnected:
            return False
        if not cycle.keep_alive or flow.write_paused:
            return False
        headers = (*cycle.default_headers, *response.raw_headers)
        head = b"%b: %b\r\n" * len(headers) % tuple(chain.from_iterable(headers))
        # A header may contain a model name, which the caller chooses.
        allowed = len(head) - 2 * len(headers)
        if len(head.translate(None, _FORBIDDEN)) != allowed:
            return False
        self.transport.write(b"".join((STATUS_LINE[response.status_code], head, b"\r\n", response.body)))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        self.on_response_complete()
        return True


_REASONS: dict[type[errors.SixfoldError], str] = {
    errors.TooManyConnections: "too_many",
    errors.TooManyPeerConnections: "peer_connections",
    errors.TooManyUnfinishedRequests: "unfinished_requests",
}
