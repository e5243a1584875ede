"""Changes of pages, each in one transaction: write, edit, rename, delete, restore and link.

Each checks the key, the version that the caller has seen, and the cost. A change without effect does not
create a version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.database import Transaction, now
from sixfold.core.memory import links, page_edits, pages, timeline, usage
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.models import Caller, MemoryPage, TimelineEntry
from sixfold.core.memory.page_edits import PageEdit, PageWrite
from sixfold.core.memory.pages import FoundPage, PageDraft, PageWritePlan
from sixfold.core.memory.sharing import membership


class WriteTerms(msgspec.Struct, frozen=True):
    """The conditions of a change: the version that the caller has seen, and whether the page may exist."""

    if_version: int | None = None
    overwrite: bool = False
    only_new: bool = False
    must_exist: bool = False


FREELY = WriteTerms(overwrite=True)


class SavedPage(msgspec.Struct, frozen=True):
    """A page after a change; `created` is True also if the page was deleted before."""

    page: MemoryPage
    created: bool = False
    changed: bool = True


class PageWriter(msgspec.Struct, frozen=True):
    """The caller of a change, and the applicable limits."""

    caller: Caller
    limits: MemoryLimits

    def check(self) -> None:
        """Raise `Forbidden` for a read-only key."""
        if not self.caller.may_write:
            raise errors.Forbidden("The key does not have the right memory.write")

    def check_page(self, slug: str, existing: FoundPage | None) -> None:
        """Raise `Forbidden` unless the caller may change the page at a slug, even if it was deleted.

        If the key is limited to collections, the error does not reveal whether a page exists.
        """
        self.check()
        if self.caller.collections and (
            existing is None or not self.caller.may_change(existing.page.collections)
        ):
            raise errors.Forbidden(
                f"This key may only change pages in its collections ({self._allowed}); "
                f"{slug} is not in any of them"
            )

    def check_collections(self, slug: str, collections: Sequence[str]) -> None:
        """Raise `Forbidden` unless the caller may store a page in these collections."""
        if not self.caller.may_change(tuple(collections)):
            self._refuse(slug, collections)

    def _refuse(self, slug: str, collections: Sequence[str]) -> NoReturn:
        raise errors.Forbidden(
            f"collections of {slug} must be among those of this key ({self._allowed}); "
            f"got {', '.join(collections) or 'none'}"
        )

    def check_named(self, slug: str, collections: Sequence[str]) -> None:
        """Raise `Forbidden` if a caller limited to collections names any other collection.

        `membership.settled` omits the collections of shared folders that do not contain the page.
        """
        caller = self.caller
        if caller.collections and not {*collections} <= {*caller.collections, *caller.beside}:
            self._refuse(slug, collections)

    @property
    def _allowed(self) -> str:
        return ", ".join(self.caller.collections)


def check_version(existing: FoundPage | None, slug: str, terms: WriteTerms) -> None:
    """Raise `PreconditionFailed` unless the page is at the version that the caller has seen."""
    exists = existing is not None and not existing.deleted
    if existing is None or not exists:
        if terms.if_version is not None or terms.must_exist:
            raise errors.PreconditionFailed(
                f"The page {slug} does not exist, so If-Match cannot match a version"
            )
    elif terms.only_new:
        raise errors.PreconditionFailed(f"The page {slug} already exists")
    elif terms.if_version is not None and terms.if_version != existing.page.version:
        raise errors.PreconditionFailed(
            f"{existing.page.slug} is at version {existing.page.version}, not {terms.if_version}: "
            "read it again, and merge your change into it"
        )


def write(
    writer: PageWriter, request: PageWrite, terms: WriteTerms, operation: str = "write"
) -> Transaction[SavedPage]:
    """Create a page or replace its content; the slug may be that of a redirect or a deleted page.

    The version records the `operation`. Raises `Conflict` for an existing page unless `terms` allow it.
    """
    writer.check()
    existing = yield from _at(writer, request.slug)
    check_version(existing, request.slug, terms)
    exists = existing is not None and not existing.deleted
    if exists and not terms.overwrite and terms.if_version is None:
        raise errors.Conflict(
            f"The page {request.slug} already exists: send overwrite: true to replace it, or edit it"
        )
    current = existing.page if existing is not None else None
    home = writer.caller.home(current.collections if current is not None and exists else ())
    draft = page_edits.compose(current if exists else None, request, writer.limits, home)
    writer.check_named(request.slug, draft.collections)
    draft = yield from membership.settled(writer.caller.account_id, draft)
    writer.check_collections(request.slug, draft.collections)
    if current is not None and exists and not (yield from differs(draft, current)):
        return SavedPage(current, changed=False)
    plan = PageWritePlan(current, draft, deleted=existing is not None and existing.deleted)
    return SavedPage((yield from _save(writer, operation, plan)), created=not exists)


def edit(writer: PageWriter, slug: str, page_edit: PageEdit, terms: WriteTerms) -> Transaction[SavedPage]:
    """Change a part of a page; raises `NotFound`, or `InvalidInput` if the edit does not fit the text."""
    existing = yield from _page_to_change(writer, slug, terms)
    draft = page_edits.apply(existing.page, page_edit, writer.limits)
    return (yield from change(writer, page_edit.operation, existing.page, draft))


def set_task(
    writer: PageWriter, expected: MemoryPage, line: int, terms: WriteTerms
) -> Transaction[SavedPage]:
    """Toggle the checkbox of a task, given by its line in the page that the user saw.

    The page may have changed since; raises `Conflict` unless the line occurs in it exactly once.
    """
    existing = yield from _page_to_change(writer, expected.slug, terms)
    draft = page_edits.with_task(existing.page, expected.body, line)
    return (yield from change(writer, "task", existing.page, draft))


class TagChange(msgspec.Struct, frozen=True):
    """Tags to add to a page, and tags to remove."""

    add: Sequence[str] = ()
    remove: Sequence[str] = ()


def tag(writer: PageWriter, slug: str, changes: TagChange, terms: WriteTerms) -> Transaction[SavedPage]:
    """Add and remove tags of a page."""
    existing = yield from _page_to_change(writer, slug, terms)
    removed = page_edits.texts("tags", list(changes.remove))
    remaining = [name for name in existing.page.tags if name not in removed]
    tags = page_edits.texts("tags", [*remaining, *page_edits.texts("tags", list(changes.add))])
    draft = replace(page_edits.of(existing.page), tags=tags)
    return (yield from change(writer, "tag", existing.page, draft))


def rename(
    writer: PageWriter, slug: str, to: str, terms: WriteTerms, path: str = ""
) -> Transaction[SavedPage]:
    """Change the slug of a page; links are kept, and the old slug redirects.

    Raises `Conflict` if the new slug is taken.
    """
    existing = yield from _page_to_change(writer, slug, terms)
    if to == existing.page.slug:
        return SavedPage(existing.page, changed=False)
    other = yield from _at(writer, to)
    if other is not None:
        state = "deleted page, which its versions can bring back" if other.deleted else "page"
        raise errors.Conflict(f"{to} is already the slug of another {state}")
    path = path or page_edits.path_at(existing.page, to)
    title = page_edits.title_at(existing.page, to, path)
    draft = replace(page_edits.of(existing.page), slug=to, title=title, path=path)
    draft = yield from membership.settled(writer.caller.account_id, draft)
    writer.check_collections(to, draft.collections)
    return SavedPage(
        (yield from _save(writer, "rename", PageWritePlan(existing.page, draft, reads_links=False)))
    )


def delete(writer: PageWriter, slug: str, terms: WriteTerms) -> Transaction[MemoryPage]:
    """Delete a page; `restore` can restore any of its versions."""
    existing = yield from _page_to_change(writer, slug, terms)
    yield from pages.delete(existing.page)
    return existing.page


def restore(writer: PageWriter, slug: str, version: int | None, terms: WriteTerms) -> Transaction[SavedPage]:
    """Restore an older version, by default the last one of a deleted page.

    Raises `NotFound` for a version that the caller cannot see.
    """
    writer.check()
    account_id = writer.caller.account_id
    existing = yield from pages.locate(account_id, slug)
    writer.check_page(slug, existing)
    if existing is None or (existing.deleted and not pages.sees_deleted(writer.caller)):
        raise pages.not_found(slug)
    if not existing.deleted:
        check_version(existing, slug, terms)
        if version is None:
            raise errors.InvalidInput.of("version", f"{slug} is not deleted: send the version to restore")
    row = yield from pages.version(writer.caller, existing.page, version or existing.page.version)
    old = pages.of({**row, "id": row["page_id"], "updated_at": row["created_at"]})
    path = existing.page.path or old.path
    title = page_edits.title_at(old, existing.page.slug, path)
    draft = replace(page_edits.of(old), slug=existing.page.slug, title=title, path=path)
    draft = yield from membership.settled(account_id, draft)
    writer.check_collections(existing.page.slug, draft.collections)
    page = yield from _save(writer, "restore", PageWritePlan(existing.page, draft, deleted=existing.deleted))
    return SavedPage(page, created=existing.deleted)


def link(
    writer: PageWriter, slug: str, new_link: tuple[str, str, str], terms: WriteTerms
) -> Transaction[MemoryPage]:
    """Store a typed link (target, type, context) of a page, which also confirms an inferred link."""
    existing = yield from _page_to_change(writer, slug, terms)
    yield from usage.spend(writer.caller.account_id, writer.limits, usage.Growth.of_texts(new_link))
    moment = max((yield from now()), existing.page.updated_at)
    yield from links.add(existing.page, new_link, moment)
    yield from pages.reindex(existing.page)
    return existing.page


def unlink(
    writer: PageWriter, slug: str, link: tuple[str, str], terms: WriteTerms
) -> Transaction[MemoryPage]:
    """Remove a link (target, type or ""); an inferred link is dismissed.

    Raises `NotFound` for an unknown link, and `Conflict` if only the body contains the link.
    """
    existing = yield from _page_to_change(writer, slug, terms)
    moment = max((yield from now()), existing.page.updated_at)
    yield from links.remove(writer.caller, existing.page, link, moment)
    yield from pages.reindex(existing.page)
    return existing.page


def judge(
    writer: PageWriter, slug: str, judgment: tuple[str, str, links.Verdict], terms: WriteTerms
) -> Transaction[MemoryPage]:
    """Confirm or dismiss inferred links (target, type or ""); raises `NotFound` if there are none."""
    existing = yield from _page_to_change(writer, slug, terms)
    yield from links.judge_all(writer.caller, existing.page, judgment)
    yield from pages.reindex(existing.page)
    return existing.page


def note(writer: PageWriter, slug: str, entry: TimelineEntry, terms: WriteTerms) -> Transaction[MemoryPage]:
    existing = yield from _page_to_change(writer, slug, terms)
    texts = (entry.date, entry.summary, entry.detail, entry.source)
    yield from usage.spend(writer.caller.account_id, writer.limits, usage.Growth.of_texts(texts))
    moment = max((yield from now()), existing.page.updated_at)
    yield from timeline.add(writer.caller, existing.page, [entry], moment)
    return existing.page


def _page_to_change(writer: PageWriter, slug: str, terms: WriteTerms) -> Transaction[FoundPage]:
    """Return the page to change, by its current or an old slug."""
    existing = yield from pages.locate(writer.caller.account_id, slug)
    writer.check_page(slug, existing)
    if existing is None or existing.deleted:
        raise pages.not_found(slug)
    check_version(existing, slug, terms)
    return existing


def _at(writer: PageWriter, slug: str) -> Transaction[FoundPage | None]:
    """Return the page at exactly this slug, or None; raises `Forbidden` if the caller may not change it."""
    existing = yield from pages.find_exact(writer.caller.account_id, slug)
    yield from check_slug(writer, slug, existing)
    return existing


def check_slug(writer: PageWriter, slug: str, existing: FoundPage | None) -> Transaction[None]:
    """Raise `Forbidden` if a slug belongs to a page that the caller may not change.

    `existing` is the page at the slug; if it is None, the slug may still redirect to the page that had it.
    """
    writer.check()
    if existing is None and writer.caller.collections:
        existing = yield from pages.locate(writer.caller.account_id, slug)
    if existing is not None:
        writer.check_page(slug, existing)


def differs(draft: PageDraft, page: MemoryPage) -> Transaction[bool]:
    """Return whether saving a draft would change the page, its stored links or its timeline."""
    if page_edits.differs(draft, page):
        return True
    if draft.links is not None and set(draft.links) != set((yield from links.of_calls(page))):
        return True
    return bool(draft.entries) and not set(draft.entries) <= set((yield from timeline.of_calls(page)))


def change(writer: PageWriter, operation: str, page: MemoryPage, draft: PageDraft) -> Transaction[SavedPage]:
    """Save the draft of a page that was checked earlier, unless it changes nothing."""
    writer.check_named(page.slug, draft.collections)
    draft = yield from membership.settled(writer.caller.account_id, draft)
    writer.check_collections(page.slug, draft.collections)
    if not page_edits.differs(draft, page):
        return SavedPage(page, changed=False)
    return SavedPage((yield from _save(writer, operation, PageWritePlan(page, draft))))


def _save(writer: PageWriter, operation: str, plan: PageWritePlan) -> Transaction[MemoryPage]:
    yield from usage.spend(writer.caller.account_id, writer.limits, pages.growth(plan))
    return (yield from pages.save(writer.caller, operation, [plan]))[0]
