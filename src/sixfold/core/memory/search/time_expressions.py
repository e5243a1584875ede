"""Time expressions in queries: "last week", "two months ago", "in March", as a span in UTC.

The first time expression of a query is used. Weeks begin on Monday; a month or weekday without a year or date
is the last one that has begun.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta

import msgspec

from sixfold.core.clock import SECOND_US

_MONTHS: tuple[str, ...] = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_DAYS: tuple[str, ...] = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_COUNTS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "a couple of": 2, "three": 3, "a few": 3, "four": 4, "five": 5,
    "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
}  # fmt: skip
_ONE_DAY = timedelta(days=1)
_LEAST = date(1900, 1, 1)

# The first and the last day.
Days = tuple[date, date]


class TimeSpan(msgspec.Struct, frozen=True):
    """A span from `since` to `until`, both inclusive, in epoch µs; `phrase` is its text in the query.

    `spelled` is True if pages may contain the same word, such as "March".
    """

    since: int
    until: int
    phrase: str
    spelled: bool


def mentioned(text: str) -> bool:
    """Return whether a query contains a time expression."""
    return _EXPRESSION.search(text) is not None


def parse(text: str, now: int) -> TimeSpan | None:
    """Return the time span that a query names, relative to `now` (epoch µs), or None."""
    match = _EXPRESSION.search(text)
    if match is None:
        return None
    today = datetime.fromtimestamp(now / SECOND_US, UTC).date()
    groups = {name: value.lower() for name, value in match.groupdict().items() if value}
    first, last = next(read(groups, today) for name, read in _READERS.items() if name in groups)
    if "since" in groups:
        last = today
    return TimeSpan(*micros(first, last), match[0], not groups.keys().isdisjoint(_SPELLED))


def named(moment: str) -> tuple[int, int] | None:
    """Return the first and last µs of a moment such as 2026-05-03, 2026-05 or 2026, or None."""
    if not moment[:1].isdigit():
        return None
    year, month, day = (int(part) for part in f"{moment}-0-0".split("-")[:3])
    try:
        first = date(year, month or 1, day or 1)
    except ValueError:
        return None
    return micros(first, first if day else _month(first)[1] if month else date(year, 12, 31))


def micros(first: date, last: date) -> tuple[int, int]:
    """Return the first µs of one day and the last of another."""
    begins, ends = (datetime.combine(day, time(), UTC) for day in (first, last))
    return round(begins.timestamp()) * SECOND_US, (round(ends.timestamp()) + 86_400) * SECOND_US - 1


def _week(day: date) -> Days:
    monday = day - day.weekday() * _ONE_DAY
    return monday, monday + 6 * _ONE_DAY


def _month(day: date) -> Days:
    return day.replace(day=1), day.replace(day=monthrange(day.year, day.month)[1])


def _year(day: date) -> Days:
    return date(day.year, 1, 1), date(day.year, 12, 31)


def _earlier(day: date, unit: str, count: int) -> date:
    """Return the day a number of units earlier, or the last day of a shorter month."""
    if unit in ("day", "week"):
        return max(_LEAST, day - count * (7 if unit == "week" else 1) * _ONE_DAY)
    months = day.year * 12 + day.month - 1 - count * (12 if unit == "year" else 1)
    year, month = max(_LEAST.year, months // 12), months % 12 + 1
    return date(year, month, min(day.day, monthrange(year, month)[1]))


_UNITS: Mapping[str, Callable[[date], Days]] = {
    "day": lambda day: (day, day),
    "week": _week,
    "month": _month,
    "year": _year,
}


Groups = Mapping[str, str]


def _count(text: str) -> int:
    return _COUNTS.get(text) or int(text)


def _near(groups: Groups, today: date) -> Days:
    day = today - {"today": 0, "yesterday": 1}.get(groups["near"], 2) * _ONE_DAY
    return day, day


def _this(groups: Groups, today: date) -> Days:
    return _UNITS[groups["unit"]](_earlier(today, groups["unit"], 0 if groups["this"] == "this" else 1))


def _ago(groups: Groups, today: date) -> Days:
    return _UNITS[groups["ago_unit"]](_earlier(today, groups["ago_unit"], _count(groups["ago"])))


def _past(groups: Groups, today: date) -> Days:
    return _earlier(today, groups["past_unit"], _count(groups["past_count"])), today


def _just_past(groups: Groups, today: date) -> Days:
    return _earlier(today, groups["past"], 1), today


def _weekday(groups: Groups, today: date) -> Days:
    back = (today.weekday() - _DAYS.index(groups["weekday"]) - 1) % 7 + 1
    return _near({"near": "today"}, today - back * _ONE_DAY)


def _in_month(groups: Groups, today: date) -> Days:
    number = _MONTHS.index(groups["month"]) + 1
    year = int(groups["year"]) if "year" in groups else today.year - (number > today.month)
    return _month(date(year, number, 1))


def _in_year(groups: Groups, _today: date) -> Days:
    return _year(date(int(groups["only_year"]), 1, 1))


_READERS: Mapping[str, Callable[[Groups, date], Days]] = {
    "near": _near,
    "unit": _this,
    "ago": _ago,
    "past_unit": _past,
    "past": _just_past,
    "weekday": _weekday,
    "month": _in_month,
    "only_year": _in_year,
}
_SPELLED = ("weekday", "month", "only_year")
_UNIT = "day|week|month|year"
_COUNT = "|".join(sorted(_COUNTS, key=len, reverse=True)) + r"|\d{1,3}"
_MONTH, _WEEKDAY = "|".join(_MONTHS), "|".join(_DAYS)
_YEAR = r"(?:19|20)\d\d(?![-\d])"
_EXPRESSION = re.compile(
    r"\b(?:(?P<since>since)\s+|(?P<lead>in|on|during|over|last)\s+|)(?:the\s+)?(?:"
    r"(?P<near>today|day\s+before\s+yesterday|yesterday)"
    rf"|(?P<ago>{_COUNT})\s+(?P<ago_unit>{_UNIT})s?\s+ago"
    rf"|(?:past|last)\s+(?P<past_count>{_COUNT})\s+(?P<past_unit>{_UNIT})s?"
    rf"|(?:past|(?<=the )last)\s+(?P<past>{_UNIT})"
    rf"|(?P<this>this|last|previous)\s+(?P<unit>week|month|year)"
    rf"|(?(since)|(?(lead)|(?!)))(?:(?P<weekday>{_WEEKDAY})|(?P<month>{_MONTH})(?:,?\s+(?P<year>{_YEAR}))?)"
    rf"|(?(since)|(?(lead)|(?!)))(?P<only_year>{_YEAR})"
    r")\b",
    re.IGNORECASE,
)
