"""Documents (PDF, DOCX, HTML, EPUB, text, canvas) as Markdown with page marks, and the port that reads them.

A document is untrusted, so a reader runs in a process with limits. The first line of a page's text is its
mark, such as `[p. 12]`, which searches and language models cite.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

import msgspec

# Kinds of documents by file name extension.
KINDS: Mapping[str, str] = {
    ".pdf": "pdf",
    ".docx": "docx",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".epub": "epub",
    ".canvas": "canvas",
    ".txt": "text",
    ".md": "text",
    ".markdown": "text",
}
MEDIA_TYPES: Mapping[str, str] = {
    "application/pdf": ".pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "text/html": ".html",
    "application/xhtml+xml": ".xhtml",
    "application/epub+zip": ".epub",
    "text/plain": ".txt",
    "text/markdown": ".md",
}
NAME_CHARS = 300
_SLICE = 2**20
_MARK = re.compile(r"^\[p\. (\d{1,6})\]$", re.MULTILINE)
_MARK_START = "\n[p. "


class DocumentBlock(msgspec.Struct):
    """A part of a document, in Markdown.

    `page` is the number of its page, or 0 in a document without pages. `chapter` is the title of the chapter
    that begins here.
    """

    text: str
    page: int = 0
    chapter: str = ""


class Document(msgspec.Struct):
    """The text of a document; fields that it does not state are empty, and `date` is a day in ISO 8601."""

    kind: str
    title: str = ""
    author: str = ""
    date: str = ""
    pages: int = 0
    blocks: list[DocumentBlock] = []

    def text(self) -> str:
        """Return the whole text with the marks of its pages."""
        return join(self.blocks)


class DocumentLimits(msgspec.Struct, frozen=True):
    """Limits on one document, which the operator sets."""

    file_bytes: int = 64 * 2**20
    pages: int = 2_000
    chars: int = 8_000_000
    seconds: int = 60


class DocumentReader(Protocol):
    """Extracts the text of documents in a separate process."""

    limits: DocumentLimits

    async def read(self, path: Path, name: str, account_id: str) -> Document:
        """Return the document in a file.

        Raises `BadRequest` for a file that cannot be read, `TooLarge` over a limit, `TooManyRequests` if too
        many documents of the account are waiting, and `EngineUnavailable` if the libraries are missing.
        """
        ...


def from_base64(text: str) -> bytes:
    """Decode base64 in slices, between which other threads run; raises `ValueError`."""
    slices = (text[start : start + _SLICE] for start in range(0, len(text), _SLICE))
    return b"".join([base64.b64decode(part, validate=True) for part in slices])


def to_base64(data: bytes) -> str:
    """Encode bytes in base64, in slices as in `from_base64`."""
    slices = (data[start : start + 3 * _SLICE // 4] for start in range(0, len(data), 3 * _SLICE // 4))
    return "".join([base64.b64encode(part).decode() for part in slices])


def kind_of(name: str) -> str:
    """Return the kind of document that a file name indicates, or an empty string."""
    return KINDS.get(PurePosixPath(name).suffix.lower(), "")


def join(blocks: list[DocumentBlock]) -> str:
    """Return blocks as one string, with a mark at the start of each page."""
    parts: list[str] = []
    page = 0
    for block in blocks:
        if block.page and block.page != page:
            parts.append(f"[p. {block.page}]")
        page = block.page
        if block.text:
            parts.append(block.text)
    return "\n\n".join(parts)


def page_at(text: str, position: int) -> int:
    """Return the number of the page that contains a position in a text with marks, or 0."""
    start = text.rfind(_MARK_START, 0, position + 1)
    match = _MARK.match(text, start + 1) if start >= 0 else _MARK.match(text)
    return int(match[1]) if match else 0
