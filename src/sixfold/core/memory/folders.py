"""Browsing by folder: the segments of slugs as a tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sixfold.core.database import Query, Row, Rows, Transaction
from sixfold.core.memory import pages
from sixfold.core.memory.models import Caller

MOST_FOLDERS = 500
# This character sorts after all others.
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """The content of a folder: its subfolders with page counts, and some of its pages."""

    folders: tuple[Row, ...]
    pages: tuple[Row, ...]
    next_cursor: str | None = None


def opened(caller: Caller, prefix: str, limit: int, after: str = "") -> Transaction[OpenedFolder]:
    """Return the folder with the slug prefix `prefix`, and its pages by slug after `after`.

    The prefix "" is the whole memory, of which only the folders are listed.
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
    """Return the subfolders with page counts, which are stored unless the key is limited."""
    if not caller.collections:
        return (yield Query("folders_counted", {**params, "limit": MOST_FOLDERS}))
    seen = {"prefix_end": params["prefix"] + _LAST, "collections": pages.encode(sorted(caller.collections))}
    return (yield Query("folders_counted_in", {**params, **seen, "limit": MOST_FOLDERS}))
