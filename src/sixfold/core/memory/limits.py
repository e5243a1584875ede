"""What a page may be: every text that comes in is checked here, and refused in one sentence."""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from sixfold import errors
from sixfold.core.normalization import MAX_DECOMPOSED, normalized

TITLE_CHARS = 500
TYPE_CHARS = 64
TAG_CHARS = 100
TAGS = 100
SUMMARY_CHARS = 2_000
DETAIL_CHARS = 20_000
CONTEXT_CHARS = 2_000
LONG_SLUG = 800  # of a slug as it is sent, before it is made one
PAGE_SIZE = 50
MAX_PAGE_SIZE = 500
DEPTH = 5
NODES = 500
DIFF_CHARS = 1_000_000
SHOWN = 100  # of a page's backlinks and timeline, with the page itself
_TYPE = re.compile(r"[^\W\d][\w -]*")
_DATE = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}(?::\d{2})?)(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
_TO_THE_MILLISECOND = re.compile(r"\.\d{3}(?!\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """What the operator sets; sizes in bytes of UTF-8."""

    page_bytes: int = 2**20
    import_files: int = 200_000
    import_bytes: int = 2**31
    account_pages: int = 250_000
    account_bytes: int = 10 * 2**30
    plans_enforced: bool = False


def text(name: str, value: str) -> str:
    """A text that every store can keep: no NUL, no half of a surrogate pair."""
    if "\0" in value:
        raise errors.BadRequest(f"{name} has the character U+0000, which no text may have")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        raise errors.BadRequest(
            f"{name} has the lone surrogate U+{code:04X}, which is no character"
        ) from error
    return value


def line(name: str, value: str, most: int) -> str:
    """A text of one line in NFC without space around it, 1 to `most` characters."""
    found = text(name, value).strip()
    if len(found) <= most * MAX_DECOMPOSED:
        found = normalized("NFC", found).strip()
    if not found:
        raise errors.BadRequest(f"{name} is empty")
    if len(found) > most:
        raise errors.BadRequest(f"{name} has {len(found)} characters; {most} are the most")
    for char in found:
        if unicodedata.category(char) == "Cc":
            raise errors.BadRequest(f"{name} has the control character U+{ord(char):04X}")
    return found


def loose_line(value: str, most: int) -> str:
    """What of a text in a file can be such a line; "" when nothing can."""
    if value.isascii() and value.isprintable():
        return value.strip()[:most].strip()
    begin = value[: most * MAX_DECOMPOSED]
    kept = "".join(" " if unicodedata.category(char) in {"Cc", "Cs"} else char for char in begin)
    return normalized("NFC", kept).strip()[:most].strip()


def long_text(name: str, value: str, most: int) -> str:
    """A text of several lines, up to `most` characters, possibly none."""
    if len(value) > most:
        raise errors.BadRequest(f"{name} has {len(value)} characters; {most} are the most")
    return text(name, value)


def names(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """Tags or collections: each once, in their order, without a leading `#`."""
    sent = dict.fromkeys(value.strip().lstrip("# ") for value in values)
    if len(sent) > TAGS:
        raise errors.BadRequest(f"{name} has {len(sent)} entries; {TAGS} are the most")
    return tuple(dict.fromkeys(line(name, value, TAG_CHARS) for value in sent))


def loose_names(values: Sequence[str]) -> tuple[str, ...]:
    """The same of a file, which is never refused for them."""
    found = (loose_line(value.strip().lstrip("# "), TAG_CHARS) for value in values)
    return tuple(dict.fromkeys(value for value in found if value))[:TAGS]


def link_type(value: str) -> str:
    """A link's type: a word, in lower case, with `_` for spaces."""
    found = line("type", value, TYPE_CHARS)
    if not _TYPE.fullmatch(found):
        raise errors.BadRequest("type must be a word of letters, digits, _ and -, as in works_at")
    return found.lower().replace(" ", "_")


def loose_link_type(value: str) -> str:
    """The same of a file; "" when it is none."""
    found = loose_line(value, TYPE_CHARS)
    return found.lower().replace(" ", "_") if _TYPE.fullmatch(found) else ""


def body(value: str, most_bytes: int) -> str:
    """A page's text."""
    check_size(len(text("body", value).encode()), most_bytes)
    return value


def check_size(size: int, most_bytes: int) -> None:
    """Check the bytes of a page's text; raises `TooLarge`."""
    if size > most_bytes:
        raise errors.TooLarge(f"The page would have {size} bytes; {most_bytes} are the most")


def date(value: str) -> str:
    """A year, a month, a day or a moment of the calendar; raises `BadRequest`."""
    value = value.strip()
    found = _DATE.fullmatch(value)
    try:
        if found is not None:
            datetime.date(int(found[1]), int(found[2] or 1), int(found[3] or 1))
            return value
        if _MOMENT.fullmatch(value):
            datetime.datetime.fromisoformat(value.upper())
            return value
    except ValueError:
        pass
    raise errors.BadRequest("date must be a date, as in 2026-11-20, 2026-11 or 2026-11-20T21:04:05Z")


def moment(name: str, value: str) -> int:
    """Epoch µs of an RFC 3339 time, or of the end of a plain date; raises `BadRequest`."""
    whole = f"{value}T23:59:59.999999Z" if _DAY.fullmatch(value) else value
    if _MOMENT.fullmatch(whole):
        try:
            return (datetime.datetime.fromisoformat(whole.upper()) - _EPOCH) // _MICROSECOND
        except (ValueError, OverflowError):
            pass
    raise errors.BadRequest(f"{name} must be an RFC 3339 time, as in 2026-11-20T21:04:05Z")


def past(value: str) -> int:
    """The moment that `as_of` asks for. Our own answers tell of milliseconds: one is meant to its end."""
    at = moment("as_of", value)
    return at + 999 if _TO_THE_MILLISECOND.search(value) else at
