"""Pages in the database: find, list, save, delete. Every change goes through `save`.

`save` takes a batch, so that single calls and imports share the same code.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core import ids
from sixfold.core.database import Database, Query, Row, Transaction, encode_json, now, one, to_struct
from sixfold.core.memory import links, markdown, slugs, timeline, usage
from sixfold.core.memory.indexing import entries as index
from sixfold.core.memory.models import Caller, MemoryPage, TimelineEntry
from sixfold.core.memory.relation_extraction import extraction
from sixfold.core.memory.relation_extraction import service as inference

# The name of a collection never contains this character.
SEPARATOR = "\n"
# This character sorts after all other characters.
_LAST = "\U0010ffff"
# Pages per query that are compared with a filter, in about 4 ms.
SLICE_PAGES = 4_000
_texts = msgspec.json.Decoder(tuple[str, ...]).decode


class PageDraft(msgspec.Struct, frozen=True):
    """The validated new content of a page.

    `links` (target, type, context) are all links that calls added, `entries` are the timeline entries in
    addition to those of the body, and `old_slugs` redirect to the page; a file may contain these fields in
    its front matter. None leaves a field unchanged.
    """

    slug: str
    title: str
    head: str
    body: str
    type: str
    tags: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    path: str = ""
    links: tuple[tuple[str, str, str], ...] | None = None
    entries: tuple[TimelineEntry, ...] = ()
    old_slugs: tuple[str, ...] = ()


class PageWritePlan(msgspec.Struct, frozen=True):
    """One page of a batch: the current or deleted page at its slug, and its draft.

    `reads_links` is False if the resolved links of the body must not change, as in a rename.
    """

    current: MemoryPage | None
    draft: PageDraft
    deleted: bool = False
    reads_links: bool = True


class FoundPage(msgspec.Struct, frozen=True):
    """A page, whether it is deleted, and whether it was found by an old slug."""

    page: MemoryPage
    deleted: bool = False
    moved: bool = False


def of(row: Row) -> MemoryPage:
    tags, collections = _texts(row["tags"]), _texts(row["collections"])
    return to_struct(MemoryPage, row, tags=tags, collections=collections)


def names_of(text: str) -> list[str]:
    """Return the tags or collections stored in a row."""
    return list(_texts(text))


def scope_of(caller: Caller) -> str:
    """Return the collections that a caller can see as a query parameter; "" means all."""
    return SEPARATOR + SEPARATOR.join(caller.collections) + SEPARATOR if caller.collections else ""


def find_exact(account_id: str, slug: str) -> Transaction[FoundPage | None]:
    """Return the page at exactly this slug, deleted or not, or None."""
    row = yield from one("page_by_slug", account_id=account_id, slug=slug)
    return FoundPage(of(row), row["deleted_at"] is not None) if row is not None else None


def locate(account_id: str, slug: str) -> Transaction[FoundPage | None]:
    """Return the page at this slug, or else the page that had it earlier, deleted or not, or None."""
    current = yield from find_exact(account_id, slug)
    if current is not None:
        return current
    row = yield from one("page_redirected", account_id=account_id, slug=slug)
    return FoundPage(of(row), row["deleted_at"] is not None, moved=True) if row is not None else None


def find(caller: Caller, slug: str) -> Transaction[FoundPage]:
    """Return a page that the caller can see, by its current or an old slug; raises `NotFound`."""
    location = yield from locate(caller.account_id, slug)
    if location is None or location.deleted or not caller.sees(location.page.collections):
        raise not_found(slug)
    return location


def sees_deleted(caller: Caller) -> bool:
    """Return whether a caller sees the versions of deleted pages, which a shared folder does not show."""
    return caller.since is None


def sees_version(caller: Caller, ended_at: int | None) -> bool:
    """Return whether a caller has had access since a version ended, or while it was the latest."""
    return caller.since is None or ended_at is None or ended_at > caller.since


def version(caller: Caller, page: MemoryPage, number: int) -> Transaction[Row]:
    """Return the row of a version of a page; raises `NotFound` if the caller cannot see it."""
    row = yield from one("version_by_number", account_id=caller.account_id, page_id=page.id, version=number)
    is_visible = row is not None and sees_version(caller, row["ended_at"])
    if row is None or not is_visible or not caller.sees(tuple(names_of(row["collections"]))):
        raise errors.NotFound(f"{page.slug} has no version {number}")
    return row


def not_found(slug: str) -> errors.NotFound:
    """Return the error for missing, deleted and invisible pages, which is always the same."""
    return errors.NotFound(f"Page {slug} not found")


class PageFilter(msgspec.Struct, frozen=True):
    """The filter of a list; an empty string matches all pages."""

    tag: str = ""
    type: str = ""
    collection: str = ""
    prefix: str = ""
    updated_after: int = -(2**62)


def list_rows(
    caller: Caller, page_filter: PageFilter, limit: int, after: str = "", until: str = _LAST
) -> Transaction[list[Row]]:
    """Return at most `limit` + 1 pages without bodies, by slug, from `after` to `until`."""
    rows = yield Query(
        "pages_list",
        {
            "account_id": caller.account_id,
            "after": after,
            "until": until,
            "prefix": page_filter.prefix,
            "prefix_end": page_filter.prefix + _LAST,
            "updated_after": page_filter.updated_after,
            "type": page_filter.type,
            "tag": page_filter.tag,
            "collection": page_filter.collection,
            "scope": scope_of(caller),
            "sep": SEPARATOR,
            "limit": limit + 1,
        },
    )
    return list(rows)


async def list_in_slices(
    database: Database, caller: Caller, page_filter: PageFilter, limit: int, after: str = ""
) -> list[Row]:
    """Return the result of `list_rows` from separate reads, between which other tasks run."""
    rows: list[Row] = []
    start: str | None = after
    while start is not None and len(rows) <= limit:
        matches, start = await database.read(_list_slice(caller, page_filter, limit - len(rows), start))
        rows += matches
        await asyncio.sleep(0)
    return rows


def _list_slice(
    caller: Caller, page_filter: PageFilter, limit: int, after: str
) -> Transaction[tuple[list[Row], str | None]]:
    """Return the listed pages of a slice, and the last slug of the slice, or None for the last slice."""
    prefix = {"prefix": page_filter.prefix, "prefix_end": page_filter.prefix + _LAST}
    end = yield from one(
        "pages_slice_end", account_id=caller.account_id, after=after, size=SLICE_PAGES, **prefix
    )
    until = None if end is None else str(end["slug"])
    return (yield from list_rows(caller, page_filter, limit, after, until or _LAST)), until


def old_slugs(some: Sequence[MemoryPage]) -> Transaction[dict[str, tuple[str, ...]]]:
    """Return the previous slugs of pages by page id; pages without previous slugs are absent."""
    by_page: dict[str, list[str]] = {}
    if some:
        page_ids = encode_json([page.id for page in some])
        rows = yield Query("redirects_of", {"account_id": some[0].account_id, "ids": page_ids})
        for row in rows:
            by_page.setdefault(row["page_id"], []).append(row["slug"])
    return {page_id: tuple(page_slugs) for page_id, page_slugs in by_page.items()}


def save(
    caller: Caller, operation: str, plans: Sequence[PageWritePlan]
) -> Transaction[tuple[MemoryPage, ...]]:
    """Write a batch of an account's pages with unique slugs, their versions, links and index entries.

    The caller's rights must have been checked; `usage.spend` counts the cost.
    """
    moment = yield from now()
    batch = [(plan, _next(plan, caller, moment)) for plan in plans]
    moment = max([moment, *(page.updated_at for _, page in batch)])
    batch = [(plan, _dated(plan, page, moment)) for plan, page in batch]
    yield from _write(caller, operation, batch, moment)
    yield from _write_names(caller.account_id, batch)
    new_pages = [page for plan, page in batch if _arrives(plan, page)]
    freed_slugs = [
        plan.current.slug for plan, page in batch if _leaves(plan, page) and plan.current is not None
    ]
    yield from count_folders(caller.account_id, [page.slug for page in new_pages], freed_slugs)
    yield from links.arrive(caller.account_id, [(page.id, page.slug) for page in new_pages])
    old = [{"slug": slug, "id": page.id} for plan, page in batch for slug in plan.draft.old_slugs]
    if old:
        yield Query("redirects_put", {"account_id": caller.account_id, "rows": encode_json(old)})
        yield Query("links_redirected", {"account_id": caller.account_id, "rows": encode_json(old)})
    reading = [(page, plan.current is not None) for plan, page in batch if plan.reads_links]
    yield from links.refresh(caller.account_id, reading, moment)
    # Pages of one batch may name each other by aliases, so that their own links are written first.
    called = [(page.id, alias) for page, _ in reading for alias in extraction.aliases(page)]
    yield from links.arrive_by_other_names(caller.account_id, called)
    yield from timeline.refresh(caller, reading, moment)
    for plan, page in batch:
        if plan.draft.links is not None:
            yield from links.replace(page, plan.draft.links, moment)
        if plan.draft.entries:
            yield from timeline.add_new(caller, page, plan.draft.entries, moment)
    saved_pages = tuple(page for _, page in batch)
    yield from inference.refresh_many(saved_pages)
    yield from reindex_many(saved_pages)
    return saved_pages


def growth(plan: PageWritePlan) -> usage.Growth:
    """Return the growth of the account's memory: one version, and one page if the page is new."""
    draft = plan.draft
    texts = (draft.body, draft.head, draft.title, draft.slug, draft.path, *draft.tags, *draft.collections)
    return usage.Growth.of_texts(texts, int(plan.current is None or plan.deleted))


def reindex(page: MemoryPage) -> Transaction[None]:
    """Update the search index after links were changed without the text."""
    yield from reindex_many((page,))


def retag(page: MemoryPage) -> Transaction[None]:
    """Write the tags of a page as rows, after their rules have changed."""
    if any(name not in page.tags for name in tags_of(page)):
        yield Query("page_tags_clear", {"ids": encode_json([page.id])})
        rows = encode_json([{"id": page.id, "name": name} for name in tags_of(page)])
        yield Query("page_tags_put", {"account_id": page.account_id, "rows": rows})


def reindex_many(saved_pages: Sequence[MemoryPage]) -> Transaction[None]:
    """Update the search index of some pages of an account."""
    stored_links = yield from links.of_pages(saved_pages[0].account_id, saved_pages)
    yield from index.put_many([(page, stored_links[page.id]) for page in saved_pages])


def _next(plan: PageWritePlan, caller: Caller, moment: int) -> MemoryPage:
    """Return the new page, whose time is never before that of the previous version."""
    draft, current = plan.draft, plan.current
    return MemoryPage(
        id=current.id if current is not None else ids.new("page"),
        account_id=caller.account_id,
        slug=draft.slug,
        title=draft.title,
        body=draft.body,
        type=draft.type,
        tags=draft.tags,
        collections=draft.collections,
        version=current.version + 1 if current is not None else 1,
        created_at=current.created_at if current is not None else moment,
        updated_at=max(moment, current.updated_at) if current is not None else moment,
        created_by=current.created_by if current is not None else caller.name,
        head=draft.head,
        path=draft.path,
    )


def _dated(plan: PageWritePlan, page: MemoryPage, moment: int) -> MemoryPage:
    return replace(page, updated_at=moment, created_at=moment if plan.current is None else page.created_at)


def _arrives(plan: PageWritePlan, page: MemoryPage) -> bool:
    """Return whether a page now has a slug that was free before."""
    return plan.current is None or plan.deleted or plan.current.slug != page.slug


def _leaves(plan: PageWritePlan, page: MemoryPage) -> bool:
    return plan.current is not None and not plan.deleted and plan.current.slug != page.slug


def count_folders(account_id: str, new_slugs: Iterable[str], old_slugs: Collection[str]) -> Transaction[None]:
    """Update the page counts of all folders above slugs that gained or lost a page."""
    changes = Counter(folder for slug in new_slugs for folder in slugs.folders(slug))
    changes.subtract(folder for slug in old_slugs for folder in slugs.folders(slug))
    rows = encode_json([[*folder, more] for folder, more in sorted(changes.items()) if more])
    if rows != "[]":
        yield Query("folders_changed", {"account_id": account_id, "rows": rows})
        if old_slugs:
            yield Query("folders_emptied", {"account_id": account_id, "rows": rows})


def _write(
    caller: Caller, operation: str, batch: Sequence[tuple[PageWritePlan, MemoryPage]], moment: int
) -> Transaction[None]:
    account_id = caller.account_id
    old = [page.id for plan, page in batch if plan.current is not None]
    if old:
        yield Query("versions_end", {"ids": encode_json(old), "ended_at": moment})
    occupied = [page.slug for plan, page in batch if _arrives(plan, page)]
    if occupied:
        yield Query("redirects_clear", {"account_id": account_id, "slugs": encode_json(occupied)})
    rows = [_row(page, operation, caller) for _, page in batch]
    yield Query(
        "pages_put", {"account_id": account_id, "rows": encode_json([_page_fields(row) for row in rows])}
    )
    yield Query("versions_put", {"account_id": account_id, "rows": encode_json(rows)})
    for plan, page in batch:
        if plan.current is not None and plan.current.slug != page.slug:
            yield Query(
                "redirect_put", {"account_id": account_id, "slug": plan.current.slug, "page_id": page.id}
            )


def _row(page: MemoryPage, operation: str, caller: Caller) -> dict[str, str | int]:
    return {
        "id": page.id,
        "slug": page.slug,
        "name": slugs.name(page.slug),
        "title": page.title,
        "type": page.type,
        "tags": encode_json(page.tags),
        "collections": encode_json(page.collections),
        "version": page.version,
        "created_at": page.created_at,
        "updated_at": page.updated_at,
        "created_by": page.created_by,
        "head": page.head,
        "body": page.body,
        "chars": len(page.body),
        "path": page.path,
        "operation": operation,
        "by": caller.name,
        "behalf": caller.behalf,
    }


_VERSION_FIELDS = frozenset({"head", "body", "chars", "path", "operation", "by", "behalf"})


def _page_fields(row: dict[str, str | int]) -> dict[str, str | int]:
    return {name: value for name, value in row.items() if name not in _VERSION_FIELDS}


def _write_names(account_id: str, batch: Iterable[tuple[PageWritePlan, MemoryPage]]) -> Transaction[None]:
    """Write changed tags and collections as rows."""
    for name, clear, put in (
        ("tags", "page_tags_clear", "page_tags_put"),
        ("collections", "page_collections_clear", "page_collections_put"),
    ):
        stale: list[str] = []
        rows: list[dict[str, str]] = []
        for plan, page in batch:
            values = _listed_names(page, name)
            before = _listed_names(plan.current, name) if plan.current and not plan.deleted else ()
            if values != before:
                rows += [{"id": page.id, "name": value} for value in values]
                stale += [page.id] if before else []
        if stale:
            yield Query(clear, {"ids": encode_json(stale)})
        if rows:
            yield Query(put, {"account_id": account_id, "rows": encode_json(rows)})


def _listed_names(page: MemoryPage, name: str) -> tuple[str, ...]:
    return page.collections if name == "collections" else tags_of(page)


def tags_of(page: MemoryPage) -> tuple[str, ...]:
    """Return the tags of a page, followed by those in its text; lists, counts and search use both."""
    return tuple(dict.fromkeys((*page.tags, *markdown.tags(page.body))))


def delete(page: MemoryPage) -> Transaction[None]:
    """Delete a page, keeping its versions and its slug."""
    moment = max((yield from now()), page.updated_at)
    yield Query("memory_page_left", {"account_id": page.account_id})
    yield Query("page_delete", {"account_id": page.account_id, "id": page.id, "deleted_at": moment})
    yield Query("versions_end", {"ids": encode_json([page.id]), "ended_at": moment})
    yield Query("page_tags_clear", {"ids": encode_json([page.id])})
    yield Query("page_collections_clear", {"ids": encode_json([page.id])})
    yield Query("shares_end_object", {"account_id": page.account_id, "kind": "page", "object_id": page.id})
    yield from count_folders(page.account_id, (), [page.slug])
    yield from index.remove(page.account_id, page.id)
    yield from inference.forget(page)
