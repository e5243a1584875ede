"""Conversion of HTML to Markdown: web pages, converted DOCX files, and chapters of EPUB files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import markdownify
from bs4 import BeautifulSoup

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.documents import Document
from sixfold.engines.documents import extraction

_MAX_BYTES = 16 * 2**20
_MAX_DEPTH = 500
_MAX_TAGS = 400_000
_DROPPED = (
    "script",
    "style",
    "noscript",
    "template",
    "nav",
    "aside",
    "iframe",
    "svg",
    "form",
    "button",
    "head",
)
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9:-]*+)[^<>]*?(/?)>")
_VOID = frozenset(
    {
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source"),
        *("track", "wbr", "p", "li", "td", "th", "tr", "dt", "dd", "option"),
    }
)
# Links between the files of an export; all others lose their addresses.
_RELATIVE = re.compile(r"[^:?#()<>\s][^:?#()<>\s]{0,400}\.(?:md|x?html?)(?:#[^()<>\s]*)?", re.IGNORECASE)
_BLOCKS = ("div", "p", "table", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6")
_DATES = ("article:published_time", "datePublished", "date", "dc.date", "dcterms.created", "dcterms.modified")


class HtmlText:
    """The Markdown of an HTML document, and the title, author and date in its head."""

    def __init__(self, markup: bytes | str) -> None:
        _check(markup)
        soup: Any = BeautifulSoup(markup, "html.parser")
        self.title = soup.title.get_text(" ", strip=True) if soup.title is not None else ""
        self.author = _meta(soup, ("author", "dc.creator"))
        self.date = extraction.day(_meta(soup, _DATES))
        for tag in soup(_DROPPED):
            tag.decompose()
        for link in soup("a"):
            if not _RELATIVE.fullmatch(str(link.get("href") or "")) or link.find(_BLOCKS):
                link.unwrap()
        main = soup.find("main") or soup.find("article") or soup.body or soup
        self.text: str = markdownify.MarkdownConverter(
            heading_style="ATX",
            bullets="-",
            strip=["img"],
            autolinks=False,
            escape_asterisks=False,
            escape_underscores=False,
        ).convert_soup(main)


def read(path: Path, _max_pages: int, max_chars: int) -> Document:
    """Read an HTML file; raises `UnusableInput`."""
    html = HtmlText(path.read_bytes())
    title = html.title or extraction.first_heading(html.text)
    blocks = extraction.chapters(html.text, max_chars)
    return Document("html", title, html.author, html.date, blocks=blocks)


def _check(markup: bytes | str) -> None:
    """Raise `UnusableInput` for markup that would become too many or too deeply nested objects."""
    if len(markup) > _MAX_BYTES:
        raise UnusableInput(f"The HTML must be at most {_MAX_BYTES >> 20} MiB.")
    text = markup if isinstance(markup, str) else markup.decode("latin-1")
    depth = 0
    for count, match in enumerate(_TAG.finditer(text)):
        if match[2].lower() not in _VOID and not match[3]:
            depth = max(0, depth - 1) if match[1] else depth + 1
        if depth > _MAX_DEPTH:
            raise UnusableInput("The document is nested too deeply to read.")
        if count >= _MAX_TAGS:
            raise UnusableInput(f"The document must have at most {_MAX_TAGS:,} elements.")


def _meta(soup: Any, names: tuple[str, ...]) -> str:
    for name in names:
        tag = soup.find("meta", attrs={"name": name}) or soup.find("meta", attrs={"property": name})
        if tag is not None and tag.get("content"):
            return str(tag["content"])
    return ""
