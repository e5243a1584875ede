"""Dates in sentences, converted to short strings that can be compared.

A moment is `2026-05-03`, `2026-05`, `2026`, or `--05` for a month of an unknown year.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import msgspec

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_NUMBER = {name[:length]: number for number, name in enumerate(_MONTHS, 1) for length in (3, 9)} | {"sept": 9}
_MONTH = (
    r"(?P<{0}>(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?(?![a-z])|"
    + "|".join(name.capitalize() for name in _MONTHS)
    + r")"
)
_DAY = r"(?P<{0}>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<{0}>(?:19|20)\d\d)"
_DATE = re.compile(
    r"\b(?:"
    + r"(?P<iso>(?:19|20)\d\d-[01]\d(?:-[0-3]\d)?)"
    + "|"
    + _DAY.format("d1") + r"\s+(?:of\s+)?" + _MONTH.format("m1") + r"(?:,?\s+" + _YEAR.format("y1") + ")?"
    + "|"
    + _MONTH.format("m2") + r"\s+" + _DAY.format("d2") + r"(?!\d)(?:,?\s+" + _YEAR.format("y2") + ")?"
    + "|"
    + _MONTH.format("m3") + r"(?:,?\s+(?:of\s+)?" + _YEAR.format("y3") + ")"
    + "|"
    + r"(?P<lead>[Ii]n|[Ss]ince|[Dd]uring|[Bb]y|[Uu]ntil|[Ll]ast|[Ee]arly|[Ll]ate|[Mm]id)[ -]"
    + r"(?:" + _MONTH.format("m4") + r"(?:,?\s+" + _YEAR.format("y5") + ")?|" + _YEAR.format("y4") + r")"
    + "|"
    + r"(?P<relative>[Yy]esterday|[Tt]oday|[Ll]ast (?:week|month|year)|(?:This|this) (?:week|month|year)|"
    + r"[Oo]n (?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)"
    + r")\b"
)  # fmt: skip
_IN_SLUG = re.compile(r"(?<!\d)((?:19|20)\d\d)-?([01]\d)(?:-?([0-3]\d))?(?!\d)")
_DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class FoundDate(msgspec.Struct, frozen=True):
    """A date in a text: its position and its moment, which is empty if unknown."""

    start: int
    end: int
    moment: str


def find(text: str, base: str = "") -> list[FoundDate]:
    """Return the dates of a text in order; relative dates refer to the moment `base`."""
    return [FoundDate(*match.span(), _moment(match, base)) for match in _DATE.finditer(text)]


def of_slug(slug: str) -> str:
    """Return the moment of a slug such as `meetings/2026-05-03-kick-off`, or an empty string."""
    match = _IN_SLUG.search(slug)
    if match is None:
        return ""
    year, month, day = match.groups()
    return _joined(int(year), int(month), int(day or 0))


def agree(first: str, other: str) -> bool:
    """Return whether two moments can be equal: one is a part of the other, ignoring missing years."""
    if not first or not other:
        return False
    if first.startswith("--") or other.startswith("--"):
        return _month(first) == _month(other) != ""
    return first.startswith(other) or other.startswith(first)


def _month(moment: str) -> str:
    return moment[2:4] if moment.startswith("--") else moment[5:7]


def _joined(year: int, month: int, day: int = 0) -> str:
    """Return the moment of these numbers, of which 0 is unknown, or "" for an invalid day."""
    if month and not 1 <= month <= 12:
        return ""
    if day and not (month and 1 <= day <= _DAYS_OF_MONTH[month - 1]):
        return ""
    if not year:
        return f"--{month:02}"
    return f"{year:04}" + (f"-{month:02}" if month else "") + (f"-{day:02}" if month and day else "")


def _moment(match: re.Match[str], base: str) -> str:
    groups = match.groupdict()
    if groups["iso"]:
        year, month, *day = (int(part) for part in groups["iso"].split("-"))
        return _joined(year, month, *day)
    if groups["relative"]:
        return _relative(groups["relative"].lower(), base)
    for which in "1234":
        month = groups[f"m{which}"]
        year = groups[f"y{which}"] or (groups["y5"] if which == "4" else None)
        if month or year:
            number = _NUMBER[month.rstrip(".").lower()] if month else 0
            return _joined(int(year or _year_of(base)), number, int(groups.get(f"d{which}") or 0))
    return ""


def _year_of(base: str) -> int:
    return int(base[:4]) if base[:4].isdigit() else 0


def _relative(word: str, base: str) -> str:
    if len(base) != 10:
        return ""
    day = datetime.fromisoformat(base).date()
    match word.split():
        case ["yesterday"]:
            return (day - timedelta(days=1)).isoformat()
        case ["today"]:
            return base
        case ["last", "month"]:
            return (day.replace(day=1) - timedelta(days=1)).isoformat()[:7]
        case ["this", "month" | "week"]:
            return base[:7]
        case ["last", "year"]:
            return f"{day.year - 1:04}"
        case ["this", "year"]:
            return base[:4]
        case _:
            return ""
