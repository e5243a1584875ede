"""Written forms in words: money, dates, times, fractions, units, telephone numbers and addresses.

Digits are not converted, because the synthesizers read numbers in each language. `data/spoken_forms.toml`
contains the words.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

_NUMBER = r"\d+(?:[.,]\d+)*"
_ADDRESS = re.compile(r"\b(?:https?://)?(?:www\.)?((?:[\w-]+\.)+[a-z]{2,}(?:/[\w/.-]*\w)?)/?(?!\w)")
_MAIL = re.compile(r"\b[\w.+-]+@(?:[\w-]+\.)+[a-z]{2,}\b")
_TELEPHONE = re.compile(r"\+\d{1,3}(?:[ -]\d{1,12}){1,5}(?!\d)")
# National numbers, only in forms that amounts do not have: groups joined by hyphens after an area code,
# groups after a code in parentheses, or groups of three or more digits after a zero.
_NATIONAL_TELEPHONE = re.compile(
    r"(?<![\w.,/-])(?:(?:1-)?\d{3}-\d{3}-\d{4}|\(\d{2,5}\) ?\d{3,4}[ -]?\d{3,4}"
    r"|0\d{2,4}(?:[ -]\d{3,8}){1,3})(?![\w/]|[.,-]\d)"
)
_ISO_DATE = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_HALF_DAY = r"(?:\s*([ap])(?:\.m\.|m\b))?"
_Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]


class SpokenForms(msgspec.Struct, frozen=True):
    """The words of one language, and the rules derived from them."""

    words: Mapping[str, Any]
    english: bool

    def rules(self) -> list[_Rule]:
        """Return the patterns with their replacements, in the order in which they apply."""
        words = self.words
        signs = "|".join(map(re.escape, sorted(words["money"], key=len, reverse=True)))
        units = "|".join(map(re.escape, sorted(words["units"], key=len, reverse=True)))
        large = rf"(?:\s+({words['large']})\b)?"
        after = rf"(?:\s+{words['after_time']})?" if "after_time" in words else ""
        divider = words["separator"]
        return [
            (_MAIL, lambda match: self._spelled(match[0])),
            (_ADDRESS, self._address),
            (_TELEPHONE, lambda match: f"{words['signs']['+']} {_digits(match[0][1:])}"),
            (_NATIONAL_TELEPHONE, lambda match: _digits(match[0])),
            (_ISO_DATE, lambda match: self._date(match, match[3], match[2], match[1])),
            (re.compile(rf"\b(\d\d?){divider}(\d\d?){divider}(\d{{4}})\b"), self._written_date),
            (re.compile(rf"(?<!\d)(\d\d?)[:h](\d\d){_HALF_DAY}{after}(?![\d:])"), self._time),
            (
                re.compile(rf"({signs})\s?({_NUMBER}){large}"),
                lambda match: self._money(match[1], *match.group(2, 3)),
            ),
            (
                re.compile(rf"({_NUMBER}){large}\s?({signs})"),
                lambda match: self._money(match[3], *match.group(1, 2)),
            ),
            (
                re.compile(rf"(?<![\d/.,])([1-9])/([234568])(?:\s?({units})(?!\w)|(?![\d/]))"),
                self._fraction,
            ),
            (re.compile(rf"({_NUMBER})\s?({units})(?!\w)"), self._unit),
        ]

    def _spelled(self, text: str) -> str:
        parts = re.split(r"([^\w]|_)", text)
        return " ".join(self.words["signs"].get(part, part) for part in parts if part)

    def _address(self, match: re.Match[str]) -> str:
        # A word with a dot is an address only with a usual beginning or ending.
        sure = match[0].startswith(("http", "www.")) or match[1].endswith((".com", ".org", ".net"))
        return self._spelled(match[1]) if sure else match[0]

    def _written_date(self, match: re.Match[str]) -> str:
        month, day = (match[1], match[2]) if self.words["order"] == "mdy" else (match[2], match[1])
        if int(month) > 12 >= int(day):
            month, day = day, month
        return self._date(match, day, month, match[3])

    def _date(self, match: re.Match[str], day: str, month: str, year: str) -> str:
        if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
            return match[0]
        number = int(day)
        days = self.words.get("days", "").split()
        spoken = days[number - 1] if number <= len(days) else str(number)
        return self.words["date"].format(
            day=spoken,
            ordinal=f"{number}{_ending(number)}",
            month=self.words["months"].split()[int(month) - 1],
            year=self._year(int(year)),
        )

    def _year(self, year: int) -> str:
        # In English, years are read in two halves, except for the first decade of a century.
        halves = self.english and year % 100 >= 10 and 1100 <= year < 2100
        return f"{year // 100} {year % 100}" if halves else str(year)

    def _time(self, match: re.Match[str]) -> str:
        hour, minute = int(match[1]), int(match[2])
        if hour > 24 or minute > 59:
            return match[0]
        split, whole, small = self.words["time"]
        half = f" {match[3]} m" if match[3] else ""
        pattern = ("{hour}" if half else whole) if not minute else small if minute < 10 else split
        return pattern.format(hour=hour, minute=minute) + half

    def _money(self, sign: str, amount: str, large: str | None) -> str:
        singular, plural = self.words["money"][sign]
        if large:
            return f"{amount} {large} {plural}"
        whole, cents = amount, ""
        if len(amount) > 2 and amount[-3] in ".,":
            whole, cents = amount[:-3], amount[-2:]
        unit = singular if whole == "1" else plural
        return f"{whole} {unit}" + (f"{self.words['cents']}{int(cents)}" if int(cents or 0) else "")

    def _fraction(self, match: re.Match[str]) -> str:
        above, below = int(match[1]), match[2]
        names = self.words["fractions"].get(below)
        if names is None or above >= int(below):
            return match[0]
        part = f"{self.words['numerators'].split()[above - 1]} {names[above > 1]}"
        return part + (f"{self.words['part_of']}{self.words['units'][match[3]][0]}" if match[3] else "")

    def _unit(self, match: re.Match[str]) -> str:
        return f"{match[1]} {self.words['units'][match[2]][match[1] != '1']}"


def _digits(number: str) -> str:
    """Return a telephone number digit by digit, with a pause after each group."""
    return ", ".join(" ".join(group) for group in re.findall(r"\d+", number))


def _ending(number: int) -> str:
    if 10 < number % 100 < 14:
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


@cache
def _rules() -> Mapping[str, list[_Rule]]:
    text = resources.files("sixfold.data").joinpath("spoken_forms.toml").read_text("utf-8")
    return {name: SpokenForms(row, name == "en").rules() for name, row in tomllib.loads(text).items()}


def spoken(text: str, language: str) -> str:
    """Return the text with its written forms in words; texts of other languages are unchanged."""
    for pattern, replacement in _rules().get(language, []):
        text = pattern.sub(replacement, text)
    return text
