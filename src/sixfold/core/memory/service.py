"""The memory of one server: what its faces call. Each method is one transaction, or one search."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from sixfold import errors
from sixfold.core.database import Database, Row
from sixfold.core.memory import commands, links, pages, queries, slugs, timeline, usage
from sixfold.core.memory.commands import PageWriter, SavedPage, WriteTerms
from sixfold.core.memory.import_export import archive_stream as exchange
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.import_export.archives import ImportReport
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.links import Backlink, GraphWalk, LinkPath
from sixfold.core.memory.models import Caller, Link, MemoryPage, TimelineEntry
from sixfold.core.memory.page_edits import PageEdit, PageWrite
from sixfold.core.memory.pages import PageFilter
from sixfold.core.memory.ports import Searcher, SearchRequest, SearchResult
from sixfold.core.memory.queries import PageGraphView
from sixfold.core.memory.usage import MemoryUsage

MAX_DIFF_LINES = 5_000


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Some of a list, and where the next part starts."""

    rows: tuple[Row, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What lies between two versions of a page: a unified diff of its text, its fields before and after."""

    slug: str
    older: int
    newer: int
    diff: str
    fields: dict[str, tuple[object, object]]


class MemoryService:
    """Pages of all accounts, each reached through a `Caller` of its own; `base_url` starts pages' URLs."""

    def __init__(self, database: Database, limits: MemoryLimits, base_url: str, searcher: Searcher) -> None:
        self.database = database
        self.limits = limits
        self.base_url = base_url
        self._searcher = searcher

    # -- finding and reading ---------------------------------------------------------------------

    async def search(self, caller: Caller, wanted: SearchRequest) -> SearchResult:
        """The best pages for a question."""
        return await self._searcher.search(caller, wanted)

    async def read(self, caller: Caller, slug: str, as_of: int | None = None) -> PageGraphView:
        """A page with what surrounds it, now or at a moment."""
        return await self.database.read(queries.get_with_relations(caller, slugs.normalize(slug), as_of))

    async def surrounded(self, caller: Caller, page: MemoryPage) -> PageGraphView:
        """A page that was just read or written, with what surrounds it."""
        return await self.database.read(queries.with_relations(caller, PageGraphView(page)))

    async def fetch(self, caller: Caller, page_id: str) -> MemoryPage:
        """A page by its id or its slug."""
        return await self.database.read(queries.by_id_or_slug(caller, page_id))

    async def list(self, caller: Caller, wanted: PageFilter, limit: int, cursor: str = "") -> MemoryPart:
        """Pages in the order of their slugs."""
        rows = await self.database.read(pages.listed(caller, wanted, limit, cursor))
        return part(rows, limit, "slug")

    async def links(self, caller: Caller, slug: str, as_of: int | None = None) -> tuple[Link, ...]:
        """Where a page leads."""
        return (await self.read(caller, slug, as_of)).links

    async def backlinks(
        self, caller: Caller, slug: str, limit: int, cursor: str = "", as_of: int | None = None
    ) -> tuple[tuple[Backlink, ...], str | None]:
        """What leads to a page, and the cursor of the rest."""
        source, _, kind = cursor.partition("~")
        found = await self.database.read(
            queries.leading_to(caller, slugs.normalize(slug), as_of, limit + 1, (source, kind))
        )
        more = len(found) > limit
        return found[:limit], f"{found[limit - 1].source}~{found[limit - 1].type}" if more else None

    async def traverse(self, caller: Caller, slug: str, route: LinkPath) -> GraphWalk:
        """The pages around one."""
        return await self.database.read(queries.get_neighbourhood(caller, slugs.normalize(slug), route))

    async def timeline(
        self, caller: Caller, slug: str, limit: int, cursor: str | None = None, as_of: int | None = None
    ) -> timeline.TimelineEvent:
        """A page's timeline, newest date first."""
        return await self.database.read(
            queries.get_timeline(caller, slugs.normalize(slug), as_of, limit, cursor)
        )

    async def history(
        self, caller: Caller, slug: str, limit: int, before: int
    ) -> tuple[MemoryPage, MemoryPart]:
        """A page's versions, newest first."""
        found, rows = await self.database.read(queries.history(caller, slugs.normalize(slug), limit, before))
        return found, part(rows, limit, "version")

    async def version(self, caller: Caller, slug: str, number: int) -> MemoryPage:
        """A page as one of its versions had it."""
        return await self.database.read(queries.version(caller, slugs.normalize(slug), number))

    async def version_file(self, caller: Caller, slug: str, number: int) -> str:
        """A page as the file that it was at one of its versions."""
        return await self.database.read(
            import_export_files.version_file(caller, slugs.normalize(slug), number)
        )

    async def diff(self, caller: Caller, slug: str, older: int, newer: int) -> Change:
        """What lies between two versions of a page."""
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

    async def counted(self, caller: Caller, noun: str, limit: int, cursor: str = "") -> MemoryPart:
        """Names and counts of `tags`, `collections` or `types`."""
        rows = await self.database.read(queries.count_by(caller, noun, limit, cursor))
        return part(rows, limit, "name")

    async def overview(self, caller: Caller, limit: int) -> queries.MemoryOverview:
        """What the memory holds, at a glance."""
        return await self.database.read(queries.overview(caller, limit))

    async def usage(self, caller: Caller) -> MemoryUsage:
        """What the account has used of its memory plan."""
        return await self.database.read(usage.of(caller.account_id))

    # -- changing --------------------------------------------------------------------------------

    async def write(self, caller: Caller, wanted: PageWrite, terms: WriteTerms) -> SavedPage:
        """Create a page, or replace what it says."""
        return await self.database.write(commands.write(self._writer(caller), wanted, terms))

    async def edit(self, caller: Caller, slug: str, change: PageEdit, terms: WriteTerms) -> SavedPage:
        """Change a part of a page."""
        return await self.database.write(
            commands.edit(self._writer(caller), slugs.normalize(slug), change, terms)
        )

    async def rename(
        self, caller: Caller, slug: str, to: str, terms: WriteTerms, path: str = ""
    ) -> SavedPage:
        """Give a page another slug; `path` is the file that it comes from now."""
        old, new = slugs.normalize(slug), slugs.normalize(to)
        return await self.database.write(commands.rename(self._writer(caller), old, new, terms, path))

    async def tag(
        self, caller: Caller, slug: str, change: commands.TagChange, terms: WriteTerms
    ) -> SavedPage:
        """Add tags to a page, or take some off."""
        return await self.database.write(
            commands.tag(self._writer(caller), slugs.normalize(slug), change, terms)
        )

    async def delete(self, caller: Caller, slug: str, terms: WriteTerms) -> MemoryPage:
        """Take a page out of sight."""
        return await self.database.write(commands.delete(self._writer(caller), slugs.normalize(slug), terms))

    async def restore(self, caller: Caller, slug: str, version: int, terms: WriteTerms) -> SavedPage:
        """Make what a version said the newest version."""
        return await self.database.write(
            commands.restore(self._writer(caller), slugs.normalize(slug), version, terms)
        )

    async def link(self, caller: Caller, slug: str, link: Link, terms: WriteTerms) -> MemoryPage:
        """Keep a typed link of a page beside its text."""
        wanted = links.checked(link.target, link.type, link.context)
        return await self.database.write(
            commands.link(self._writer(caller), slugs.normalize(slug), wanted, terms)
        )

    async def unlink(self, caller: Caller, slug: str, link: Link, terms: WriteTerms) -> MemoryPage:
        """Take a link back, or dismiss it."""
        to = slugs.normalize(link.target)
        return await self.database.write(
            commands.unlink(self._writer(caller), slugs.normalize(slug), (to, link.type), terms)
        )

    async def relink(
        self, caller: Caller, slug: str, change: tuple[str, Link], terms: WriteTerms
    ) -> MemoryPage:
        """`add` or `remove` a link, or `confirm` or `dismiss` one that inference drew."""
        action, link = change
        if action == "add":
            return await self.link(caller, slug, link, terms)
        if action == "remove":
            return await self.unlink(caller, slug, link, terms)
        verdict = "confirmed" if action == "confirm" else "dismissed"
        wanted = (slugs.normalize(link.target), link.type)
        return await self.database.write(
            commands.judge(self._writer(caller), slugs.normalize(slug), (*wanted, verdict), terms)
        )

    async def note(self, caller: Caller, slug: str, entry: TimelineEntry, terms: WriteTerms) -> MemoryPage:
        """Add an entry to a page's timeline."""
        checked = timeline.checked(entry.date, entry.summary, entry.detail, entry.source)
        return await self.database.write(
            commands.note(self._writer(caller), slugs.normalize(slug), checked, terms)
        )

    # -- files -----------------------------------------------------------------------------------

    async def take_in(self, caller: Caller, archive: Path) -> ImportReport:
        """Import an archive of markdown files."""
        return await exchange.take_in(self.database, self._writer(caller), archive)

    def take_out(self, caller: Caller) -> AsyncIterator[bytes]:
        """Export every page as a zip, piece by piece."""
        return exchange.take_out(self.database, caller)

    async def file(self, caller: Caller, slug: str, as_of: int | None = None) -> tuple[PageGraphView, str]:
        """A page as the file that an export would have of it."""
        return await self.database.read(import_export_files.file_of(caller, slugs.normalize(slug), as_of))

    def _writer(self, caller: Caller) -> PageWriter:
        return PageWriter(caller, self.limits)


def part(rows: tuple[Row, ...] | list[Row], limit: int, key: str) -> MemoryPart:
    """The first `limit` of `rows`; where there was one more, the cursor is the last one's `key`."""
    shown = tuple(rows[:limit])
    return MemoryPart(shown, str(shown[-1][key]) if len(rows) > limit else None)


def _diff(before: MemoryPage, after: MemoryPage) -> str:
    """A unified diff of two texts; raises `TooLarge` where it would take minutes to make."""
    old, new = before.body.splitlines(), after.body.splitlines()
    if max(len(old), len(new)) > MAX_DIFF_LINES:
        raise errors.TooLarge(f"These versions are too long to compare: {MAX_DIFF_LINES} lines are the most")
    lines = unified_diff(
        old,
        new,
        f"{before.slug} version {before.version}",
        f"{after.slug} version {after.version}",
        lineterm="",
    )
    return "\n".join(lines)
