"""The collection of a shared folder, whose pages are determined by their slugs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from sixfold.core.database import Database, Query, Rows, Transaction, Value, encode_json, many, one
from sixfold.core.memory import pages
from sixfold.core.memory.models import MemoryPage
from sixfold.core.memory.pages import PageDraft

PREFIX = "folder:"
# This character sorts after all other characters.
_LAST = "\U0010ffff"
# Pages per transaction that are moved.
BATCH = 100


def collection_of(folder: str) -> str:
    """Return the name of a shared folder's collection."""
    return PREFIX + folder


def folders_of(account_id: str) -> Transaction[tuple[str, ...]]:
    return tuple(row["folder"] for row in (yield from many("shared_folder_names", account_id=account_id)))


def contains(folder: str, slug: str) -> bool:
    """Return whether a page is in a folder or one of its subfolders."""
    return slug == folder or slug.startswith(f"{folder}/")


def collections_at(folders: Sequence[str], slug: str, collections: Sequence[str]) -> tuple[str, ...]:
    """Return the collections of a page, including exactly the shared folders that contain its slug."""
    shared = {collection_of(folder) for folder in folders}
    inside = [collection_of(folder) for folder in folders if contains(folder, slug)]
    return (*(name for name in collections if name not in shared), *inside)


def settled(account_id: str, draft: PageDraft) -> Transaction[PageDraft]:
    """Return a draft in the collections of the shared folders that contain it."""
    folders = yield from folders_of(account_id)
    if not folders:
        return draft
    return replace(draft, collections=collections_at(folders, draft.slug, draft.collections))


def span(account_id: str, folder: str) -> dict[str, Value]:
    """Return the query parameters that select the pages of a folder."""
    prefix = f"{folder}/"
    return {
        "account_id": account_id,
        "folder": folder,
        "prefix": prefix,
        "prefix_end": prefix + _LAST,
        "collection": collection_of(folder),
    }


def move(account_id: str, folder: str) -> Transaction[int]:
    """Move up to `BATCH` pages into or out of the folder's collection; return their number.

    A move does not create a new version or change the time of the last change.
    """
    folders = yield from folders_of(account_id)
    query = "pages_to_enter" if folder in folders else "pages_to_leave"
    params = span(account_id, folder)
    if folder not in folders:
        params = {"account_id": account_id, "collection": params["collection"]}
    rows = yield Query(query, {**params, "limit": BATCH})
    name = collection_of(folder)
    moved_drafts = [_at(pages.of(row), folders, name) for row in rows]
    if moved_drafts:
        yield from _write(account_id, moved_drafts)
    return len(moved_drafts)


async def move_all(database: Database, account_id: str, folder: str) -> None:
    """Move all pages of a folder, in transactions that do not block other writes for long."""
    while await database.write(move(account_id, folder)) == BATCH:
        pass


async def sweep(database: Database) -> None:
    """Move pages out of the collections of shares that ended with a membership, a credential or a team."""
    after = ""
    while rows := await database.read(many("shared_folders_limited", after=after, limit=BATCH)):
        after = str(rows[-1]["id"])
        await database.write(_end_limited(rows), durable=False)
    for row in await database.read(many("folders_leaving", limit=BATCH)):
        account_id, folder = str(row["account_id"]), str(row["folder"])
        await move_all(database, account_id, folder)
        await database.write(many("folder_left", account_id=account_id, folder=folder), durable=False)


def _end_limited(shares: Rows) -> Transaction[None]:
    """End the shares whose key or OAuth client is no longer valid."""
    for row in shares:
        if (yield from one("credential_valid", id=row["credential_id"])) is None:
            yield Query("shared_folder_sweep", {"id": row["id"]})


def _at(page: MemoryPage, folders: Sequence[str], name: str) -> MemoryPage:
    other_collections = [collection for collection in page.collections if collection != name]
    return replace(page, collections=collections_at(folders, page.slug, other_collections))


def _write(account_id: str, moved: Sequence[MemoryPage]) -> Transaction[None]:
    rows = encode_json([{"id": page.id, "collections": encode_json(page.collections)} for page in moved])
    names = [{"id": page.id, "name": name} for page in moved for name in page.collections]
    yield Query("pages_set_collections", {"account_id": account_id, "rows": rows})
    yield Query("versions_set_collections", {"account_id": account_id, "rows": rows})
    yield Query("page_collections_clear", {"ids": encode_json([page.id for page in moved])})
    yield Query("page_collections_put", {"account_id": account_id, "rows": encode_json(names)})
    yield from pages.reindex_many(moved)
