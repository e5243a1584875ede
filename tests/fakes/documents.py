"""Documents for import tests, written by libraries: PDF, DOCX, EPUB and HTML."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

import docx
from fpdf import FPDF

EPUB_CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
)


def pdf(
    pages: Sequence[str], *, title: str = "", chapters: Mapping[int, str] | None = None, password: str = ""
) -> bytes:
    """Return a PDF of these pages, with an outline of `chapters` by page number."""
    result = FPDF()
    result.set_font("Helvetica", size=11)
    if title:
        result.set_title(title)
    if password:
        result.set_encryption(owner_password=password, user_password=password)
    for number, text in enumerate(pages, 1):
        result.add_page()
        if chapters and number in chapters:
            result.start_section(chapters[number])
        if text:
            result.multi_cell(0, 6, text)
    return bytes(result.output())


def word(paragraphs: Sequence[tuple[str, str]], *, title: str = "", rows: int = 0) -> bytes:
    """Return a DOCX of paragraphs with their styles, and a table of `rows` rows at its end."""
    result = docx.Document()
    result.core_properties.title = title
    for style, text in paragraphs:
        result.add_paragraph(text, style=style)
    if rows:
        table = result.add_table(rows, 2)
        for number, row in enumerate(table.rows):
            row.cells[0].text, row.cells[1].text = f"row {number}", f"value {number}"
    file = io.BytesIO()
    result.save(file)
    return file.getvalue()


def epub(
    chapters: Sequence[str], *, title: str = "A book", parts: Mapping[str, str | bytes] | None = None
) -> bytes:
    names = [f"c{number}.xhtml" for number in range(len(chapters))]
    items = "".join(f'<item id="{name}" href="{name}"/>' for name in names)
    spine = "".join(f'<itemref idref="{name}"/>' for name in names)
    book = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{title}</dc:title><dc:creator>Bo Berg</dc:creator><dc:date>2020-01-02</dc:date>"
        f"</metadata><manifest>{items}</manifest><spine>{spine}</spine></package>"
    )
    files = {"mimetype": "application/epub+zip", "META-INF/container.xml": EPUB_CONTAINER}
    texts = {f"OEBPS/{name}": text for name, text in zip(names, chapters, strict=True)}
    return pack({**files, "OEBPS/book.opf": book, **texts, **(parts or {})})


def pack(files: Mapping[str, str | bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target.getvalue()
