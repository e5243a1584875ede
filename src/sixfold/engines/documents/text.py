"""Reader of plain text and Markdown files."""

from __future__ import annotations

from pathlib import Path

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.documents import Document
from sixfold.engines.documents import extraction

_MARKS_16 = (b"\xff\xfe", b"\xfe\xff")


def read(path: Path, _max_pages: int, max_chars: int) -> Document:
    """Read a text file; raises `UnusableInput`."""
    text = decode(path.read_bytes(), max_chars)
    return Document("text", extraction.first_heading(text), blocks=extraction.chapters(text, max_chars))


def decode(data: bytes, max_chars: int) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark; raises `UnusableInput`."""
    if len(data) > 4 * max_chars:
        raise UnusableInput(extraction.TOO_LONG.format(max_chars))
    try:
        text = data.decode("utf-16" if data[:2] in _MARKS_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnusableInput(extraction.NOT_TEXT) from error
    if "\0" in text:
        raise UnusableInput(extraction.NOT_TEXT)
    return text
