"""uvicorn's HTTP, with a short way out for an answer that is whole, and one clock for all who wait.

uvicorn looks at every header of an answer by itself and winds a clock after each. So a whole answer on a
connection that stays is written as one piece, and one look a second finds who has been idle for too long.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from sixfold.web import overload
from sixfold.web.plain import LINE, Answer

_FORBIDDEN = bytes({*range(0x20), 0x7F} - {0x09})  # in a header
_PAUSE_SECONDS = 30  # that a body may stop coming
_LOG_SECONDS = 60.0  # between two lines in the log
_LOG = logging.getLogger("sixfold.server")
_MESSAGE = b"The request did not arrive in time"
_TIMED_OUT = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_MESSAGE), _MESSAGE)
)


class Line(HttpToolsProtocol):
    """One connection; `idle_since` and `headers_since` in the event loop's seconds, 0 where none applies.

    `headers_since` is when the connection began to wait for the headers of a request. `body_bytes` counts
    what came of all bodies, `body_credit` what the one that is being received may still fall behind.
    """

    idle_since = 0.0
    headers_since = 0.0
    body_bytes = 0
    body_seen = 0
    body_credit = 0.0
    receiving: RequestResponseCycle | None = None
    refused: overload.RefusedTransport | None = None
    is_starting = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, or refuse it where this process has too many."""
        capacity, moment = overload.capacity(), self.loop.time()
        if capacity.is_full(self.connections, transport.get_extra_info("socket").fileno()):
            silent = capacity.silent(self.connections, moment)
            if silent is None:
                self._refuse(transport, capacity)
                return
            self.connections.discard(silent)
            silent.transport.abort()
        self.headers_since = moment
        self.is_starting = True
        capacity.start(self, moment)
        super().connection_made(transport)

    def _refuse(self, transport: asyncio.Transport, capacity: overload.Capacity) -> None:
        self.refused = capacity.refuse(transport, self.loop)
        if self.refused is None:
            return
        self.ws_protocol_class = None
        super().connection_made(cast("asyncio.Transport", self.refused))
        self.connections.discard(self)  # it takes no place, and closes by itself

    def _unsupported_upgrade_warning(self) -> None:
        if self.refused is None:  # one that is refused gets its 503, and the log says so already
            super()._unsupported_upgrade_warning()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection held."""
        if self.refused is not None:
            self.refused.lost()
        elif self.is_starting:
            overload.capacity().started(self)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Something is asked."""
        self.idle_since = 0.0
        self.headers_since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A request takes its short way back along: its connection, which holds it no longer than itself."""
        self.headers_since = 0.0
        if self.is_starting:
            self.is_starting = False
            overload.capacity().started(self)
        super().on_headers_complete()
        scope = cast("dict[str, Any]", self.scope)
        scope[LINE] = self
        if self.refused is not None:
            self.refused.answering()
            self.cycle.keep_alive = False
            scope[overload.OVERLOADED] = True

    def on_body(self, body: bytes) -> None:
        """Count a piece of a body."""
        self.body_bytes += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        """The next request of those that were sent ahead, or a while of waiting for one."""
        if self.headers_since:  # those of the next request had to wait for this response
            self.headers_since = self.loop.time()
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self.idle_since = self.loop.time()

    @property
    def current(self) -> RequestResponseCycle | None:
        """The request that is being received or answered."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return None if cycle is None or cycle.response_complete else cycle

    def at_once(self, scope: Scope, answer: Answer) -> bool:
        """Send a whole answer; False, and nothing is sent, where it has to go uvicorn's way."""
        cycle, flow = self.cycle, self.flow
        if cycle.scope is not scope:  # others were sent ahead
            return False
        if cycle.response_started or cycle.disconnected:
            return False
        if not cycle.keep_alive or flow.write_paused:
            return False
        lines = [b"%b: %b\r\n" % pair for pair in (*cycle.default_headers, *answer.raw_headers)]
        head = b"".join(lines)
        allowed = len(head) - 2 * len(lines)  # a model's name is its caller's
        if len(head.translate(None, _FORBIDDEN)) != allowed:
            return False
        self.transport.write(b"".join((STATUS_LINE[answer.status_code], head, b"\r\n", answer.body)))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        self.on_response_complete()
        return True


class Sweep:
    """Closes connections that are idle, or whose client is too slow; called once a second.

    A client has `header_seconds` for the headers of a request. A body has to come at `body_bytes_per_second`
    on average; a pause of 30 seconds is allowed, and time in which the server does not read is not counted.
    Either limit is off at 0.
    """

    def __init__(self, idle_seconds: float, header_seconds: float, body_bytes_per_second: int) -> None:
        self._idle_seconds = idle_seconds
        self._header_seconds = header_seconds
        self._body_rate = body_bytes_per_second
        self._quiet_until = -math.inf

    def run(self, connections: Iterable[Any], moment: float) -> None:
        """Look at all connections; `moment` is now, in the event loop's seconds."""
        refused = Counter[str]()
        for line in list(connections):
            if not isinstance(line, Line) or line.transport.is_closing():
                continue
            if 0 < line.idle_since <= moment - self._idle_seconds:
                line.timeout_keep_alive_handler()
            elif self._is_late_with_headers(line, moment):
                refused["slow_headers"] += 1
                _time_out(line)
            elif self._is_late_with_body(line):
                refused["slow_body"] += 1
                _time_out(line)
        if refused:
            self._record(refused, moment)

    def _is_late_with_headers(self, line: Line, moment: float) -> bool:
        if not self._header_seconds or not 0 < line.headers_since <= moment - self._header_seconds:
            return False
        return line.current is None

    def _is_late_with_body(self, line: Line) -> bool:
        cycle = line.current
        if not self._body_rate or cycle is None or not cycle.more_body:
            return False
        allowance = float(self._body_rate * _PAUSE_SECONDS)
        if line.receiving is not cycle:
            line.receiving, line.body_credit = cycle, allowance
        elif not line.flow.read_paused and not cycle.waiting_for_100_continue:
            received = line.body_bytes - line.body_seen
            line.body_credit = min(allowance, line.body_credit + received - self._body_rate)
        line.body_seen = line.body_bytes
        return line.body_credit <= 0

    def _record(self, refused: Counter[str], moment: float) -> None:
        total = overload.capacity().refused
        total.update(refused)
        if moment >= self._quiet_until:
            self._quiet_until = moment + _LOG_SECONDS
            _LOG.warning(
                "Closed connections of slow clients since the start: %d waiting for headers, %d for a body",
                total["slow_headers"],
                total["slow_body"],
            )


def _time_out(line: Line) -> None:
    if line.current is not None and line.current.response_started:
        line.transport.abort()
        return
    line.transport.write(_TIMED_OUT)
    line.transport.close()
