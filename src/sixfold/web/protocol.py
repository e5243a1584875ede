"""uvicorn's HTTP, with a short way out for an answer that is whole, and one clock for all who wait.

uvicorn looks at every header of an answer by itself and winds a clock after each. So a whole answer on a
connection that stays is written as one piece, and one look a second finds who has been idle for too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from sixfold.web import overload
from sixfold.web.plain import LINE, Answer

_FORBIDDEN = bytes({*range(0x20), 0x7F} - {0x09})  # in a header


class Line(HttpToolsProtocol):
    """One connection; `idle_since` in the event loop's seconds, 0 while something is asked."""

    idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, or refuse it where this process has too many."""
        capacity = overload.capacity()
        if capacity.is_full(self.connections, transport.get_extra_info("socket").fileno()):
            capacity.refuse(transport, self.loop)
            return
        super().connection_made(transport)

    def on_message_begin(self) -> None:
        """Something is asked."""
        self.idle_since = 0.0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A request takes its short way back along: its connection, which holds it no longer than itself."""
        super().on_headers_complete()
        cast("dict[str, Any]", self.scope)[LINE] = self

    def on_response_complete(self) -> None:
        """The next request of those that were sent ahead, or a while of waiting for one."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self.idle_since = self.loop.time()

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


def hang_up(connections: Iterable[Any], seconds: float, moment: float) -> None:
    """Close those on which nothing was asked for so long."""
    for line in list(connections):
        if isinstance(line, Line) and 0 < line.idle_since <= moment - seconds:
            line.timeout_keep_alive_handler()
