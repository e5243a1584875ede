"""Reader of PDF files with pypdf: the text with page numbers and the chapters of the outline."""

from __future__ import annotations

import contextlib
import datetime
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pypdf
import pypdf.errors

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.documents import Document, DocumentBlock
from sixfold.engines.documents import extraction

_MAX_CHAPTERS = 1_000
_UNREADABLE = "The PDF is damaged and cannot be read."
# Exceptions of pypdf for damaged files; an object of the wrong type surfaces as an error of Python.
_DAMAGE = (
    pypdf.errors.PyPdfError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
    OSError,
)


def read(path: Path, max_pages: int, max_chars: int) -> Document:
    """Read a PDF file; raises `UnusableInput`."""
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        with path.open("rb") as file:
            reader = _opened(pypdf.PdfReader(file, strict=False))
            count = len(reader.pages)
            if count > max_pages:
                raise UnusableInput(f"The PDF must have at most {max_pages:,} pages (got {count:,}).")
            titles = _chapters(reader)
            blocks = list(_pages(reader, titles, max_chars))
            title, author, date = _information(reader)
    except _DAMAGE as error:
        raise UnusableInput(_UNREADABLE) from error
    return Document("pdf", title, author, date, count, blocks)


def _opened(reader: pypdf.PdfReader) -> pypdf.PdfReader:
    if reader.is_encrypted and not reader.decrypt(""):
        raise UnusableInput("The PDF is encrypted: remove its password first.")
    return reader


def _pages(reader: pypdf.PdfReader, titles: dict[int, str], max_chars: int) -> Iterator[DocumentBlock]:
    """Yield the pages; a damaged page among readable ones is empty."""
    chars = damaged = 0
    for number, page in enumerate(reader.pages, 1):
        text = ""
        try:
            text = page.extract_text()
        except _DAMAGE:
            damaged += 1
        chars += len(text)
        if chars > max_chars:
            raise UnusableInput(extraction.TOO_LONG.format(max_chars))
        chapter = titles.get(number, "")
        heading = f"## {chapter}\n\n" if chapter and not _begins(text, chapter) else ""
        yield DocumentBlock(heading + _escaped(text), number, chapter)
    if damaged and not chars:
        raise UnusableInput(_UNREADABLE)


def _begins(text: str, chapter: str) -> bool:
    return extraction.line(text).casefold().startswith(chapter.casefold())


def _escaped(text: str) -> str:
    """Escape lines that Markdown would interpret as headings."""
    return "\n".join(f"\\{row}" if row.startswith("#") else row for row in text.split("\n"))


def _chapters(reader: pypdf.PdfReader) -> dict[int, str]:
    """Return the titles of the outline's first level by page number."""
    titles: dict[int, str] = {}
    # The pages of a PDF with a damaged outline can still be read.
    with contextlib.suppress(*_DAMAGE):
        entries = cast("list[Any]", reader.outline)
        for entry in entries[: 2 * _MAX_CHAPTERS]:
            if isinstance(entry, list):
                continue
            number = reader.get_destination_page_number(entry)
            title = extraction.line(str(entry.title))
            if number is not None and number >= 0 and title:
                titles.setdefault(number + 1, title)
    return titles


def _information(reader: pypdf.PdfReader) -> tuple[str, str, str]:
    """Return the title, author and date of the PDF; a missing or damaged value is ""."""
    title = author = date = ""
    with contextlib.suppress(*_DAMAGE):
        information = reader.metadata
        if information is not None:
            title, author = str(information.title or ""), str(information.author or "")
            moment = information.modification_date or information.creation_date
            date = moment.date().isoformat() if isinstance(moment, datetime.datetime) else ""
    return title, author, date
