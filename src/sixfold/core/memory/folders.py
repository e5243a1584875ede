"""Browsing by folder: the segments of slugs as a tree that is opened step by step."""

from __future__ import annotations

from dataclasses import dataclass

from sixfold.core.database import Query, Row, Transaction
from sixfold.core.memory import pages
from sixfold.core.memory.model import Caller

MOST_FOLDERS = 500
_LAST = "\U0010ffff"  # sorts after everything


@dataclass(frozen=True, slots=True)
class Opened:
    """What is in one folder: the folders with their counts, and some of the pages."""

    folders: tuple[Row, ...]
    pages: tuple[Row, ...]
    next_cursor: str | None = None


def opened(caller: Caller, prefix: str, limit: int, after: str = "") -> Transaction[Opened]:
    """The folder whose slugs begin with `prefix`; pages by slug from behind `after` on.

    "" is the whole memory, of which only the folders are told: its pages are found by their last change.
    """
    params = {
        "account_id": caller.account_id,
        "prefix": prefix,
        "prefix_end": prefix + _LAST,
        "scope": pages.scope_of(caller),
        "sep": pages.SEPARATOR,
    }
    inside = yield Query("folders_counted", {**params, "limit": MOST_FOLDERS})
    if not prefix:
        return Opened(tuple(inside), ())
    rows = yield Query("pages_in_folder", {**params, "after": after, "limit": limit + 1})
    more = str(rows[limit - 1]["slug"]) if len(rows) > limit else None
    return Opened(tuple(inside), tuple(rows[:limit]), more)
