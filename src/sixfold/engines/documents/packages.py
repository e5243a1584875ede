"""ZIP packages of DOCX and EPUB files, with limits on their decompressed size."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from sixfold.core.catalog.engines import UnusableInput

_MAX_ENTRIES = 5_000
_MAX_BYTES = 256 * 2**20
_MAX_PART = 64 * 2**20
# Tags and attributes of a file with metadata, such as the list of chapters; parsed, each takes 200 bytes.
_MAX_MARKS = 100_000
# Tags in all parts of a document. Reading this many takes longer than the time limit.
_MAX_TAGS = 2_000_000
_CHUNK_BYTES = 2**20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGED = "The file is damaged and cannot be read."
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    ElementTree.ParseError,
    KeyError,
    ValueError,
    RuntimeError,
)


@contextmanager
def open_package(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a package; raises `UnusableInput` if it is damaged or exceeds a limit."""
    try:
        with zipfile.ZipFile(path) as package:
            _check(package)
            yield package
    except UnusableInput:
        raise
    except _DAMAGE as error:
        raise UnusableInput(_DAMAGED) from error


def _check(package: zipfile.ZipFile) -> None:
    rows = package.infolist()
    if len(rows) > _MAX_ENTRIES:
        raise UnusableInput(f"The file must have at most {_MAX_ENTRIES:,} parts.")
    # The stated sizes can be trusted, because `zipfile` does not read a part beyond its stated size.
    if sum(row.file_size for row in rows) > _MAX_BYTES or any(row.file_size > _MAX_PART for row in rows):
        raise UnusableInput(f"The decompressed file is larger than {_MAX_BYTES >> 20} MiB.")
    if any(row.compress_type not in _METHODS or row.flag_bits & 1 for row in rows):
        raise UnusableInput("The file is encrypted or compressed with an unknown method.")


def refuse_entities(package: zipfile.ZipFile) -> None:
    """Raise `UnusableInput` if a part contains a document type definition: entities expand without limit."""
    for row in package.infolist():
        if row.filename.lower().endswith((".xml", ".rels")):
            with package.open(row) as part:
                if b"<!DOCTYPE" in part.read(4096).upper():
                    raise UnusableInput("The file has a document type definition, which is not supported.")


def check_tags(package: zipfile.ZipFile) -> None:
    """Raise `UnusableInput` if the XML parts have too many tags together, before a reader builds them."""
    count = 0
    for row in package.infolist():
        if row.filename.lower().endswith((".xml", ".rels")):
            with package.open(row) as part:
                while chunk := part.read(_CHUNK_BYTES):
                    count += chunk.count(b"<")
                    if count > _MAX_TAGS:
                        raise UnusableInput(f"The document must have at most {_MAX_TAGS:,} XML tags.")


def xml(package: zipfile.ZipFile, name: str) -> ElementTree.Element:
    """Return the root of a file with metadata; raises `UnusableInput`."""
    data = package.read(name)
    if data.count(b"<") + data.count(b"=") > _MAX_MARKS:
        raise UnusableInput(f"{name} must have at most {_MAX_MARKS:,} XML tags and attributes.")
    if b"<!ENTITY" in data[:65_536].upper():
        raise UnusableInput("The file defines XML entities, which are not supported.")
    return ElementTree.fromstring(data)  # noqa: S314 - without entities, and expat limits their expansion
