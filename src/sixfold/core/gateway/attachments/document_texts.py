"""Texts of documents in chats, for models whose servers do not read documents."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from pathlib import Path

from sixfold.core import documents
from sixfold.core.documents import DocumentReader
from sixfold.core.temporary_files import temporary_path

_CACHE_CHARS = 32 * 2**20


class DocumentTexts:
    """Reads documents, and caches the latest texts, because agents resend the whole conversation."""

    def __init__(self, reader: DocumentReader, scratch: Path) -> None:
        self._reader = reader
        self._scratch = scratch
        # By the account, hash and kind of the file. With a text of another account, the time of a request
        # would show that the account has the same file.
        self._texts: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self._chars = 0

    @property
    def file_bytes(self) -> int:
        """The maximum size of one document in bytes."""
        return self._reader.limits.file_bytes

    @property
    def max_chars(self) -> int:
        """The maximum number of characters of a document, and of all documents of a request together."""
        return self._reader.limits.chars

    async def text(self, account_id: str, name: str, data: bytes) -> str:
        """Return the text of a document with page marks such as `[p. 12]`.

        Raises the errors of `DocumentReader.read`.
        """
        digest = await asyncio.to_thread(_digest, data)
        key = account_id, digest, documents.kind_of(name)
        text = self._texts.get(key)
        if text is None:
            text = await self._read(account_id, name, data)
            self._keep(key, text)
        else:
            self._texts.move_to_end(key)
        return text

    async def _read(self, account_id: str, name: str, data: bytes) -> str:
        async with temporary_path(self._scratch) as path:
            await asyncio.to_thread(path.write_bytes, data)
            return (await self._reader.read(path, name, account_id)).text()

    def _keep(self, key: tuple[str, str, str], text: str) -> None:
        self._chars += len(text) - len(self._texts.pop(key, ""))
        self._texts[key] = text
        while self._chars > _CACHE_CHARS:
            self._chars -= len(self._texts.popitem(last=False)[1])


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
