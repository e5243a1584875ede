"""Counts of refused requests and connections by reason, and one log line a minute for each reason.

Refused requests cost a client little, so the server does not log each of them. `ConnectionSweep` calls `log`
once a second.
"""

from __future__ import annotations

import functools
import logging
import math
from collections import Counter

# The label in the metrics, and the noun in the log line.
CONNECTION_REASONS = {
    "too_many": "connections beyond the capacity of this process",
    "silent": "connections without a request, dropped for others",
    "slow_headers": "clients that sent the headers of a request too slowly",
    "slow_body": "clients that sent the body of a request too slowly",
    "slow_reader": "clients that did not read their response",
    "send_memory": "clients with too much unread data beyond the memory limit for it",
    "long_headers": "requests with headers that are too long",
    "invalid_request": "connections with data that is not HTTP",
    "peer_connections": "connections beyond the limit of one address",
    "unfinished_requests": "incomplete requests beyond the limit",
}
REASONS = {
    **CONNECTION_REASONS,
    "unauthenticated_body": "bodies without a valid key beyond their memory limit",
    "body_memory": "bodies beyond their memory limit",
    "websockets": "websockets beyond the limit",
    "event_streams": "event streams beyond the limit",
    "chat_streams": "streamed chats beyond the limit",
    "exports": "exports beyond the limit",
    "rate": "requests beyond the rate limit",
    "sign_in": "attempts to sign in beyond the limit",
    "not_configured": "requests for features that are not configured on this server",
}
# The interval between two log lines of one reason.
_LOG_SECONDS = 60.0
_MAX_CALLERS = 64
_MAX_DETAIL = 200
_LOG = logging.getLogger("sixfold.server")


class Callers:
    """The most frequent callers, found in bounded memory (Misra and Gries).

    Each count is too low by at most a sixty-fourth of the sum.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, caller: str) -> None:
        if caller in self._counts or len(self._counts) < _MAX_CALLERS:
            self._counts[caller] = self._counts.get(caller, 0) + 1
        else:
            self._counts = {name: count - 1 for name, count in self._counts.items() if count > 1}

    def busiest(self) -> tuple[str, int]:
        """Return the most frequent caller and a lower bound of its count, or ("", 0) if none is known."""
        return max(self._counts.items(), key=lambda pair: pair[1], default=("", 0))


class _Pending:
    """The number, callers and last detail of the refusals for one reason since its last log line."""

    def __init__(self) -> None:
        self.count = 0
        self.callers = Callers()
        self.detail = ""


class Refusals:
    """The refusals of one process."""

    def __init__(self) -> None:
        self.totals = Counter[str]()
        self._pending: dict[str, _Pending] = {}
        self._quiet_until: dict[str, float] = {}

    def add(self, reason: str, caller: str = "", detail: str = "") -> None:
        """Count one refusal of `caller`, an address or account id."""
        self.totals[reason] += 1
        pending = self._pending.get(reason)
        if pending is None:
            pending = self._pending[reason] = _Pending()
        pending.count += 1
        pending.detail = detail[:_MAX_DETAIL]
        if caller:
            pending.callers.add(caller)

    def log(self, now: float) -> None:
        """Write the log lines that are due; `now` is the event loop's time in seconds."""
        for reason in tuple(self._pending):
            if now >= self._quiet_until.get(reason, -math.inf):
                self._quiet_until[reason] = now + _LOG_SECONDS
                self._write(reason, self._pending.pop(reason))

    def _write(self, reason: str, pending: _Pending) -> None:
        caller, minimum = pending.callers.busiest()
        extra = {"reason": reason, "count": pending.count, "caller": caller}
        text = f"Refused {pending.count} {REASONS[reason]} since the last log line with this reason"
        if caller:
            text += f", at least {minimum} of {caller}"
        if pending.detail:
            text += f"; the last: {pending.detail}"
        _LOG.warning(text, extra=extra)


@functools.cache
def recorder() -> Refusals:
    return Refusals()
