"""The time in which a session did not run, although it was not paused, and which is not charged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from sixfold.core.clock import SECOND_US
from sixfold.errors import StoreFailed

# The clock of a session catches up with shorter interruptions, and skips longer ones.
MAX_CATCH_UP_SECONDS: Final = 30
# A session that has not run for this long is not charged until it runs again. Shorter times are not excluded.
LATE_SECONDS: Final = 1.0


class ServedTime:
    """Detects interruptions of a running session: its server was stopped, or its worker replaced slowly.

    `exclude` excludes µs from the charges of the session.
    """

    def __init__(self, exclude: Callable[[int], Awaitable[None]]) -> None:
        self._exclude = exclude
        # The monotonic time of the last step, or of the end of a pause.
        self._served_until: float | None = None
        self._skipped_us = 0
        self._excluded_until = 0.0

    def mark(self) -> None:
        """Record that the session runs now."""
        self._served_until = time.monotonic()

    @property
    def stopped_seconds(self) -> float:
        """The seconds since the session last ran, 0 before its first step."""
        return 0.0 if self._served_until is None else max(0.0, time.monotonic() - self._served_until)

    @property
    def is_late(self) -> bool:
        """Whether a charge must wait until the session runs again."""
        return self.stopped_seconds > LATE_SECONDS

    @property
    def is_stopped(self) -> bool:
        """Whether the clock of the session will skip the time since it last ran."""
        return self.stopped_seconds > MAX_CATCH_UP_SECONDS

    def skip(self) -> float:
        """Skip the time since the session last ran if `is_stopped`; return the skipped seconds."""
        if not self.is_stopped:
            return 0.0
        stopped_before = self.stopped_seconds
        self._skipped_us += int(stopped_before * SECOND_US)
        self.mark()
        return stopped_before

    def exclude(self, start: float) -> None:
        """Skip the time from `start`, after which the session should have been paused or ended, until now."""
        moment = time.monotonic()
        seconds = moment - max(start, self._excluded_until)
        if seconds > LATE_SECONDS:
            self._skipped_us += int(seconds * SECOND_US)
            self._excluded_until = moment

    async def settle(self) -> None:
        """Exclude the skipped time from the charges of the session."""
        if self._skipped_us:
            await self._exclude(self._skipped_us)
            self._skipped_us = 0

    async def settle_end(self, charge: Callable[[], Awaitable[object]]) -> None:
        """Settle a session that has ended, and `charge` it, without the time in which the database fails."""
        ended_at = time.monotonic()
        while True:
            try:
                await self.settle()
                await charge()
            except StoreFailed:
                await asyncio.sleep(LATE_SECONDS)
                self.exclude(ended_at)
            else:
                return
