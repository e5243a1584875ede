"""Text extraction from one untrusted document, in a process with limits on memory and time."""

from __future__ import annotations

import datetime
import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.documents import Document, DocumentBlock

# Longer blocks are split, because each block must fit into a page of the memory.
BLOCK_CHARS = 50_000
# Headings after these do not begin a chapter: two million empty chapters would take 700 MB of memory.
MAX_CHAPTERS = 2_000
TITLE_CHARS = 300
NOT_TEXT = "The file is not text in UTF-8."
TOO_LONG = "The document has more than {:,} characters of text."
_READERS: Mapping[str, str] = {
    "pdf": "pdf",
    "docx": "docx",
    "html": "markup",
    "epub": "epub",
    "text": "text",
    "canvas": "canvas",
}
_SPACE = re.compile(r"\s+")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_BLANK_LINES = re.compile(r"\n{3,}")
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r"^\s{0,3}(```|~~~)")
# A line like a page mark of `core.documents`, which must be escaped.
_MARK = re.compile(r"^\[p\. (\d+)\]$", re.MULTILINE)


def extract(path: str, kind: str, max_pages: int, max_chars: int) -> dict[str, Any]:
    """Read a document and return it as built-in types; raises `UnusableInput` with the reason."""
    reader: Any = importlib.import_module(f"sixfold.engines.documents.{_READERS[kind]}")
    try:
        document: Document = reader.read(Path(path), max_pages, max_chars)
    except RecursionError as error:
        raise UnusableInput("The document is nested too deeply to read.") from error
    except MemoryError as error:
        raise UnusableInput(
            "The document needs more memory than is available to read it: split it into smaller documents."
        ) from error
    return msgspec.to_builtins(finish(document, max_chars))


def finish(document: Document, max_chars: int) -> Document:
    """Clean the text of a document and split it into blocks of limited size; raises `UnusableInput`."""
    blocks = [part for block in document.blocks for part in _split(block)]
    if sum(len(block.text) for block in blocks) > max_chars:
        raise UnusableInput(TOO_LONG.format(max_chars))
    if not any(block.text for block in blocks):
        raise UnusableInput(
            "The document does not contain text: run text recognition on scanned pages first."
        )
    document.blocks = blocks
    document.title, document.author = line(document.title), line(document.author)
    return document


def line(text: str) -> str:
    """Return the text as a single line of at most `TITLE_CHARS` characters."""
    return _SPACE.sub(" ", _CONTROL.sub(" ", text[: 4 * TITLE_CHARS])).strip()[:TITLE_CHARS]


def day(text: str) -> str:
    """Return the date of an ISO 8601 date or time, or "" if `text` is neither."""
    try:
        return datetime.date.fromisoformat(text.strip()[:10]).isoformat()
    except ValueError:
        return ""


def clean(text: str) -> str:
    """Remove control characters, trailing spaces and repeated empty lines, and escape page marks."""
    plain = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    plain = _MARK.sub(r"\\[p. \1]", plain)
    # A regular expression would search the end of each run of spaces from each of its characters.
    rows = "\n".join(row.rstrip(" \t") for row in plain.split("\n"))
    return _BLANK_LINES.sub("\n\n", rows).strip("\n")


def chapters(text: str, max_chars: int) -> list[DocumentBlock]:
    """Split Markdown at the headings of the highest level that occurs more than once, and at higher ones.

    At most `MAX_CHAPTERS` headings begin a chapter.
    """
    if len(text) > max_chars:
        raise UnusableInput(TOO_LONG.format(max_chars))
    headings = list(_headings(text))
    levels = [level for _, level, _ in headings]
    top = next((level for level in range(1, 7) if levels.count(level) > 1), 0)
    starts = [(at, title) for at, level, title in headings if level <= top][:MAX_CHAPTERS]
    edges = [0, *(at for at, _ in starts), len(text)]
    titles = ["", *(title for _, title in starts)]
    blocks = [
        DocumentBlock(text[begin:end], chapter=line(title))
        for begin, end, title in zip(edges, edges[1:], titles, strict=False)
    ]
    return [block for block in blocks if block.text.strip()]


def first_heading(text: str) -> str:
    """Return the title of the first heading in Markdown, or "" without headings."""
    return next((title for _, _, title in _headings(text)), "")


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the position, level and title of each heading outside of code blocks."""
    position, in_code = 0, False
    for row in text.splitlines(keepends=True):
        if _FENCE.match(row):
            in_code = not in_code
        elif not in_code and row.startswith("#") and (match := _HEADING.match(row[:1000].rstrip())):
            yield position, len(match[1]), match[2].rstrip(" \t#") or match[2][0]
        position += len(row)


def _split(block: DocumentBlock) -> Iterator[DocumentBlock]:
    text, chapter = clean(block.text), block.chapter
    while len(text) > BLOCK_CHARS:
        cuts = (text.rfind(sign, BLOCK_CHARS // 2, BLOCK_CHARS) for sign in ("\n\n", "\n", " "))
        cut = next((at for at in cuts if at > 0), BLOCK_CHARS)
        yield DocumentBlock(text[:cut].rstrip(), block.page, chapter)
        text, chapter = text[cut:].lstrip("\n "), ""
    yield DocumentBlock(text, block.page, chapter)
