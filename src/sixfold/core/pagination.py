"""Pages of lists: their cursors, patterns that filter them, and a limit on their size in bytes."""

from __future__ import annotations

import re

import msgspec

from sixfold import errors
from sixfold.core.database import Query, Transaction, Value

PAGE_BYTES = 4 * 2**20
# Rows that one query measures: SQLite reads a text to measure it, which takes 40 ms for 32 MiB.
_MEASURED_ROWS = 2
INVALID_CURSOR = "Invalid cursor: send the cursor that the previous page returned"
# Sorts after every id.
_LAST_ID = "~"
_ID = re.compile(r"[a-z]+_[0-9a-z]{36}")
_PAIR = "~"
# Without this prefix, any string would be a valid cursor, and an invalid cursor would give an empty page.
_AFTER = "after:"


class InvalidCursor(errors.InvalidInput):
    """A cursor that no page has returned."""

    def __init__(self) -> None:
        super().__init__([errors.Problem("cursor", INVALID_CURSOR)])


def contains_pattern(text: str) -> str:
    """Return the LIKE pattern of texts that contain `text`; its escape character is the backslash."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def cursor_after(name: str) -> str:
    """Return the cursor of the rows after a name, in a list by name."""
    return f"{_AFTER}{name}"


def name_of(cursor: str) -> str:
    """Return the name in a cursor of `cursor_after`, or "" for the first page; raises `InvalidCursor`."""
    if cursor and not cursor.startswith(_AFTER):
        raise InvalidCursor
    return cursor.removeprefix(_AFTER)


def id_before(cursor: str | None, prefix: str = "") -> str:
    """Return the id in a cursor of a list of ids with a prefix, newest first; raises `InvalidCursor`.

    For the first page, the result sorts after all ids.
    """
    if cursor and not (cursor.startswith(prefix) and _ID.fullmatch(cursor)):
        raise InvalidCursor
    return cursor or _LAST_ID


def pair_cursor(first: object, second: object) -> str:
    """Return the cursor of the rows after a pair of values, of which the first contains no tilde."""
    return f"{first}{_PAIR}{second}"


def pair_of(cursor: str | None) -> tuple[str, str] | None:
    """Return the values in a cursor of `pair_cursor`, or None for the first page; raises `InvalidCursor`."""
    if not cursor:
        return None
    first, _, second = cursor.partition(_PAIR)
    if not (first and second):
        raise InvalidCursor
    return first, second


class PageRows(msgspec.Struct, frozen=True):
    """The number of rows of a page, the sum of their sizes, and whether there are rows after them."""

    count: int
    size: int
    has_more: bool


def count_rows(query: str, params: dict[str, Value], limit: int) -> Transaction[PageRows]:
    """Return which rows, up to `limit`, fit into `PAGE_BYTES`, but at least one.

    `query` returns the `size` of each row in the list's order, after the first `offset` rows.
    """
    count = size = 0
    while True:
        step = min(_MEASURED_ROWS, limit + 1 - count)
        rows = yield Query(query, {**params, "limit": step, "offset": count})
        for row in rows:
            if count == limit or (count and size + row["size"] > PAGE_BYTES):
                return PageRows(count, size, has_more=True)
            count, size = count + 1, size + row["size"]
        if len(rows) < step:
            return PageRows(count, size, has_more=False)
