"""Pages of lists: their cursors, and a limit on their size in bytes."""

from __future__ import annotations

import re

from sixfold import errors
from sixfold.core.database import Query, Transaction, Value

PAGE_BYTES = 4 * 2**20
# Sorts after every id.
_LAST_ID = "~"
_ID = re.compile(r"[a-z]+_[0-9a-z]{36}")
# Without this prefix, any string would be a valid cursor, and an invalid cursor would give an empty page.
_AFTER = "after:"


def cursor_after(name: str) -> str:
    """Return the cursor of the rows after a name, in a list by name."""
    return f"{_AFTER}{name}"


def name_of(cursor: str) -> str:
    """Return the name in a cursor of `cursor_after`, or "" for the first page; raises `BadRequest`."""
    if cursor and not cursor.startswith(_AFTER):
        raise errors.BadRequest("Invalid cursor: send the cursor that the previous page returned")
    return cursor.removeprefix(_AFTER)


def id_before(cursor: str | None) -> str:
    """Return the id in a cursor of a list of ids, newest first; raises `BadRequest`.

    For the first page, the result sorts after all ids.
    """
    if cursor and not _ID.fullmatch(cursor):
        raise errors.BadRequest("Invalid cursor: send the cursor that the previous page returned")
    return cursor or _LAST_ID


def count_rows(query: str, params: dict[str, Value], limit: int) -> Transaction[tuple[int, int]]:
    """Return how many rows fit into `PAGE_BYTES` (at least one), and how many exist, up to `limit`.

    `query` returns the `size` of each row in the list's order.
    """
    rows = yield Query(query, {**params, "limit": limit})
    remaining, count = PAGE_BYTES, 0
    for row in rows:
        remaining -= row["size"]
        if remaining < 0 and count:
            break
        count += 1
    return count, len(rows)
