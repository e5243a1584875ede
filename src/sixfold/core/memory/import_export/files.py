"""Import and export of pages as Markdown files, byte for byte.

The path of a file without `.md` is its slug. An imported text is exported unchanged; if the fields of the
page have been changed since, only its front matter is updated.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence

import msgspec

from sixfold import errors
from sixfold.core.database import Query, Transaction, encode_json
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
from sixfold.core.memory.import_export import attachments, paths
from sixfold.core.memory.import_export.archives import ArchiveMember, ImportReport, is_page
from sixfold.core.memory.import_export.archives import file as checked_file
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.models import Caller, MemoryPage, TimelineEntry
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.pages import FoundPage, PageWritePlan
from sixfold.core.memory.queries import PageGraphView
from sixfold.core.memory.sharing import membership

# Files per transaction, for which other writers wait about 60 ms.
BATCH_FILES = 100
# Characters per transaction; 1 MiB of text takes a third of a second.
BATCH_CHARS = 2**19
# Pages per read.
EXPORT_PAGES = 50
# Characters of all pages per read; a larger page is read alone.
EXPORT_CHARS = 2**20
_PLAIN = MemoryLimits(page_bytes=2**40)


class FileNaming(msgspec.Struct):
    """Assigns a unique slug to each file of an import.

    It stores hashes, because an archive may have 200,000 long paths.
    """

    outliner: str | None = None
    _slugs: set[bytes] = set()
    # The number of each path, and the highest number with each beginning of a slug.
    _numbers: dict[bytes, int] = {}
    _last_numbers: dict[bytes, int] = {}

    def slug(self, path: str) -> str | None:
        """Return the slug of a path, or None if all of its characters are invalid."""
        plain = paths.slug(path, self.outliner)
        if plain is None:
            return None
        key = _hash(path)
        if key not in self._numbers:
            self._numbers[key] = self._free_number(plain)
        return _numbered(plain, self._numbers[key])

    def _free_number(self, plain: str) -> int:
        beginning, number = _hash(_beginning(plain)), 1
        # Thousands of files may have the same slug, so the search continues after their numbers.
        while _hash(_numbered(plain, number)) in self._slugs:
            number = self._last_numbers.get(beginning, 1) + 1
            self._last_numbers[beginning] = number
        self._slugs.add(_hash(_numbered(plain, number)))
        return number


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _beginning(slug: str) -> str:
    return slug[: slugs.MAX_CHARS - 8]


def _numbered(slug: str, number: int) -> str:
    return slug if number == 1 else f"{_beginning(slug)}-{number}"


def origin(path: str, slug: str) -> str:
    """Return a client's path as the origin of a page, or "" if its file would be another page."""
    ways = (None, "", path.partition("/")[0] + "/")
    has_path_slug = any(paths.slug(path, outliner) == slug for outliner in ways)
    return path if has_path_slug and is_page(path) and not checked_file(path, b"", _PLAIN).error else ""


def put(writer: PageWriter, batch: Sequence[ArchiveMember], naming: FileNaming) -> Transaction[ImportReport]:
    """Write files as whole pages; unchanged pages are skipped."""
    writer.check()
    report = ImportReport()
    writes = _writes_by_slug(batch, naming, report)
    rows = yield Query(
        "pages_by_slugs", {"account_id": writer.caller.account_id, "slugs": encode_json(list(writes))}
    )
    rows_by_slug = {row["slug"]: row for row in rows}
    plans: list[PageWritePlan] = []
    for slug, (file, is_sent) in writes.items():
        row = rows_by_slug.get(slug)
        current = pages.of(row) if row is not None else None
        deleted = row is not None and row["deleted_at"] is not None
        home = writer.caller.home(current.collections if current is not None and not deleted else ())
        try:
            yield from check_slug(writer, slug, FoundPage(current, deleted) if current is not None else None)
            draft = page_edits.compose(current, is_sent, writer.limits, home)
            writer.check_named(slug, draft.collections)
            draft = yield from membership.settled(writer.caller.account_id, draft)
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


def _writes_by_slug(
    batch: Sequence[ArchiveMember], naming: FileNaming, report: ImportReport
) -> dict[str, tuple[ArchiveMember, PageWrite]]:
    """Return the pages of files by slug; of files with the same path, only the last is used."""
    writes: dict[str, tuple[ArchiveMember, PageWrite]] = {}
    for file in batch:
        slug = naming.slug(file.path)
        if file.error or slug is None:
            report.refuse(file.path, file.error or "has no letter or digit in its name")
            continue
        if slug in writes and writes[slug][0].text == file.text:
            report.skipped += 1
        elif slug in writes:
            report.refuse(file.path, "is in the archive twice: the later one was imported")
        writes[slug] = (file, PageWrite(slug, file.text, whole=True, path=file.path))
    return writes


def text(page: MemoryPage) -> Transaction[str]:
    """Return a page as a file: its text, with front matter for all data that the text does not contain."""
    added_links = yield from links.all_of_calls((page,))
    added_entries = yield from timeline.all_of_calls((page,))
    return _text(page, added_links.get(page.id, ()), added_entries.get(page.id, ()))


def _text(
    page: MemoryPage, added_links: Sequence[tuple[str, str, str]], added_entries: Sequence[TimelineEntry]
) -> str:
    values = dict(page_edits.exported_fields(page))
    if added_links:
        values["links"] = [_without_empty(to=to, type=kind, context=why) for to, kind, why in added_links]
    if added_entries:
        values["timeline"] = [
            _without_empty(date=entry.date, summary=entry.summary, detail=entry.detail, source=entry.source)
            for entry in added_entries
        ]
    return (frontmatter.update(page.head, values) if values else page.head) + page.body


def file_of(caller: Caller, slug: str, as_of: int | None) -> Transaction[tuple[PageGraphView, str]]:
    """Return the page at a slug as a file, now or at an earlier time."""
    view = yield from queries.page(caller, slug, as_of)
    if as_of is not None:
        return view, view.page.head + view.page.body
    return view, (yield from text(view.page))


def version_file(caller: Caller, slug: str, number: int) -> Transaction[str]:
    return (yield from text((yield from queries.version(caller, slug, number))))


def _without_empty(**texts: str) -> Mapping[str, str]:
    return {name: value for name, value in texts.items() if value}


class ExportedPage(msgspec.Struct, frozen=True):
    """A page with the data that its file contains in addition to its text."""

    page: MemoryPage
    links: Sequence[tuple[str, str, str]]
    entries: Sequence[TimelineEntry]
    old_slugs: tuple[str, ...]
    file_id: str = ""

    @property
    def is_only_file(self) -> bool:
        """Whether the file contains all data of the page, so that an import recreates the page."""
        page = self.page
        return bool(self.file_id) and page.type == attachments.PAGE_TYPE and page.version == 1

    def text(self, *, alias: bool = False) -> str:
        """Return the page as a file; exports call this in a thread, as large pages take milliseconds.

        If `alias` is set, a page with a title has its slug as an alias, which links on other pages use.
        """
        text = _leading(_text(self.page, self.links, self.entries), self.old_slugs)
        page = self.page
        is_titled = page.title not in {page.slug, page_edits.default_title(page.slug, page.path)}
        split = markdown.split(text) if alias and is_titled else None
        if split is None or "alias" in split.head:
            return text
        return frontmatter.update(split.head, {"alias": (page.slug,)}) + split.body


def exported(caller: Caller, after: str) -> Transaction[tuple[ExportedPage, ...]]:
    """Return the next pages after a slug, ordered by slug and limited in number and size."""
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
    exported_pages = [pages.of(row) for row in rows]
    old = yield from pages.old_slugs(exported_pages)
    added_links = yield from links.all_of_calls(exported_pages)
    added_entries = yield from timeline.all_of_calls(exported_pages)
    stored = yield from attachments.of_pages(caller.account_id, [page.id for page in exported_pages])
    return tuple(
        ExportedPage(
            page,
            added_links.get(page.id, ()),
            added_entries.get(page.id, ()),
            old.get(page.id, ()),
            stored.get(page.id, ("", ""))[0],
        )
        for page in exported_pages
    )


def _leading(text: str, old: tuple[str, ...]) -> str:
    """Return a page as a file that lists its old slugs, which an import could not determine otherwise."""
    if not old:
        return text
    split = markdown.split(text)
    return frontmatter.update(split.head, {"old_slugs": old}) + split.body


class ImportPaths(msgspec.Struct):
    """Assigns a unique file name to each page of an archive, in an outliner's folders if `logseq` is set."""

    logseq: bool = False
    _used: set[str] = set()

    def of(self, page: MemoryPage) -> str:
        """Return the file of a page: the one from which it was imported, or one named by its slug."""
        path = paths.file(page.slug, "" if self.logseq else None)
        name = (
            page.path if page.path and (not self.logseq or paths.slug(page.path, "") == page.slug) else path
        )
        if self.logseq and not name.startswith(("pages/", "journals/")):
            name = path
        number = 1
        while name in self._used:
            name = path if number == 1 else f"{path[:-3]}-{number}.md"
            number += 1
        self._used.add(name)
        return name

    def of_file(self, page: MemoryPage) -> str:
        path = page.path.removesuffix(".md") if page.path else page.slug
        name = path if path not in self._used else page.slug
        self._used.add(name)
        return name
