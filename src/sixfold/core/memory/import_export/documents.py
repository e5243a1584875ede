"""Import of documents as pages of the memory: one page, or a page per chapter of a long document.

The first page of a document contains the hash of its file, so importing the same file again has no effect,
and a new version replaces the pages of the previous version.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from sixfold import errors
from sixfold.core import documents
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.concurrency.account_limit import AccountLimit
from sixfold.core.database import Database, Query, T, Transaction, encode_json
from sixfold.core.documents import Document, DocumentBlock, DocumentReader
from sixfold.core.files.files import AccountFiles, FileDetails
from sixfold.core.memory import commands, frontmatter, limits, pages, slugs
from sixfold.core.memory.commands import PageWriter, WriteTerms
from sixfold.core.memory.import_export import archive_memory, archive_stream, archives, attachments, files
from sixfold.core.memory.import_export.archive_stream import DocumentMembers
from sixfold.core.memory.import_export.archives import (
    ArchiveMember,
    DocumentFolder,
    DocumentResult,
    ImportReport,
)
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.models import Caller
from sixfold.core.memory.pages import PageFilter
from sixfold.core.provenance.formats import media_types
from sixfold.core.temporary_files import new_path, temporary_path

PAGE_TYPE = "document"
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# A document with at most this many characters becomes one page.
_WHOLE_CHARS = 60_000
# A new page of a long document starts at a chapter after this many characters, and anywhere after the second
# limit.
_MIN_CHARS, _MAX_CHARS = 8_000, 100_000
_MAX_DOCUMENTS = 1_000
_PARTS = 1_000
_SLUG_CHARS = 60
# Maximum length of the slug of a document, which leaves room for the slugs of its parts.
_MAX_SLUG = slugs.MAX_CHARS - _SLUG_CHARS - 8
_CHUNK = 2**20
# Slow servers of one account must not occupy all slots of the fetcher.
MAX_ACCOUNT_FETCHES = 4
# An archive is read for this many times the time limit of one document.
ARCHIVE_READINGS = 60


class DocumentOptions(msgspec.Struct, frozen=True):
    """The target of an import: a folder of slugs, and the tags and collections of the new pages.

    `text` is shown below an image, audio or video file.
    """

    folder: str = ""
    tags: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    text: str = ""


# Fetches an http or https URL into a file; raises `FetchRefused`, `FetchFailed` and `TooLarge`.
FetchDocument = Callable[[str, Path], Awaitable[object]]


class DocumentImports:
    """Imports documents, and archives of documents and Markdown files."""

    def __init__(
        self,
        database: Database,
        page_limits: MemoryLimits,
        reader: DocumentReader,
        scratch: Path,
        fetch: FetchDocument,
        account_files: AccountFiles | None = None,
    ) -> None:
        self._database = database
        self._limits = page_limits
        self._reader = reader
        self._scratch = scratch
        self._fetch = fetch
        self._fetches = AccountLimit(MAX_ACCOUNT_FETCHES, "fetches of documents")
        self._account_files = account_files
        self.memory = archive_memory.limit()

    @property
    def file_bytes(self) -> int:
        """The maximum size of one document in bytes."""
        return self._reader.limits.file_bytes

    async def import_file(
        self, caller: Caller, path: Path, name: str, options: DocumentOptions
    ) -> ImportReport:
        """Import a file, whose type is determined by its name.

        Raises `BadRequest` for an unreadable file; in an archive, such files are errors in the report. Raises
        `Forbidden`, `TooLarge`, `InsufficientCredits`, `EngineUnavailable`.
        """
        writer = PageWriter(caller, self._limits)
        writer.check()
        options = _checked(options)
        prefix = f"{options.folder}/" if options.folder else ""
        if name.lower().endswith(ARCHIVES):
            return await self._take_archive(writer, path, prefix, options)
        member = ArchiveMember(prefix + PurePosixPath(name).name, file=path)
        report = ImportReport()
        if archives.is_page(member.path):
            data = await asyncio.to_thread(_read, path, self._limits.page_bytes + 1)
            member = archives.file(member.path, data, self._limits)
            report = await self._put(files.put(writer, [member], files.FileNaming()))
            if report.errors:
                raise errors.BadRequest("{} {}".format(*report.errors[0]))
            return report
        await self._take_document(writer, member, options, report)
        if report.errors:
            raise errors.BadRequest("{}: {}".format(*report.errors[0]))
        return report

    async def take_sent(
        self, caller: Caller, name: str, options: DocumentOptions, *, url: str = "", content: str = ""
    ) -> ImportReport:
        """Import a file from a URL or from base64 `content`.

        Raises the errors of `import_file`, and `TooManyRequests` above the fetches of an account.
        """
        PageWriter(caller, self._limits).check()
        if url and not url.startswith(("http://", "https://")):
            raise errors.InvalidInput.of("url", "url must begin with http:// or https://")
        async with temporary_path(self._scratch) as path:
            # Documents wait in files until they are read, as each may have 64 MiB.
            if url:
                with self._fetches.running(caller.account_id):
                    await self._fetch(url, path)
            else:
                await asyncio.to_thread(_write_decoded, path, content)
            return await self.import_file(caller, path, name, options)

    async def _take_archive(
        self, writer: PageWriter, path: Path, prefix: str, options: DocumentOptions
    ) -> ImportReport:
        seconds = ARCHIVE_READINGS * self._reader.limits.seconds
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        late = f"The documents of an archive are read for at most {seconds:,} seconds: import it again"

        async def take(member: ArchiveMember, report: ImportReport) -> None:
            try:
                if loop.time() >= end:
                    report.refuse(member.path, late)
                    return
                await self._take_document(writer, member, options, report)
            except (errors.BadRequest, errors.Forbidden, errors.EngineUnavailable) as error:
                report.refuse(member.path, error.message)
            finally:
                if member.file is not None:
                    await asyncio.to_thread(member.file.unlink, missing_ok=True)

        await asyncio.to_thread(self._scratch.mkdir, mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            members = DocumentMembers(DocumentFolder(Path(folder), self.file_bytes), take, prefix)
            return await archive_stream.import_archive(self._database, writer, path, self.memory, members)

    async def _take_document(
        self, writer: PageWriter, member: ArchiveMember, options: DocumentOptions, report: ImportReport
    ) -> None:
        """Import one document, replacing the pages of an earlier version of it."""
        if archives.is_attachment(member.path):
            await self._take_attachment(writer, member, options, report)
            return
        path, slug = _named(member), _slug(member)
        digest = await asyncio.to_thread(_digest, path)
        existing = await self._database.read(_known(writer.caller, slug))
        if existing is not None and frontmatter.value(existing[0], "source_sha256") == digest:
            report.skipped += 1
            _list(report, DocumentResult(member.path, slug, existing[1], 0, changed=False))
            return
        document = await self._reader.read(path, member.path, writer.caller.account_id)
        # The path in the archive: files in different folders may have the same name.
        source = member.path.removeprefix(f"{options.folder}/" if options.folder else "")
        members = await asyncio.to_thread(compose, document, slug, source, digest, options)
        self._check_sizes(members)
        part = await self._write(writer, members, slug, digest)
        report.add(part)
        if not part.errors:
            if source.lower().endswith(".pdf"):
                await self._store(writer.caller, slug, member, attachments.PDF)
            title = document.title or PurePosixPath(source).name
            _list(report, DocumentResult(member.path, slug, title, len(members), changed=True))

    async def _take_attachment(
        self, writer: PageWriter, member: ArchiveMember, options: DocumentOptions, report: ImportReport
    ) -> None:
        """Import an image, audio or video file as a page that shows it; other files are omitted."""
        path, name = _named(member), PurePosixPath(member.path).name
        slug, digest = _slug(member), await asyncio.to_thread(_digest, path)
        head = await asyncio.to_thread(_read, path, media_types.HEAD_BYTES)
        media_type = media_types.sniff(head)
        if self._account_files is None or not attachments.is_stored(media_type):
            report.leave_out(member.path)
            return
        existing = await self._database.read(_known(writer.caller, slug))
        if existing is not None and frontmatter.value(existing[0], "source_sha256") == digest:
            report.skipped += 1
            return
        fields: dict[str, frontmatter.Value] = {
            "title": name,
            "type": attachments.PAGE_TYPE,
            "source_sha256": digest,
            "tags": options.tags,
            "collections": options.collections,
        }
        caption = f"\n{options.text}\n" if options.text else ""
        text = f"{frontmatter.update('', fields)}![[{slug}]]\n{caption}"
        part = await self._write(writer, [ArchiveMember(f"{member.path}.md", text)], slug, digest)
        report.add(part)
        if not part.errors:
            await self._store(writer.caller, slug, member, media_type)

    async def _store(self, caller: Caller, slug: str, member: ArchiveMember, media_type: str) -> None:
        if self._account_files is None or member.file is None:
            return
        details = FileDetails(PurePosixPath(member.path).name, attachments.PURPOSE, media_type)
        path = await asyncio.to_thread(_copied, member.file, self._scratch)
        try:
            file = await self._account_files.create(attachments.tenant(caller), details, path)
            await self._put(attachments.put(caller, slug, file))
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)

    def _check_sizes(self, members: Sequence[ArchiveMember]) -> None:
        for page in members:
            limits.check_size(len(page.text.encode()), self._limits.page_bytes)

    async def _write(
        self, writer: PageWriter, members: Sequence[ArchiveMember], slug: str, digest: str
    ) -> ImportReport:
        """Write the parts in batches; the first page, whose hash completes the import, is written last."""
        report, naming = ImportReport(), files.FileNaming()
        *parts, first = members
        batch: list[ArchiveMember] = []
        for part in parts:
            batch.append(part)
            if sum(len(page.text) for page in batch) > files.BATCH_CHARS or len(batch) >= files.BATCH_FILES:
                report.add(await self._put(files.put(writer, batch, naming)))
                batch = []
        report.add(await self._put(_complete(writer, [*batch, first], naming, (slug, digest))))
        return report

    async def _put(self, transaction: Transaction[T]) -> T:
        """Run a transaction of an import, which may have read a document for minutes."""
        return await self._database.write(access_checks.while_unchanged(transaction))


def _named(member: ArchiveMember) -> Path:
    if member.file is None:
        raise errors.BadRequest(f"{member.path} has no content")
    return member.file


def _slug(member: ArchiveMember) -> str:
    slug = slugs.loosely(slugs.without_ids(member.path))
    if slug is None or len(slug) > _MAX_SLUG:
        raise errors.InvalidInput.of("name", f"A document path must have 1 to {_MAX_SLUG} valid characters")
    return slug


def _copied(source: Path, folder: Path) -> Path:
    """Return a copy of a file, because storing a file moves it."""
    target = new_path(folder)
    shutil.copyfile(source, target)
    return target


def _list(report: ImportReport, document: DocumentResult) -> None:
    if len(report.documents) < _MAX_DOCUMENTS:
        report.documents.append(document)


def _checked(options: DocumentOptions) -> DocumentOptions:
    """Return valid options; raises `InvalidInput`."""
    return DocumentOptions(
        slugs.normalize(options.folder.strip("/"), "folder") if options.folder.strip("/") else "",
        limits.names("tags", options.tags),
        limits.names("collections", options.collections),
        options.text,
    )


def _complete(
    writer: PageWriter, batch: Sequence[ArchiveMember], naming: files.FileNaming, of: tuple[str, str]
) -> Transaction[ImportReport]:
    """Write the last pages of a document, and delete parts that only its previous version had."""
    report = yield from files.put(writer, batch, naming)
    slug, digest = of
    if report.errors:
        return report
    rows = yield from pages.list_rows(writer.caller, PageFilter(type=PAGE_TYPE, prefix=f"{slug}/"), _PARTS)
    slugs_json = encode_json([row["slug"] for row in rows])
    rows_of_slugs = yield Query(
        "pages_by_slugs", {"account_id": writer.caller.account_id, "slugs": slugs_json}
    )
    for row in rows_of_slugs:
        page = pages.of(row)
        if frontmatter.value(page.head, "part_of") == slug and (
            frontmatter.value(page.head, "source_sha256") != digest
        ):
            yield from commands.delete(writer, page.slug, WriteTerms())
            report.updated += 1
    return report


def _known(caller: Caller, slug: str) -> Transaction[tuple[str, str] | None]:
    """Return the front matter and the title of the page at a slug, or None."""
    page = yield from pages.find_exact(caller.account_id, slug)
    if page is None or page.deleted or not caller.sees(page.page.collections):
        return None
    return page.page.head, page.page.title


def compose(
    document: Document, slug: str, source: str, digest: str, options: DocumentOptions
) -> list[ArchiveMember]:
    """Return the pages of a document as files; the first page of the document is the last file.

    `source` is the path of the document in its archive, or else its name.
    """
    title = document.title or PurePosixPath(source).name
    fields: dict[str, frontmatter.Value] = {
        "title": title,
        "type": PAGE_TYPE,
        "source": source,
        "source_sha256": digest,
        "date": document.date,
        "author": document.author,
        "tags": options.tags,
        "collections": options.collections,
    }
    groups = _groups(document.blocks)
    if len(groups) == 1:
        head = {**fields, "pages": _range(document.blocks)}
        intro = f"# {title}\n\n{_byline(source, document.blocks)}\n\n"
        return [_file(slug, head, intro + documents.join(document.blocks))]
    members: list[ArchiveMember] = []
    entries: list[str] = []
    for number, blocks in enumerate(groups, 1):
        chapter = next((block.chapter for block in blocks if block.chapter), "") or f"Part {number}"
        ending = (slugs.loosely(chapter.replace("/", "-")) or "part")[:_SLUG_CHARS].strip("-.") or "part"
        part_slug = f"{slug}/{number:03}-{ending}"
        head = {**fields, "title": f"{title}: {chapter}", "part_of": slug, "chapter": chapter}
        body = f"# {chapter}\n\n{_byline(source, blocks)}\n\n{documents.join(blocks)}"
        members.append(_file(part_slug, {**head, "pages": _range(blocks)}, body))
        span = f" (p. {_range(blocks)})" if _range(blocks) else ""
        entries.append(f"- [[{part_slug}]] {_plain(chapter)}{span}")
    intro = f"# {title}\n\n{_byline(source, document.blocks)}\n\n"
    return [*members, _file(slug, {**fields, "pages": _range(document.blocks)}, intro + "\n".join(entries))]


def _groups(blocks: Sequence[DocumentBlock]) -> list[list[DocumentBlock]]:
    if sum(len(block.text) for block in blocks) <= _WHOLE_CHARS:
        return [list(blocks)]
    groups: list[list[DocumentBlock]] = [[]]
    chars = 0
    for block in blocks:
        if groups[-1] and (chars + len(block.text) > _MAX_CHARS or (block.chapter and chars >= _MIN_CHARS)):
            groups.append([])
            chars = 0
        groups[-1].append(block)
        chars += len(block.text)
    return groups


def _file(slug: str, fields: dict[str, frontmatter.Value], body: str) -> ArchiveMember:
    return ArchiveMember(f"{slug}.md", frontmatter.update("", fields) + body + "\n")


def _byline(source: str, blocks: Sequence[DocumentBlock]) -> str:
    span = _range(blocks)
    return f"Source: {_plain(source)}{f', p. {span}' if span else ''}"


def _range(blocks: Sequence[DocumentBlock]) -> str:
    numbers = [block.page for block in blocks if block.page]
    if not numbers:
        return ""
    return str(numbers[0]) if numbers[0] == numbers[-1] else f"{numbers[0]}-{numbers[-1]}"


def _plain(text: str) -> str:
    """Return a text without link syntax."""
    return text.replace("[[", "[").replace("]]", "]").replace("::", ":")


def _write_decoded(path: Path, content: str) -> None:
    try:
        data = documents.from_base64(content)
    except ValueError as error:
        raise errors.InvalidInput.of("content", "content must be a base64-encoded file") from error
    path.write_bytes(data)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _read(path: Path, max_bytes: int) -> bytes:
    with path.open("rb") as file:
        return file.read(max_bytes)
