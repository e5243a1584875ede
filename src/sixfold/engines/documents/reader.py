"""The document reader of a server: one process per document, a few at a time."""

from __future__ import annotations

import asyncio
import importlib.util
from collections import Counter
from pathlib import Path, PurePosixPath

import msgspec

from sixfold import errors
from sixfold.core import documents
from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.documents import Document, DocumentLimits
from sixfold.engines import limited_process
from sixfold.engines.documents import extraction, text

_EXTRACT = "sixfold.engines.documents.extraction:extract"
# The address space of a process that reads a document.
_MEMORY = 1536 * 2**20
_AT_ONCE = 2
MAX_WAITING = 16
_SMALL_BYTES = 64 * 1024
_LIBRARIES = {
    "pdf": ("pypdf",),
    "docx": ("mammoth", "markdownify", "bs4"),
    "html": ("markdownify", "bs4"),
    "epub": ("markdownify", "bs4"),
    "text": (),
    "canvas": (),
}


class ProcessReader:
    """Implements `documents.DocumentReader`."""

    def __init__(self, limits: DocumentLimits) -> None:
        self.limits = limits
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._waiting = Counter[str]()
        self._turns: dict[str, asyncio.Lock] = {}

    async def read(self, path: Path, name: str, account_id: str) -> Document:
        """Read a document from a file; the extension of `name` determines its type."""
        kind = documents.kind_of(name)
        if not kind:
            kinds = ", ".join(sorted(documents.KINDS))
            raise errors.BadRequest(f"{_shown(name)} is not a document that can be read (supported: {kinds})")
        size = (await asyncio.to_thread(path.stat)).st_size
        if size > self.limits.file_bytes:
            raise errors.TooLarge(
                f"{_shown(name)} must be at most {self.limits.file_bytes:,} bytes (got {size:,})"
            )
        if any(importlib.util.find_spec(library) is None for library in _LIBRARIES[kind]):
            raise errors.EngineUnavailable(
                f"Reading {kind.upper()} documents requires the `documents` extra: "
                "run pip install 'sixfold[documents]'"
            )
        if self._waiting[account_id] >= MAX_WAITING:
            raise errors.TooManyRequests(
                f"An account can read at most {MAX_WAITING} documents at a time: retry later",
                retry_after=5,
            )
        self._waiting[account_id] += 1
        turn = self._turns.setdefault(account_id, asyncio.Lock())
        try:
            # One document at a time for each account, so that a single account cannot occupy all slots.
            async with turn, self._slots:
                return await asyncio.to_thread(self._read, path, kind, size)
        except UnusableInput as error:
            raise errors.BadRequest(f"{_shown(name)}: {error}") from error
        finally:
            self._waiting[account_id] -= 1
            if not self._waiting[account_id]:
                del self._waiting[account_id], self._turns[account_id]

    def _read(self, path: Path, kind: str, size: int) -> Document:
        limits = self.limits
        # A regular expression over a long text would hold the interpreter's lock.
        if kind == "text" and size <= _SMALL_BYTES:
            return extraction.finish(text.read(path, limits.pages, limits.chars), limits.chars)
        unreadable = f"Reading it took more than {limits.seconds} seconds, or too much memory."
        arguments = (str(path), kind, limits.pages, limits.chars)
        fields = limited_process.call(_EXTRACT, _MEMORY, limits.seconds, unreadable, *arguments)
        return msgspec.convert(fields, Document)


def _shown(name: str) -> str:
    return PurePosixPath(name).name[: documents.NAME_CHARS] or "The file"
