"""Import of documents of other applications as pages of accounts' memories."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.app import media as app_media
from sixfold.app import memory as app_memory
from sixfold.app import storage
from sixfold.cli import database_access
from sixfold.cli.imports import openwebui_documents
from sixfold.cli.imports.chat_files import ExportedDocument, ReadExport
from sixfold.core.accounts import accounts
from sixfold.core.database import Database
from sixfold.core.memory import frontmatter, pages
from sixfold.core.memory.import_export import archives
from sixfold.core.memory.import_export.documents import DocumentImports, DocumentOptions
from sixfold.core.memory.models import Caller
from sixfold.settings import Settings


class DocumentCounts(msgspec.Struct):
    """The numbers of documents that an import `added`, and that had been imported `before`."""

    added: int = 0
    before: int = 0


async def store(server_settings: Settings, export: ReadExport, step: Callable[[int], None]) -> DocumentCounts:
    """Store the documents of an export; documents that cannot be stored are recorded as omitted."""
    os.umask(database_access.PRIVATE)
    counts = DocumentCounts()
    database = storage.open_database(server_settings)
    try:
        files = app_media.open_files(server_settings, database, storage.open_blobs(server_settings))
        reader = app_media.document_reader(server_settings)
        imports = app_memory.document_imports(server_settings, database, reader, _refuse_urls, files)
        with tempfile.TemporaryDirectory(prefix="sixfold-import-") as scratch:
            for document in export.documents:
                try:
                    is_new = await _store(database, imports, document, Path(scratch))
                except errors.SixfoldError as error:
                    export.omit(document.name, error.message)
                else:
                    counts.added, counts.before = counts.added + is_new, counts.before + (not is_new)
                step(len(document.text) or _size(document))
    finally:
        await database.close()
    return counts


async def _store(
    database: Database, imports: DocumentImports, document: ExportedDocument, scratch: Path
) -> bool:
    """Store one document; return False if it was imported before, even if its page has changed since."""
    account = await database.read(accounts.by_email(document.email))
    caller = Caller(account.id, document.email)
    source, name = document.original, document.name
    options = DocumentOptions(document.folder, (_tag(document),))
    if source is not None and archives.is_attachment(name):
        options = replace(options, text=document.text)
    elif document.text or archives.is_page(name):
        segment = openwebui_documents.page_segment(name)
        source, name = await _page_file(document, scratch), f"{segment}.md"
        slug = f"{document.folder}/{segment}"
        if await database.read(pages.find_exact(caller.account_id, slug)) is not None:
            return False
    assert source is not None  # noqa: S101 - a document has a text or a file
    report = await imports.import_file(caller, source, name, options)
    if report.left_out:
        raise errors.BadRequest("it is not a document, image, audio or video file")
    return bool(report.created + report.updated)


def _size(document: ExportedDocument) -> int:
    return document.original.stat().st_size if document.original is not None else 0


async def _page_file(document: ExportedDocument, scratch: Path) -> Path:
    """Return a Markdown file of the document: its original, or its text with a title."""
    if document.original is not None and not document.text:
        return document.original
    file = scratch / "text.md"
    head = frontmatter.update("", {"title": document.name, "tags": (_tag(document),)})
    await asyncio.to_thread(file.write_text, f"{head}{document.text}\n", "utf-8", "replace")
    return file


def _tag(document: ExportedDocument) -> str:
    """Return the name of the application that the document is from, which is its top-level folder."""
    return document.folder.partition("/")[0]


async def _refuse_urls(url: str, _into: Path) -> object:
    raise errors.BadRequest(f"{url} cannot be imported: an import does not fetch URLs")
