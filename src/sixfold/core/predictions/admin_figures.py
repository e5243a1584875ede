"""Figures of the last 24 hours for the operator, by half hour: queue, run times, failures and money."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec

from sixfold.core import ids
from sixfold.core.clock import DAY_US, SECOND_US
from sixfold.core.database import Database, Row, Rows, Transaction, many, now

STEP_US = 30 * 60 * SECOND_US
SLOTS = DAY_US // STEP_US
# The operator's page requests the figures every few seconds.
_CACHE_SECONDS = 60.0


class FigureSlot(msgspec.Struct):
    """Half an hour, by the time of acceptance.

    Amounts are in micro-dollars, and run times in µs, or None without a run.

    `queue` is the mean number of waiting predictions: the time that they waited, by the length of the slot;
    `busy` is the mean number of workers that run one.
    `spent` is the amount that providers charge for predictions and calls, if they state it.
    """

    start: int
    runs: int = 0
    calls: int = 0
    failed: int = 0
    queue: float = 0.0
    busy: float = 0.0
    median_us: int | None = None
    high_us: int | None = None
    earned: int = 0
    spent: int = 0
    earned_by_calls: int = 0


def day() -> Transaction[tuple[FigureSlot, ...]]:
    """Return the slots of the last 24 hours, oldest first."""
    start = (yield from now()) - DAY_US
    slots = tuple(FigureSlot(start + index * STEP_US) for index in range(SLOTS))
    runs, calls = ids.earliest("pred", start), ids.earliest("req", start)
    rows = yield from many("admin_slots", since=runs, start=start, step=STEP_US)
    for slot, row in _by_slot(slots, rows):
        slot.runs += row["total"]
        slot.failed += row["failed"]
        slot.earned += row["earned"]
        slot.spent += row["spent"]
        slot.queue += max(0, row["waited"]) / STEP_US
        slot.busy += max(0, row["worked"]) / STEP_US
    rows = yield from many("admin_slot_durations", since=runs, start=start, step=STEP_US)
    for slot, row in _by_slot(slots, rows):
        slot.median_us, slot.high_us = row["median"], row["high"]
    rows = yield from many("admin_slot_calls", since=calls, start=start, step=STEP_US)
    for slot, row in _by_slot(slots, rows):
        slot.calls += row["total"]
        slot.failed += row["failed"]
        slot.earned_by_calls += row["earned"] or 0
        slot.spent += row["spent"]
    return slots


def _by_slot(slots: Sequence[FigureSlot], rows: Rows) -> Iterator[tuple[FigureSlot, Row]]:
    # A row of this very moment belongs to the last slot.
    return ((slots[min(int(row["slot"]), SLOTS - 1)], row) for row in rows)


class DayFigures:
    """The figures of a server, which are computed at most once a minute."""

    def __init__(self, database: Database, seconds: float = _CACHE_SECONDS) -> None:
        self._database = database
        self._seconds = seconds
        self._expires_at = 0.0
        self._slots: tuple[FigureSlot, ...] = ()

    async def day(self) -> tuple[FigureSlot, ...]:
        """Return the slots of the last 24 hours, oldest first."""
        if time.monotonic() >= self._expires_at:
            self._slots = await self._database.read(day(), in_thread=True)
            self._expires_at = time.monotonic() + self._seconds
        return self._slots
