"""The axes of a chart: round numbers, and the starts of hours, days, months and years."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, TypeGuard, cast

import msgspec

_MAX_TICKS = 6
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the times of an axis are in the time zone of their first time
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
# The distances between ticks in seconds. Weeks begin on Monday, four days after the weekday of the epoch.
_SECONDS = (
    *(number * _MINUTE for number in (1, 5, 15, 30)),
    *(number * _HOUR for number in (1, 3, 6, 12)),
    *(number * _DAY for number in (1, 2, 7)),
)
_WEEK_OFFSET = 4 * _DAY
_MONTHS = (1, 3, 6, *(12 * years for years in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)))
# Larger numbers, and steps that are smaller, are written with an exponent.
_LARGEST, _SMALLEST = 1e9, 1e-6


class Tick(msgspec.Struct, frozen=True):
    """A mark of an axis: its place in the units of the axis, and its text."""

    place: float
    text: str


class Axis(msgspec.Struct, frozen=True):
    """A range of numbers with ticks."""

    low: float
    high: float
    ticks: tuple[Tick, ...]

    def percent(self, place: float) -> float:
        """Return where a place is, in percent of the axis."""
        return 100 * (place - self.low) / ((self.high - self.low) or 1.0)


class Timeline(msgspec.Struct, frozen=True):
    """The places of a series on the axis of time, and the function that finds those of further steps.

    `step` returns the place of the step that is `n` after the last value, or before it if `n` is negative.
    """

    places: Sequence[float]
    interval: float
    step: Callable[[int], float]
    label: Callable[[float], str]
    is_dated: bool


def number_text(value: float, decimals: int, largest: float) -> str:
    """Return a number with a fixed number of decimals, or with an exponent if the axis has large numbers."""
    if largest >= _LARGEST or decimals > -math.log10(_SMALLEST):
        return f"{value:.4g}"
    return f"{value + 0.0:,.{decimals}f}".replace("-", "−")


def value_axis(lowest: float, highest: float) -> Axis:
    """Return an axis from a round number to a round number."""
    if highest <= lowest:
        reach = abs(lowest) / 10 or 1.0
        lowest, highest = lowest - reach, highest + reach
    step = _round_step(highest - lowest)
    # Rounded, because 0.14 / 0.005 is slightly more than 28.
    first, last = math.floor(round(lowest / step, 6)), math.ceil(round(highest / step, 6))
    decimals = max(0, -math.floor(math.log10(step)))
    largest = max(abs(first), abs(last)) * step
    ticks = (Tick(at * step, number_text(at * step, decimals, largest)) for at in range(first, last + 1))
    return Axis(first * step, last * step, tuple(ticks))


def _round_step(span: float, least: float = 0.0) -> float:
    """Return 1, 2 or 5 times a power of ten, so that a span has at most `_MAX_TICKS` steps."""
    power = 10.0 ** math.floor(math.log10(span / _MAX_TICKS))
    steps = (factor * power for factor in (1, 2, 5, 10))
    return max(least, next((step for step in steps if step * _MAX_TICKS >= span), 10 * power))


def read_timeline(times: Sequence[object], first_number: int) -> Timeline:
    """Return the timeline of ascending times; values without valid times are numbered."""
    if dates := read_dates(times):
        try:
            return _dated(dates)
        except (OverflowError, ValueError):
            pass
    numbers = [float(time) for time in times if is_number(time)]
    if len(numbers) < max(2, len(times)):
        numbers = [float(first_number + at) for at in range(len(times))]
    last = numbers[-1] if numbers else 0.0
    interval = _interval(numbers) or 1.0
    return Timeline(numbers, interval, lambda n: last + n * interval, lambda place: f"{place:g}", False)


def time_axis(timeline: Timeline, low: float, high: float) -> Axis:
    """Return the axis of time between two places."""
    if timeline.is_dated:
        return Axis(low, high, _date_ticks(low, high))
    step = _round_step(max(high - low, 1.0), least=1.0 if timeline.interval >= 1 else 0.0)
    decimals = max(0, -math.floor(math.log10(step)))
    first, last = math.ceil(low / step), math.floor(high / step)
    largest = max(abs(low), abs(high))
    return Axis(
        low,
        high,
        tuple(Tick(at * step, number_text(at * step, decimals, largest)) for at in range(first, last + 1)),
    )


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_dates(times: Sequence[object]) -> list[datetime]:
    """Return the dates in the time zone of the first one; an empty list if one of them is not a date."""
    dates: list[datetime] = []
    for time in times:
        date = _date(time) if isinstance(time, str) else None
        if date is None:
            return []
        dates.append(date)
    try:
        return [date.astimezone(dates[0].tzinfo).replace(tzinfo=None) for date in dates]
    except OverflowError:  # a date outside of the years 1 to 9999 in this time zone
        return []


def time_of(point: object) -> object:
    return cast("Mapping[str, Any]", point).get("t") if isinstance(point, Mapping) else None


def _date(text: str) -> datetime | None:
    for form in (text, f"{text}-01", f"{text}-01-01"):
        try:
            date = datetime.fromisoformat(form)
        except ValueError:
            continue
        return date.replace(tzinfo=date.tzinfo or UTC)
    return None


def _interval(places: Sequence[float]) -> float:
    return statistics.median(after - before for before, after in pairwise(places)) if len(places) > 1 else 0.0


def _dated(dates: Sequence[datetime]) -> Timeline:
    places = [_seconds(date) for date in dates]
    interval = _interval(places) or float(_DAY)
    last = dates[-1]
    is_monthly = len({(date.day, date.hour, date.minute) for date in dates}) == 1 and interval > 27 * _DAY
    months = round(interval / (_DAY * 365.25 / 12)) if is_monthly else 0

    def step(n: int) -> float:
        if not months:
            return _seconds(_moment(places[-1] + n * interval))
        year, month = divmod(last.year * 12 + last.month - 1 + n * months, 12)
        return _seconds(last.replace(year=year, month=month + 1, day=min(last.day, 28))) + _DAY * max(
            0, last.day - 28
        )

    has_time = any((date.hour, date.minute, date.second) != (0, 0, 0) for date in dates)
    is_first = is_monthly and last.day == 1 and not has_time
    form = "%-d %b %Y, %H:%M" if has_time else ("%b %Y" if months < 12 else "%Y") if is_first else "%-d %b %Y"
    return Timeline(places, interval, step, lambda place: f"{_moment(place):{form}}", True)


def _seconds(date: datetime) -> float:
    return (date - _EPOCH).total_seconds()


def _moment(place: float) -> datetime:
    return _EPOCH + timedelta(seconds=place)


def _date_ticks(low: float, high: float) -> tuple[Tick, ...]:
    """Return the ticks of the shortest distance with at most `_MAX_TICKS` of them."""
    for seconds in _SECONDS:
        if (high - low) / seconds <= _MAX_TICKS:
            offset = _WEEK_OFFSET if seconds == 7 * _DAY else 0
            first = math.ceil((low - offset) / seconds)
            places = (at * seconds + offset for at in range(first, first + _MAX_TICKS + 1))
            return tuple(
                Tick(place, _time_text(_moment(place), seconds)) for place in places if place <= high
            )
    for months in _MONTHS:
        ticks = [
            Tick(_seconds(date), f"{date:%b %Y}" if months < 12 else str(date.year))
            for date in _month_starts(low, high, months)
        ]
        if len(ticks) <= _MAX_TICKS:
            return tuple(ticks)
    return ()


def _time_text(moment: datetime, seconds: int) -> str:
    is_day = seconds >= _DAY or (moment.hour, moment.minute) == (0, 0)
    return f"{moment:%-d %b}" if is_day else f"{moment:%H:%M}"


def _month_starts(low: float, high: float, months: int) -> Iterator[datetime]:
    """Yield the starts of every `months` months between two places, at most one more than are drawn."""
    start = _moment(low)
    first = -(-(start.year * 12 + start.month - 1) // months)
    found = 0
    for at in range(first, first + _MAX_TICKS + 3):
        year, month = divmod(at * months, 12)
        if not 1 <= year <= 9999:
            continue
        date = datetime(year, month + 1, 1)  # noqa: DTZ001 - in the time zone of the axis
        if low <= _seconds(date) <= high and found <= _MAX_TICKS:
            found += 1
            yield date
