"""The time of a session that is not charged, because its server was stopped or its database failed."""

from __future__ import annotations

import time

import pytest

from sixfold.core.sessions import served_time
from sixfold.core.sessions.served_time import ServedTime
from sixfold.errors import StoreFailed


class Charges:
    """Records the excluded µs, and charges after a number of failures of the database."""

    def __init__(self, failures: int) -> None:
        self.excluded_us: list[int] = []
        self.charges = 0
        self._failures = failures

    async def exclude(self, us: int) -> None:
        self._fail()
        self.excluded_us.append(us)

    async def charge(self) -> None:
        self._fail()
        self.charges += 1

    def _fail(self) -> None:
        if self._failures:
            self._failures -= 1
            raise StoreFailed


async def test_end_is_charged_without_the_time_of_a_failed_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_time, "LATE_SECONDS", 0.01)
    charges = Charges(failures=3)
    began_at = time.monotonic()
    await ServedTime(charges.exclude).settle_end(charges.charge)
    elapsed_us = (time.monotonic() - began_at) * 1_000_000
    assert charges.charges == 1
    assert 30_000 <= sum(charges.excluded_us) <= elapsed_us


async def test_time_after_a_late_pause_is_excluded_once() -> None:
    charges = Charges(failures=0)
    served = ServedTime(charges.exclude)
    served.exclude(time.monotonic() - 0.5)
    await served.settle()
    assert charges.excluded_us == []
    for _ in range(2):
        served.exclude(time.monotonic() - 30)
    await served.settle()
    (excluded_us,) = charges.excluded_us
    assert 30_000_000 <= excluded_us < 60_000_000
