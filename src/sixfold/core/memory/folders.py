"""Browsing by folder: the segments of slugs as a tree that is opened step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sixfold.core.database import Query, Row, Rows, Transaction
from sixfold.core.memory import pages
from sixfold.core.memory.models import Caller

MOST_FOLDERS = 500
_LAST = "\U0010ffff"  # sorts after everything


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """What is in one folder: the folders with their counts, and some of the pages."""

    folders: tuple[Row, ...]
    pages: tuple[Row, ...]
    next_cursor: str | None = None


def opened(caller: Caller, prefix: str, limit: int, after: str = "") -> Transaction[OpenedFolder]:
    """The folder whose slugs begin with `prefix`; pages by slug from behind `after` on.

    "" is the whole memory, of which only the folders are told: its pages are found by their last change.
    """
    params = {"account_id": caller.account_id, "prefix": prefix}
    inside = yield from _inside(caller, params)
    if not prefix:
        return OpenedFolder(tuple(inside), ())
    seen = {"scope": pages.scope_of(caller), "sep": pages.SEPARATOR}
    rows = yield Query("pages_in_folder", {**params, **seen, "after": after, "limit": limit + 1})
    more = str(rows[limit - 1]["slug"]) if len(rows) > limit else None
    return OpenedFolder(tuple(inside), tuple(rows[:limit]), more)


def _inside(caller: Caller, params: Mapping[str, str]) -> Transaction[Rows]:
    """The folders with their counts: kept for the whole memory, counted anew for a key that sees a part."""
    if not caller.collections:
        return (yield Query("folders_counted", {**params, "limit": MOST_FOLDERS}))
    seen = {"prefix_end": params["prefix"] + _LAST, "collections": pages.encode(sorted(caller.collections))}
    return (yield Query("folders_counted_in", {**params, **seen, "limit": MOST_FOLDERS}))
