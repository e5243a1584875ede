"""The memory of one server; each method runs one transaction or one search."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from sixfold import errors
from sixfold.core import pagination
from sixfold.core.database import Database, Row
from sixfold.core.files.files import AccountFile, AccountFiles
from sixfold.core.memory import commands, diff, links, pages, queries, slugs, timeline, usage
from sixfold.core.memory.commands import PageWriter, SavedPage, WriteTerms
from sixfold.core.memory.import_export import archive_memory, attachments
from sixfold.core.memory.import_export import archive_stream as exchange
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.import_export.archives import ImportReport
from sixfold.core.memory.import_export.documents import DocumentImports, DocumentOptions
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.links import Backlink, GraphWalk, LinkPath
from sixfold.core.memory.models import Caller, Link, MemoryPage, TimelineEntry
from sixfold.core.memory.page_edits import PageEdit, PageWrite
from sixfold.core.memory.pages import PageFilter
from sixfold.core.memory.ports import Searcher, SearchRequest, SearchResult
from sixfold.core.memory.queries import PageGraphView
from sixfold.core.memory.usage import MemoryUsage

MAX_DIFF_LINES = 5_000


class MemoryPart(msgspec.Struct, frozen=True):
    """A part of a list, and the cursor of the next part."""

    rows: tuple[Row, ...]
    next_cursor: str | None = None


class Change(msgspec.Struct, frozen=True):
    """The difference between two versions of a page: a unified diff, and the fields before and after."""

    slug: str
    older: int
    newer: int
    diff: str
    fields: dict[str, tuple[object, object]]


class MemoryService:
    """The pages of all accounts, each accessed by a `Caller`.

    URLs of pages start with `base_url`. If `documents` is None, only Markdown can be imported.
    """

    def __init__(
        self,
        database: Database,
        limits: MemoryLimits,
        base_url: str,
        searcher: Searcher,
        documents: DocumentImports | None = None,
        files: AccountFiles | None = None,
    ) -> None:
        self.database = database
        self.limits = limits
        self.base_url = base_url
        self._searcher = searcher
        self._documents = documents
        self._files = files
        self._memory = archive_memory.limit() if documents is None else documents.memory

    async def search(self, caller: Caller, request: SearchRequest) -> SearchResult:
        """Return the best pages for a query."""
        return await self._searcher.search(caller, request)

    async def read(self, caller: Caller, slug: str, as_of: int | None = None) -> PageGraphView:
        """Return a page with its relations, now or at an earlier time."""
        return await self.database.read(queries.get_with_relations(caller, slugs.normalize(slug), as_of))

    async def with_relations(self, caller: Caller, page: MemoryPage) -> PageGraphView:
        """Add the relations to a page that was just read or written, as far as the caller may read them."""
        if caller.write_only:
            return PageGraphView(caller.shown(page))
        return await self.database.read(queries.with_relations(caller, PageGraphView(page)))

    async def fetch(self, caller: Caller, page_id: str) -> MemoryPage:
        """Return a page by id or slug."""
        return await self.database.read(queries.by_id_or_slug(caller, page_id))

    async def list(self, caller: Caller, page_filter: PageFilter, limit: int, cursor: str = "") -> MemoryPart:
        after = pagination.name_of(cursor)
        rows = await pages.list_in_slices(self.database, caller, page_filter, limit, after)
        return _by_name(part(rows, limit, "slug"))

    async def links(self, caller: Caller, slug: str, as_of: int | None = None) -> tuple[Link, ...]:
        return (await self.read(caller, slug, as_of)).links

    async def backlinks(
        self, caller: Caller, slug: str, limit: int, cursor: str = "", as_of: int | None = None
    ) -> tuple[tuple[Backlink, ...], str | None]:
        """List the links to a page; return them with the cursor of the next part.

        Raises `InvalidCursor`.
        """
        after = pagination.pair_of(cursor) or ("", "")
        links_in = await self.database.read(
            queries.leading_to(caller, slugs.normalize(slug), as_of, limit + 1, after)
        )
        last = links_in[limit - 1] if len(links_in) > limit else None
        return links_in[:limit], pagination.pair_cursor(last.source, last.type) if last else None

    async def traverse(self, caller: Caller, slug: str, route: LinkPath) -> GraphWalk:
        return await self.database.read(queries.get_neighborhood(caller, slugs.normalize(slug), route))

    async def timeline(
        self, caller: Caller, slug: str, limit: int, cursor: str | None = None, as_of: int | None = None
    ) -> timeline.TimelineEvent:
        """Return the timeline of a page, newest date first."""
        return await self.database.read(
            queries.get_timeline(caller, slugs.normalize(slug), as_of, limit, cursor)
        )

    async def history(
        self, caller: Caller, slug: str, limit: int, before: int
    ) -> tuple[MemoryPage, MemoryPart]:
        """List the versions of a page, newest first."""
        current, rows = await self.database.read(
            queries.history(caller, slugs.normalize(slug), limit, before)
        )
        return current, part(rows, limit, "version")

    async def version(self, caller: Caller, slug: str, number: int) -> MemoryPage:
        return await self.database.read(queries.version(caller, slugs.normalize(slug), number))

    async def version_file(self, caller: Caller, slug: str, number: int) -> str:
        """Return a page at one of its versions as a Markdown file."""
        return await self.database.read(
            import_export_files.version_file(caller, slugs.normalize(slug), number)
        )

    async def diff(self, caller: Caller, slug: str, older: int, newer: int) -> Change:
        """Return the difference between two versions of a page."""
        before = await self.version(caller, slug, older)
        after = await self.version(caller, slug, newer)
        names = ("slug", "title", "type", "tags", "collections")
        return Change(
            slug=after.slug,
            older=older,
            newer=newer,
            diff=await asyncio.to_thread(_diff, before, after),
            fields={
                name: (getattr(before, name), getattr(after, name))
                for name in names
                if getattr(before, name) != getattr(after, name)
            },
        )

    async def count_by(self, caller: Caller, noun: str, limit: int, cursor: str = "") -> MemoryPart:
        """Return names and counts of `tags`, `collections` or `types`."""
        rows = await self.database.read(queries.count_by(caller, noun, limit, pagination.name_of(cursor)))
        return _by_name(part(rows, limit, "name"))

    async def overview(self, caller: Caller, limit: int) -> queries.MemoryOverview:
        return await self.database.read(queries.overview(caller, limit))

    async def recent(self, caller: Caller, limit: int) -> tuple[Row, ...]:
        """Return the pages that were last changed."""
        return await self.database.read(queries.recent(caller, limit))

    async def usage(self, caller: Caller) -> MemoryUsage:
        """Return the usage of the account's memory plan."""
        return await self.database.read(usage.of(caller.account_id))

    async def write(self, caller: Caller, request: PageWrite, terms: WriteTerms) -> SavedPage:
        """Create a page or replace its content."""
        return await self.database.write(commands.write(self._writer(caller), request, terms))

    async def edit(self, caller: Caller, slug: str, change: PageEdit, terms: WriteTerms) -> SavedPage:
        return await self.database.write(
            commands.edit(self._writer(caller), slugs.normalize(slug), change, terms)
        )

    async def set_task(self, caller: Caller, page: MemoryPage, line: int, terms: WriteTerms) -> SavedPage:
        """Toggle the checkbox of a task, given by its line in a version of a page."""
        return await self.database.write(commands.set_task(self._writer(caller), page, line, terms))

    async def rename(
        self, caller: Caller, slug: str, to: str, terms: WriteTerms, path: str = ""
    ) -> SavedPage:
        """Change the slug of a page; `path` is its new file."""
        old, new = slugs.normalize(slug), slugs.normalize(to)
        return await self.database.write(commands.rename(self._writer(caller), old, new, terms, path))

    async def tag(
        self, caller: Caller, slug: str, change: commands.TagChange, terms: WriteTerms
    ) -> SavedPage:
        """Add and remove tags of a page."""
        return await self.database.write(
            commands.tag(self._writer(caller), slugs.normalize(slug), change, terms)
        )

    async def delete(self, caller: Caller, slug: str, terms: WriteTerms) -> MemoryPage:
        return await self.database.write(commands.delete(self._writer(caller), slugs.normalize(slug), terms))

    async def restore(self, caller: Caller, slug: str, version: int | None, terms: WriteTerms) -> SavedPage:
        """Restore an older version; `None` is the last version of a deleted page."""
        return await self.database.write(
            commands.restore(self._writer(caller), slugs.normalize(slug), version, terms)
        )

    async def link(self, caller: Caller, slug: str, link: Link, terms: WriteTerms) -> MemoryPage:
        """Add a typed link to a page, outside of its text."""
        checked = links.validate(link.target, link.type, link.context)
        return await self.database.write(
            commands.link(self._writer(caller), slugs.normalize(slug), checked, terms)
        )

    async def unlink(self, caller: Caller, slug: str, link: Link, terms: WriteTerms) -> MemoryPage:
        """Remove a link, or dismiss an inferred one."""
        to = slugs.normalize(link.target, "to")
        return await self.database.write(
            commands.unlink(self._writer(caller), slugs.normalize(slug), (to, link.type), terms)
        )

    async def relink(
        self, caller: Caller, slug: str, change: tuple[str, Link], terms: WriteTerms
    ) -> MemoryPage:
        """Add or remove a link, or confirm or dismiss an inferred link, as `action` states."""
        action, link = change
        if action == "add":
            return await self.link(caller, slug, link, terms)
        if action == "remove":
            return await self.unlink(caller, slug, link, terms)
        verdict = "confirmed" if action == "confirm" else "dismissed"
        key = (slugs.normalize(link.target, "to"), link.type)
        return await self.database.write(
            commands.judge(self._writer(caller), slugs.normalize(slug), (*key, verdict), terms)
        )

    async def note(self, caller: Caller, slug: str, entry: TimelineEntry, terms: WriteTerms) -> MemoryPage:
        checked = timeline.validate(entry.date, entry.summary, entry.detail, entry.source)
        return await self.database.write(
            commands.note(self._writer(caller), slugs.normalize(slug), checked, terms)
        )

    async def import_archive(self, caller: Caller, archive: Path) -> ImportReport:
        return await exchange.import_archive(self.database, self._writer(caller), archive, self._memory)

    async def import_document(
        self, caller: Caller, path: Path, name: str, options: DocumentOptions
    ) -> ImportReport:
        """Import a document, or an archive of documents and Markdown files, depending on its name."""
        return await self._imports(caller).import_file(caller, path, name, options)

    async def import_sent(
        self, caller: Caller, name: str, options: DocumentOptions, *, url: str = "", content: str = ""
    ) -> ImportReport:
        """Import a document from a URL or from base64 `content`."""
        return await self._imports(caller).take_sent(caller, name, options, url=url, content=content)

    def _imports(self, caller: Caller) -> DocumentImports:
        self._writer(caller).check()
        if self._documents is None:
            raise errors.EngineUnavailable("This server is not configured to read documents")
        return self._documents

    def export_archive(self, caller: Caller, *, logseq: bool = False) -> AsyncIterator[bytes]:
        """Yield a zip of all pages in chunks, in the folders of Logseq if `logseq` is set."""
        return exchange.export_archive(self.database, caller, self._files, logseq=logseq)

    async def attachment(self, caller: Caller, slug: str) -> AccountFile:
        """Return the file of a page; raises `NotFound` if the page has no file."""
        return await self.database.read(attachments.find(caller, slugs.normalize(slug)))

    async def file(self, caller: Caller, slug: str, as_of: int | None = None) -> tuple[PageGraphView, str]:
        """Return a page as the file that an export contains."""
        return await self.database.read(import_export_files.file_of(caller, slugs.normalize(slug), as_of))

    def _writer(self, caller: Caller) -> PageWriter:
        return PageWriter(caller, self.limits)


def part(rows: tuple[Row, ...] | list[Row], limit: int, key: str) -> MemoryPart:
    """Return the first `limit` rows; if more rows exist, the cursor is the `key` of the last one."""
    first = tuple(rows[:limit])
    return MemoryPart(first, str(first[-1][key]) if len(rows) > limit else None)


def _by_name(names: MemoryPart) -> MemoryPart:
    """Return a part of a list by name, with the cursor marked as a name."""
    name = names.next_cursor
    return names if name is None else MemoryPart(names.rows, pagination.cursor_after(name))


def _diff(before: MemoryPage, after: MemoryPage) -> str:
    """Return a unified diff; raises `TooLarge` if it would take minutes."""
    old, new = before.body.splitlines(), after.body.splitlines()
    if max(len(old), len(new)) > MAX_DIFF_LINES:
        raise errors.TooLarge(f"Each version must have at most {MAX_DIFF_LINES:,} lines to be compared")
    names = f"{before.slug} version {before.version}", f"{after.slug} version {after.version}"
    return "\n".join(diff.unified(old, new, names))
