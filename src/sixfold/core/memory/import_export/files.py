"""Pages as files: a batch of files in, files out, byte for byte.

A file's path without `.md` is its slug. Text that was imported goes out as it came, unless the page's fields
were changed since: then its front matter says so, and all else in it stays.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sixfold import errors
from sixfold.core.database import Query, Transaction
from sixfold.core.memory import (
    frontmatter,
    links,
    markdown,
    page_edits,
    pages,
    queries,
    slugs,
    timeline,
    usage,
)
from sixfold.core.memory.commands import PageWriter, check_slug, differs
from sixfold.core.memory.import_export import paths
from sixfold.core.memory.import_export.archives import ArchiveMember, ImportReport, is_page
from sixfold.core.memory.import_export.archives import file as checked_file
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.models import Caller, MemoryPage, TimelineEntry
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.pages import FoundPage, PageWritePlan
from sixfold.core.memory.queries import PageGraphView

BATCH_FILES = 100  # in one transaction: other writers wait for it, some 60 ms
BATCH_CHARS = 2**19  # of large pages less: 1 MiB of text takes a third of a second
EXPORT_PAGES = 50  # in one read; each has up to 64 Ki characters of front matter beside its body
EXPORT_CHARS = 2**20  # of their bodies; a larger page is read alone
_PLAIN = MemoryLimits(page_bytes=2**40)


# -- in ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FileNaming:
    """Which slug each file of one import gets; two files of one name get two."""

    outliner: str | None = None
    _taken: dict[str, str] = field(default_factory=dict[str, str])

    def slug(self, path: str) -> str | None:
        """The slug of a path; None where it spells none."""
        plain = paths.slug(path, self.outliner)
        if plain is None:
            return None
        slug, number = plain, 1
        while self._taken.setdefault(slug, path) != path:
            number += 1
            slug = f"{plain[: slugs.MAX_CHARS - 8]}-{number}"
        return slug


def origin(path: str, slug: str) -> str:
    """A path that somebody says a page comes from, if a file there would be this page; else ""."""
    ways = (None, "", path.partition("/")[0] + "/")
    named = any(paths.slug(path, outliner) == slug for outliner in ways)
    return path if named and is_page(path) and not checked_file(path, b"", _PLAIN).error else ""


def put(writer: PageWriter, batch: Sequence[ArchiveMember], naming: FileNaming) -> Transaction[ImportReport]:
    """Write some files as pages, whole; those that say nothing new are skipped."""
    writer.check()
    report = ImportReport()
    wanted = _wanted(batch, naming, report)
    rows = yield Query(
        "pages_by_slugs", {"account_id": writer.caller.account_id, "slugs": pages.encode(list(wanted))}
    )
    there = {row["slug"]: row for row in rows}
    plans: list[PageWritePlan] = []
    for slug, (file, sent) in wanted.items():
        row = there.get(slug)
        current = pages.of(row) if row is not None else None
        deleted = row is not None and row["deleted_at"] is not None
        home = writer.caller.home(current.collections if current is not None and not deleted else ())
        try:
            yield from check_slug(writer, slug, FoundPage(current, deleted) if current is not None else None)
            draft = page_edits.compose(current, sent, writer.limits, home)
            writer.check_collections(slug, draft.collections)
        except (errors.BadRequest, errors.Forbidden) as error:
            report.refuse(file.path, error.message)
            continue
        if current is not None and not deleted and not (yield from differs(draft, current)):
            report.skipped += 1
            continue
        report.created += current is None or deleted
        report.updated += current is not None and not deleted
        plans.append(PageWritePlan(current, draft, deleted))
    if plans:
        growth = sum((pages.growth(plan) for plan in plans), usage.Growth())
        yield from usage.spend(writer.caller.account_id, writer.limits, growth, len(plans))
        yield from pages.save(writer.caller, "import", plans)
    return report


def _wanted(
    batch: Sequence[ArchiveMember], naming: FileNaming, report: ImportReport
) -> dict[str, tuple[ArchiveMember, PageWrite]]:
    """The pages of some files by their slugs; of two of one path the later one counts, as in any unpacker."""
    wanted: dict[str, tuple[ArchiveMember, PageWrite]] = {}
    for file in batch:
        slug = naming.slug(file.path)
        if file.error or slug is None:
            report.refuse(file.path, file.error or "has no letter or digit in its name")
            continue
        if slug in wanted and wanted[slug][0].text == file.text:
            report.skipped += 1
        elif slug in wanted:
            report.refuse(file.path, "stands in the archive twice: the later one was taken")
        wanted[slug] = (file, PageWrite(slug, file.text, whole=True, path=file.path))
    return wanted


# -- out -----------------------------------------------------------------------------------------


def text(page: MemoryPage) -> Transaction[str]:
    """A page as a file: its text, and in its front matter whatever the text alone does not say."""
    kept = yield from links.all_of_calls((page,))
    told = yield from timeline.all_of_calls((page,))
    return _text(page, kept.get(page.id, ()), told.get(page.id, ()))


def _text(page: MemoryPage, kept: Sequence[tuple[str, str, str]], told: Sequence[TimelineEntry]) -> str:
    values = dict(_fields(page))
    if kept:
        values["links"] = [_without_empty(to=to, type=kind, context=why) for to, kind, why in kept]
    if told:
        values["timeline"] = [
            _without_empty(date=entry.date, summary=entry.summary, detail=entry.detail, source=entry.source)
            for entry in told
        ]
    return (frontmatter.changed(page.head, values) if values else page.head) + page.body


def file_of(caller: Caller, slug: str, as_of: int | None) -> Transaction[tuple[PageGraphView, str]]:
    """The page of a slug, now or at a moment, as a file."""
    view = yield from queries.page(caller, slug, as_of)
    if as_of is not None:
        return view, view.page.head + view.page.body
    return view, (yield from text(view.page))


def version_file(caller: Caller, slug: str, number: int) -> Transaction[str]:
    """The page of a slug as one of its versions had it, as a file."""
    return (yield from text((yield from queries.version(caller, slug, number))))


def _fields(page: MemoryPage) -> Mapping[str, frontmatter.Value]:
    """The fields that must stand in the front matter for the file to read as the page is."""
    values: dict[str, frontmatter.Value] = {
        "title": page.title,
        "type": page.type,
        "tags": page.tags,
        "collections": page.collections,
    }
    if not page.head and not page.path:  # written by a call: the file says everything
        return {name: value for name, value in values.items() if value}
    read = page_edits.compose(None, PageWrite(page.slug, page.head + page.body, whole=True), _PLAIN)
    return {name: value for name, value in values.items() if getattr(read, name) != value}


def _without_empty(**texts: str) -> Mapping[str, str]:
    return {name: value for name, value in texts.items() if value}


@dataclass(frozen=True, slots=True)
class ExportedPage:
    """A page with the records that its file holds beside its text."""

    page: MemoryPage
    links: Sequence[tuple[str, str, str]]
    entries: Sequence[TimelineEntry]
    old_slugs: tuple[str, ...]

    def text(self) -> str:
        """The page as a file; large pages take milliseconds, so an export calls this in a thread."""
        return _leading(_text(self.page, self.links, self.entries), self.old_slugs)


def exported(caller: Caller, after: str) -> Transaction[tuple[ExportedPage, ...]]:
    """The next pages after a slug, in the order of slugs, bounded by number and size."""
    params = {
        "account_id": caller.account_id,
        "after": after,
        "scope": pages.scope_of(caller),
        "sep": pages.SEPARATOR,
    }
    sizes = yield Query("pages_exported_sizes", {**params, "limit": EXPORT_PAGES})
    if not sizes:
        return ()
    totals = itertools.accumulate(int(row["chars"]) for row in sizes)
    fitting = max(1, sum(total <= EXPORT_CHARS for total in totals))
    rows = yield Query("pages_exported", {**params, "limit": fitting})
    found = [pages.of(row) for row in rows]
    old = yield from pages.old_slugs(found)
    kept = yield from links.all_of_calls(found)
    told = yield from timeline.all_of_calls(found)
    return tuple(
        ExportedPage(page, kept.get(page.id, ()), told.get(page.id, ()), old.get(page.id, ()))
        for page in found
    )


def _leading(text: str, old: tuple[str, ...]) -> str:
    """A page's file that says which slugs lead to it: what it is taken out for has no other way to know."""
    if not old:
        return text
    split = markdown.split(text)
    return frontmatter.changed(split.head, {"old_slugs": old}) + split.body


@dataclass(slots=True)
class ImportPaths:
    """The names of files in an archive, each once."""

    _used: set[str] = field(default_factory=set[str])

    def of(self, page: MemoryPage) -> str:
        """A page's file: where it came from, else its slug."""
        name = page.path or f"{page.slug}.md"
        number = 1
        while name in self._used:
            name = f"{page.slug}.md" if number == 1 else f"{page.slug}-{number}.md"
            number += 1
        self._used.add(name)
        return name
