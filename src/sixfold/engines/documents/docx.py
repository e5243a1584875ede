"""Reader of DOCX files: mammoth converts them to HTML, which is converted to Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree
from xml.parsers import expat

import mammoth

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.documents import Document
from sixfold.engines.documents import extraction, packages
from sixfold.engines.documents.markup import HtmlText

_PROPERTIES = "docProps/core.xml"
_DC = "{http://purl.org/dc/elements/1.1/}"
_TERMS = "{http://purl.org/dc/terms/}"
_UNREADABLE = "The DOCX is damaged and cannot be read."


def read(path: Path, _max_pages: int, max_chars: int) -> Document:
    """Read a DOCX file; raises `UnusableInput`."""
    with packages.open_package(path) as package:
        if "word/document.xml" not in package.namelist():
            raise UnusableInput("The file is not a DOCX document: save it as DOCX in Word or LibreOffice.")
        packages.refuse_entities(package)
        packages.check_tags(package)
        properties = packages.xml(package, _PROPERTIES) if _PROPERTIES in package.namelist() else None
    try:
        with path.open("rb") as file:
            # By default, mammoth would embed each image in the HTML.
            result = cast("Any", mammoth).convert_to_html(file, convert_image=lambda _image: [])
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, OSError, expat.ExpatError) as error:
        raise UnusableInput(_UNREADABLE) from error
    html = HtmlText(result.value)
    text = html.text
    return Document(
        "docx",
        _property(properties, f"{_DC}title") or extraction.first_heading(text),
        _property(properties, f"{_DC}creator"),
        extraction.day(
            _property(properties, f"{_TERMS}modified") or _property(properties, f"{_TERMS}created")
        ),
        blocks=extraction.chapters(text, max_chars),
    )


def _property(properties: ElementTree.Element | None, name: str) -> str:
    text = properties.findtext(name) if properties is not None else None
    return (text or "").strip()
