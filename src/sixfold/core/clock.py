"""Clocks and time formats.

A clock returns epoch microseconds and is passed as an argument, so tests can replace it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import overload

Clock = Callable[[], int]

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US


def steady_clock(anchor: int | None = None) -> Clock:
    """Return a clock that reads the wall clock once and then follows the monotonic clock.

    Therefore a change of the machine's clock does not affect leases and expiry times. Processes of one
    machine with the same `anchor` (see `clock_anchor`) have the same time.
    """
    start = clock_anchor() if anchor is None else anchor
    return lambda: (start + time.monotonic_ns()) // 1000


def clock_anchor() -> int:
    """Return the difference between the wall clock and the monotonic clock, in nanoseconds."""
    return time.time_ns() - time.monotonic_ns()


@overload
def rfc3339(epoch_us: int) -> str: ...


@overload
def rfc3339(epoch_us: None) -> None: ...


def rfc3339(epoch_us: int | None) -> str | None:
    """Format epoch µs as `2026-11-20T21:04:05.123Z`; return None for None."""
    if epoch_us is None:
        return None
    moment = datetime.fromtimestamp(epoch_us / SECOND_US, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
