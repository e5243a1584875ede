"""Read access to pages, now or at an earlier time, with their links, backlinks and timelines."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sixfold.core import pagination
from sixfold.core.database import Query, Row, Rows, Transaction, encode_json, one
from sixfold.core.memory import limits, links, pages, slugs, timeline
from sixfold.core.memory.links import Backlink, GraphWalk, LinkPath
from sixfold.core.memory.models import Caller, Link, MemoryPage, TimelineEntry

MAX_FOLDERS = 500
# This character sorts after all other characters.
_LAST = "\U0010ffff"


class PageGraphView(msgspec.Struct, frozen=True):
    """A page with its relations; `moved` if an old slug was used, and `at` for a view of the past."""

    page: MemoryPage
    links: tuple[Link, ...] = ()
    backlinks: tuple[Backlink, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    moved: bool = False
    at: int | None = None


def page(caller: Caller, slug: str, as_of: int | None = None) -> Transaction[PageGraphView]:
    """Return a page alone, now or at a time (epoch µs); raises `NotFound`."""
    if as_of is None:
        location = yield from pages.find(caller, slug)
        return PageGraphView(location.page, moved=location.moved)
    return PageGraphView((yield from _past(caller, slug, as_of)), at=as_of)


def _past(caller: Caller, slug: str, as_of: int) -> Transaction[MemoryPage]:
    """Return the page, as of a time, that had the slug then, or else the page that has it now."""
    params = {"account_id": caller.account_id, "at": as_of}
    row = yield from one("version_of_slug_at", slug=slug, **params)
    current = yield from pages.locate(caller.account_id, slug)
    if row is None and current is not None:
        row = yield from one("version_of_page_at", page_id=current.page.id, **params)
    if row is None:
        raise pages.not_found(slug)
    old = _of_version(row)
    owner = yield from one("page_by_id", account_id=caller.account_id, id=old.id)
    if not caller.sees(old.collections) or owner is None or not caller.sees(pages.of(owner).collections):
        raise pages.not_found(slug)
    if not pages.sees_version(caller, as_of) or (
        owner["deleted_at"] is not None and not pages.sees_deleted(caller)
    ):
        raise pages.not_found(slug)
    return old


def _of_version(row: Row) -> MemoryPage:
    return pages.of(
        {
            **row,
            "id": row["page_id"],
            "updated_at": row["created_at"],
            "created_at": row["page_created_at"],
            "created_by": row["page_created_by"],
        }
    )


def get_with_relations(caller: Caller, slug: str, as_of: int | None = None) -> Transaction[PageGraphView]:
    """Return a page with its links, its first backlinks and its newest timeline entries."""
    view = yield from page(caller, slug, as_of)
    return (yield from with_relations(caller, view))


def by_id_or_slug(caller: Caller, name: str) -> Transaction[MemoryPage]:
    """Return a page by id or slug; raises `NotFound`."""
    row = yield from one("page_by_id", account_id=caller.account_id, id=name)
    if row is not None and row["deleted_at"] is None:
        by_id = pages.of(row)
        if caller.sees(by_id.collections):
            return by_id
    return (yield from page(caller, slugs.normalize(name, "id"))).page


def with_relations(caller: Caller, view: PageGraphView) -> Transaction[PageGraphView]:
    moment = links.FOREVER if view.at is None else view.at
    out = yield from links.of_page(caller, view.page, moment)
    back = yield from backlinks(caller, view, limits.RELATED)
    entries = yield from timeline.of_page(view.page, limits.RELATED, None, moment)
    return PageGraphView(view.page, out, back, entries.entries, view.moved, view.at)


def backlinks(
    caller: Caller, view: PageGraphView, limit: int, after: tuple[str, str] = ("", "")
) -> Transaction[tuple[Backlink, ...]]:
    """Return the backlinks of a page, now or at the time of the view."""
    if view.at is not None:
        return (yield from links.to_page_at(caller, view.page, view.at, limit, after))
    scope = (pages.scope_of(caller), pages.SEPARATOR)
    return (yield from links.to_page(view.page, scope, limit, after))


def leading_to(
    caller: Caller, slug: str, as_of: int | None, limit: int, after: tuple[str, str]
) -> Transaction[tuple[Backlink, ...]]:
    view = yield from page(caller, slug, as_of)
    return (yield from backlinks(caller, view, limit, after))


def get_neighborhood(caller: Caller, slug: str, route: LinkPath) -> Transaction[GraphWalk]:
    """Return the pages around the page at a slug."""
    location = yield from pages.find(caller, slug)
    return (yield from links.walk(caller, location.page, route))


def get_timeline(
    caller: Caller, slug: str, as_of: int | None, limit: int, cursor: str | None
) -> Transaction[timeline.TimelineEvent]:
    view = yield from page(caller, slug, as_of)
    moment = links.FOREVER if as_of is None else as_of
    return (yield from timeline.of_page(view.page, limit, cursor, moment))


def history(
    caller: Caller, slug: str, limit: int, before: int
) -> Transaction[tuple[MemoryPage, tuple[Row, ...]]]:
    """Return at most `limit` + 1 versions of a page before `before`, newest first, even if it is deleted."""
    current = yield from _with_past(caller, slug)
    rows = yield Query(
        "versions_list",
        {
            "account_id": caller.account_id,
            "page_id": current.id,
            "before": before,
            "scope": pages.scope_of(caller),
            "sep": pages.SEPARATOR,
            "limit": limit + 1,
        },
    )
    return current, tuple(row for row in rows if pages.sees_version(caller, row["ended_at"]))


def version(caller: Caller, slug: str, number: int) -> Transaction[MemoryPage]:
    """Return one version of a page; raises `NotFound`."""
    current = yield from _with_past(caller, slug)
    row = yield from pages.version(caller, current, number)
    return _of_version({**row, "page_created_at": current.created_at, "page_created_by": current.created_by})


def _with_past(caller: Caller, slug: str) -> Transaction[MemoryPage]:
    location = yield from pages.locate(caller.account_id, slug)
    if location is None or not caller.sees(location.page.collections):
        raise pages.not_found(slug)
    if location.deleted and not pages.sees_deleted(caller):
        raise pages.not_found(slug)
    return location.page


def count_by(caller: Caller, noun: str, limit: int, after: str = "") -> Transaction[tuple[Row, ...]]:
    """Return at most `limit` + 1 names of `tags`, `collections` or `types` with their page counts."""
    rows = yield Query(
        f"{noun}_counted",
        {
            "account_id": caller.account_id,
            "after": after,
            "scope": pages.scope_of(caller),
            "sep": pages.SEPARATOR,
            "limit": limit + 1,
        },
    )
    return tuple(rows)


class MemoryOverview(msgspec.Struct, frozen=True):
    """Counts of a memory's pages and names, and its latest changes."""

    pages: int
    recent: tuple[Row, ...]
    orphans: tuple[Row, ...]


def overview(caller: Caller, limit: int) -> Transaction[MemoryOverview]:
    """Return the number of pages, the most recently changed pages, and recent pages without links.

    Only the last 10,000 pages are searched for pages without links.
    """
    params = {"account_id": caller.account_id, "scope": pages.scope_of(caller), "sep": pages.SEPARATOR}
    # The pages that a limited key can see must be counted.
    total = yield Query("pages_total", params) if caller.collections else Query("pages_counted", params)
    latest = yield from recent(caller, limit)
    orphans = yield Query("pages_orphans", {**params, "limit": limit})
    return MemoryOverview(total[0]["pages"] if total else 0, latest, tuple(orphans))


def recent(caller: Caller, limit: int) -> Transaction[tuple[Row, ...]]:
    """Return the pages that were last changed."""
    params = {"scope": pages.scope_of(caller), "sep": pages.SEPARATOR, "limit": limit}
    return tuple((yield Query("pages_recent", {"account_id": caller.account_id, **params})))


class FolderContents(msgspec.Struct, frozen=True):
    """The content of a folder: its subfolders with page counts, and some of its pages."""

    folders: tuple[Row, ...]
    pages: tuple[Row, ...]
    next_cursor: str | None = None


def folder(caller: Caller, prefix: str, limit: int, after: str = "") -> Transaction[FolderContents]:
    """Return the folder with the slug prefix `prefix`, and its pages by slug after `after`.

    For the prefix "" (the whole memory), only the folders are listed.
    """
    params = {"account_id": caller.account_id, "prefix": prefix}
    inside = yield from _subfolders(caller, params)
    if not prefix:
        return FolderContents(tuple(inside), ())
    scope_params = {"scope": pages.scope_of(caller), "sep": pages.SEPARATOR}
    rows = yield Query("pages_in_folder", {**params, **scope_params, "after": after, "limit": limit + 1})
    more = pagination.cursor_after(str(rows[limit - 1]["slug"])) if len(rows) > limit else None
    return FolderContents(tuple(inside), tuple(rows[:limit]), more)


def _subfolders(caller: Caller, params: Mapping[str, str]) -> Transaction[Rows]:
    """Return the subfolders with page counts, which are stored, or counted now for a limited key."""
    if not caller.collections:
        return (yield Query("folders_counted", {**params, "limit": MAX_FOLDERS}))
    scope_params = {
        "prefix_end": params["prefix"] + _LAST,
        "collections": encode_json(sorted(caller.collections)),
    }
    return (yield Query("folders_counted_in", {**params, **scope_params, "limit": MAX_FOLDERS}))
