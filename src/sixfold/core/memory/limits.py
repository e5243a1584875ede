"""Limits on the texts of pages, and validation of all external strings."""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Sequence

import msgspec

from sixfold import errors
from sixfold.core.input_limits.normalization import MAX_DECOMPOSED, normalized

TITLE_CHARS = 500
TYPE_CHARS = 64
TAG_CHARS = 100
TAGS = 100
SUMMARY_CHARS = 2_000
DETAIL_CHARS = 20_000
CONTEXT_CHARS = 2_000
# Maximum characters of a slug before it is normalized.
LONG_SLUG = 800
PAGE_SIZE = 50
MAX_PAGE_SIZE = 500
DEPTH = 5
NODES = 500
DIFF_CHARS = 1_000_000
# Maximum number of backlinks and timeline entries in a response with a page.
RELATED = 100
_TYPE = re.compile(r"[^\W\d][\w -]*")
_DATE = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
# The plus of an offset is a space in a query string that is not percent-encoded.
_LOST_PLUS = re.compile(r"(:\d\d(?:\.\d+)?) (\d\d:\d\d)$", re.ASCII)
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}(?::\d{2})?)(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
_TO_THE_MILLISECOND = re.compile(r"\.\d{3}(?!\d)", re.ASCII)


class MemoryLimits(msgspec.Struct, frozen=True):
    """Limits that the operator sets; sizes are bytes of UTF-8."""

    page_bytes: int = 2**20
    import_files: int = 200_000
    import_bytes: int = 2**31
    account_pages: int = 250_000
    account_bytes: int = 10 * 2**30
    plans_enforced: bool = False


def text(name: str, value: str) -> str:
    """Return a string without NUL and unpaired surrogates, which stores may reject; raises `InvalidInput`."""
    if "\0" in value:
        raise errors.InvalidInput.of(name, f"{name} must not contain the character U+0000")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        raise errors.InvalidInput.of(
            name, f"{name} must not contain the unpaired surrogate U+{code:04X}"
        ) from error
    return value


def line(name: str, value: str, max_chars: int) -> str:
    """Return a stripped string in NFC with 1 to `max_chars` characters on one line; raises `InvalidInput`."""
    cleaned = text(name, value).strip()
    if len(cleaned) <= max_chars * MAX_DECOMPOSED:
        cleaned = normalized("NFC", cleaned).strip()
    if not cleaned:
        raise errors.InvalidInput.of(name, f"{name} must not be empty")
    if len(cleaned) > max_chars:
        raise errors.InvalidInput.of(
            name, f"{name} must have at most {max_chars} characters (got {len(cleaned)})"
        )
    for char in cleaned:
        if unicodedata.category(char) == "Cc":
            raise errors.InvalidInput.of(
                name, f"{name} must not contain the control character U+{ord(char):04X}"
            )
    return cleaned


def loose_line(value: str, max_chars: int) -> str:
    """Return the valid line that is nearest to a string from a file, or an empty string."""
    if value.isascii() and value.isprintable():
        return value.strip()[:max_chars].strip()
    begin = value[: max_chars * MAX_DECOMPOSED]
    valid = "".join(" " if unicodedata.category(char) in {"Cc", "Cs"} else char for char in begin)
    return normalized("NFC", valid).strip()[:max_chars].strip()


def long_text(name: str, value: str, max_chars: int) -> str:
    """Return a multi-line string with at most `max_chars` characters; raises `InvalidInput`."""
    if len(value) > max_chars:
        raise errors.InvalidInput.of(
            name, f"{name} must have at most {max_chars} characters (got {len(value)})"
        )
    return text(name, value)


def names(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return the unique tags or collections in order, without a leading `#`; raises `InvalidInput`."""
    unique_names = dict.fromkeys(value.strip().lstrip("# ") for value in values)
    if len(unique_names) > TAGS:
        raise errors.InvalidInput.of(
            name, f"{name} must have at most {TAGS} entries (got {len(unique_names)})"
        )
    return tuple(dict.fromkeys(line(name, value, TAG_CHARS) for value in unique_names))


def loose_names(values: Sequence[str]) -> tuple[str, ...]:
    """Return the valid tags or collections from a file; invalid ones are skipped."""
    cleaned = (loose_line(value.strip().lstrip("# "), TAG_CHARS) for value in values)
    return tuple(dict.fromkeys(value for value in cleaned if value))[:TAGS]


def link_type(value: str) -> str:
    """Return a link type: one word in lower case with `_` for spaces; raises `InvalidInput`."""
    cleaned = line("type", value, TYPE_CHARS)
    if not _TYPE.fullmatch(cleaned):
        raise errors.InvalidInput.of(
            "type", "type must be a word of letters, digits, _ and -, as in works_at"
        )
    return cleaned.lower().replace(" ", "_")


def loose_link_type(value: str) -> str:
    """Return the link type from a file, or an empty string if it is invalid."""
    cleaned = loose_line(value, TYPE_CHARS)
    return cleaned.lower().replace(" ", "_") if _TYPE.fullmatch(cleaned) else ""


def body(value: str, max_bytes: int) -> str:
    """Return the text of a page; raises `InvalidInput` and `TooLarge`."""
    check_size(len(text("body", value).encode()), max_bytes)
    return value


def check_size(size: int, max_bytes: int) -> None:
    """Raise `TooLarge` if the text of a page has too many bytes."""
    if size > max_bytes:
        raise errors.TooLarge(f"The page must be at most {max_bytes:,} bytes (got {size:,})")


def date(value: str) -> str:
    """Return a year, month, day or time of the calendar; raises `InvalidInput`."""
    value = value.strip()
    match = _DATE.fullmatch(value)
    try:
        if match is not None:
            datetime.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
            return value
        if _MOMENT.fullmatch(value):
            datetime.datetime.fromisoformat(value.upper())
            return value
    except ValueError:
        pass
    raise errors.InvalidInput.of(
        "date", "date must be a date, as in 2026-11-20, 2026-11 or 2026-11-20T21:04:05Z"
    )


def earliest(name: str, value: str) -> int:
    """Return an RFC 3339 time, or the start of a plain date, in epoch µs; raises `InvalidInput`."""
    return _moment(name, f"{value}T00:00:00Z" if _DAY.fullmatch(value) else value)


def latest(name: str, value: str) -> int:
    """Return an RFC 3339 time, or the end of a plain date, in epoch µs; raises `InvalidInput`.

    Responses contain milliseconds, so a time without microseconds means the end of its millisecond.
    """
    if _DAY.fullmatch(value):
        return _moment(name, f"{value}T23:59:59.999999Z")
    at = _moment(name, value)
    return at + 999 if _TO_THE_MILLISECOND.search(value) else at


def _moment(name: str, value: str) -> int:
    timestamp = _LOST_PLUS.sub(r"\1+\2", value)
    if _MOMENT.fullmatch(timestamp):
        try:
            return (datetime.datetime.fromisoformat(timestamp.upper()) - _EPOCH) // _MICROSECOND
        except (ValueError, OverflowError):
            pass
    raise errors.InvalidInput.of(
        name, f"{name} must be an RFC 3339 time or a date, as in 2026-11-20T21:04:05Z or 2026-11-20"
    )
