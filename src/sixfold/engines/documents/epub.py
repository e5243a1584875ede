"""Reader of EPUB files: the chapters of the spine are read as HTML."""

from __future__ import annotations

import posixpath
import zipfile
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.documents import Document, DocumentBlock
from sixfold.engines.documents import extraction, packages
from sixfold.engines.documents.markup import HtmlText

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_ROOT_FILE = ".//{*}rootfile"
_DC = "{http://purl.org/dc/elements/1.1/}"


def read(path: Path, max_pages: int, max_chars: int) -> Document:
    """Read an EPUB file; raises `UnusableInput`."""
    with packages.open_package(path) as package:
        root = packages.xml(package, _CONTAINER).find(_ROOT_FILE)
        if root is None or not (name := root.get("full-path")):
            raise UnusableInput("The EPUB does not contain a package document.")
        book = packages.xml(package, name)
        spine = _spine(book, posixpath.dirname(name))
        if len(spine) > max_pages:
            raise UnusableInput(f"The EPUB must have at most {max_pages:,} chapters (got {len(spine):,}).")
        _check_encryption(package, spine)
        blocks = _chapters(package, spine, max_chars)
    return Document(
        "epub",
        _stated(book, "title"),
        _stated(book, "creator"),
        extraction.day(_stated(book, "date")),
        blocks=blocks,
    )


def _spine(book: ElementTree.Element, folder: str) -> list[str]:
    """Return the files of the chapters in reading order."""
    files = {item.get("id"): item.get("href") or "" for item in book.iterfind(".//{*}manifest/{*}item")}
    rows = book.iterfind(".//{*}spine/{*}itemref")
    hrefs = [files.get(row.get("idref")) or "" for row in rows if row.get("linear") != "no"]
    return [posixpath.normpath(posixpath.join(folder, unquote(href))) for href in hrefs if href]


def _check_encryption(package: zipfile.ZipFile, spine: list[str]) -> None:
    """Raise `UnusableInput` for encrypted chapters; encrypted fonts are allowed."""
    if _ENCRYPTION not in package.namelist():
        return
    rows = packages.xml(package, _ENCRYPTION).iterfind(".//{*}CipherReference")
    if {unquote(row.get("URI") or "") for row in rows} & set(spine):
        raise UnusableInput("The EPUB is encrypted (DRM) and cannot be read.")


def _chapters(package: zipfile.ZipFile, spine: list[str], max_chars: int) -> list[DocumentBlock]:
    blocks: list[DocumentBlock] = []
    chars = 0
    for file in spine:
        html = HtmlText(package.read(file))
        chars += len(html.text)
        if chars > max_chars:
            raise UnusableInput(extraction.TOO_LONG.format(max_chars))
        if html.text.strip():
            title = extraction.first_heading(html.text) or html.title
            blocks.append(DocumentBlock(html.text, chapter=extraction.line(title)))
    return blocks


def _stated(book: ElementTree.Element, name: str) -> str:
    return (book.findtext(f".//{_DC}{name}") or "").strip()
