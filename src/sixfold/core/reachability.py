"""Whether a server responds, by the results of its probes, and since when it does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Literal

import msgspec

from sixfold import errors

# The remedy for a server that does not respond.
TRY_LATER = "try again later, or, as the operator, run `sixfold doctor`"
# A server that was ready and then times out counts as busy for this time, for example while it loads a model.
BUSY_SECONDS = 120.0
# A caller may repeat a request after this time, in which the server is probed again.
_RETRY_SECONDS = 15
ServerState = Literal["ready", "slow", "absent"]


class Outage(msgspec.Struct, frozen=True):
    """A server that does not respond: since when (epoch seconds), and the reason, such as "disconnected"."""

    since: float
    reason: str

    @property
    def moment(self) -> str:
        """The beginning of the outage as text."""
        return f"{datetime.fromtimestamp(self.since, UTC):%Y-%m-%d %H:%M} UTC"

    @property
    def clause(self) -> str:
        """The end of a sentence about the server, such as "has not responded since …"."""
        return f"has not responded since {self.moment}"

    @property
    def text(self) -> str:
        """The clause with the reason, for the operator."""
        return f"{self.clause}: {self.reason}"


def unavailable(subject: str, outages: Iterable[str]) -> errors.EngineUnavailable:
    """Return the error for a model whose servers do not respond; `outages` are clauses about the servers."""
    reasons = " and ".join(dict.fromkeys(outages))
    error = errors.EngineUnavailable(f"No engine can serve {subject} now: {reasons}; {TRY_LATER}.")
    error.permanent, error.retry_after = False, _RETRY_SECONDS
    return error


class Reachability:
    """The state of one server. A single failed probe of a server that was ready is not an outage.

    An outage begins with the first probe if the server has never responded, otherwise with the failed probe
    number `failures`. A timeout is an outage only after `BUSY_SECONDS` without a response.
    """

    def __init__(
        self,
        failures: int = 2,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._allowed_failures = failures
        self._clock, self._wall_clock = clock, wall_clock
        self._failures = 0
        self._failed_at = 0.0
        self._responded_at: float | None = None
        self._is_slow = False
        self.outage: Outage | None = None

    @property
    def was_ready(self) -> bool:
        """Whether the server has responded since this process started."""
        return self._responded_at is not None

    @property
    def state(self) -> ServerState:
        """The state as of the last probe; "ready" before the first one."""
        if self.outage is None:
            return "ready"
        return "slow" if self._is_slow else "absent"

    def record_response(self) -> None:
        """Record a successful probe, which ends an outage."""
        self._responded_at = self._clock()
        self._failures, self._is_slow, self.outage = 0, False, None

    def record_failure(self, reason: str, *, is_slow: bool = False, is_busy: bool = False) -> None:
        """Record a failed probe.

        `is_slow` is True for a timeout, and `is_busy` if a call to the server is in progress.
        """
        self._failures += 1
        self._is_slow = is_slow
        if self._failures == 1:
            self._failed_at = self._wall_clock()
        if self.outage is None and self._responded_at is not None:
            was_recent = self._clock() - self._responded_at < BUSY_SECONDS
            is_tolerated = is_busy or was_recent if is_slow else self._failures < self._allowed_failures
            if is_tolerated:
                return
        self.outage = Outage(self._failed_at, reason)
