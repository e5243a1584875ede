"""uvicorn's HTTP, with a short way out for an answer that is whole, and one clock for all who wait.

uvicorn looks at every header of an answer by itself and winds a clock after each. So a whole answer on a
connection that stays is written as one piece, and one look a second finds who has been idle for too long.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from sixfold.web.plain import AT_ONCE, Answer

_FORBIDDEN = bytes({*range(0x20), 0x7F} - {0x09})  # in a header


class Line(HttpToolsProtocol):
    """One connection; `idle_since` in the event loop's seconds, 0 while something is asked."""

    idle_since = 0.0

    def on_message_begin(self) -> None:
        """Something is asked."""
        self.idle_since = 0.0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A request takes its short way back along."""
        super().on_headers_complete()
        scope = cast("dict[str, Any]", self.scope)
        scope[AT_ONCE] = partial(_at_once, self.cycle)

    def on_response_complete(self) -> None:
        """The next request of those that were sent ahead, or a while of waiting for one."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self.idle_since = self.loop.time()


def hang_up(connections: Iterable[Any], seconds: float, moment: float) -> None:
    """Close those on which nothing was asked for so long."""
    for line in list(connections):
        if isinstance(line, Line) and 0 < line.idle_since <= moment - seconds:
            line.timeout_keep_alive_handler()


def _at_once(cycle: RequestResponseCycle, answer: Answer) -> bool:
    """Send a whole answer; False, and nothing is sent, where it has to go uvicorn's way."""
    if cycle.response_started or cycle.disconnected or not cycle.keep_alive or cycle.flow.write_paused:
        return False
    lines = [b"%b: %b\r\n" % pair for pair in (*cycle.default_headers, *answer.raw_headers)]
    head = b"".join(lines)
    if len(head.translate(None, _FORBIDDEN)) != len(head) - 2 * len(lines):  # a model's name is its caller's
        return False
    cycle.transport.write(b"".join((STATUS_LINE[answer.status_code], head, b"\r\n", answer.body)))
    cycle.response_started = cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()
    return True
