"""Template filters of the memory's pages: relative times, snippets, links and score explanations."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from sixfold.core.clock import DAY_US, HOUR_US, SECOND_US, rfc3339
from sixfold.core.memory import slugs
from sixfold.core.memory.import_export import attachments
from sixfold.core.memory.indexing import weights
from sixfold.core.memory.search import snippets
from sixfold.ui.memory.markdown import page_path

_MINUTE_US = 60 * SECOND_US
# Characters of the text that is read for an excerpt, and of the excerpt.
EXCERPT_SOURCE_CHARS, _EXCERPT_CHARS = 4000, 200
_INLINE_LINK = re.compile(r"!?\[([^\[\]]{0,200})\]\([^()\s]{0,500}\)")
_WIKI_LINK = re.compile(r"!?\[\[(?:[^\[\]|]{0,200}\|)?([^\[\]|]{0,200})\]\]")
_MARKS = re.compile(r"\[\^[^\[\]\s]{1,100}\]|[*`#>|]+|(?<!\w)_+|_+(?!\w)")
_FILE_PATHS = ("/media/", "/uploads/")
_OWN_MARKS = f"[{snippets.OPEN}{snippets.CLOSE}]*"
_TABLE_CELLS = re.compile(r"\s+(?:\|[\s:-]*)*\|\s+")
_SYNTAX = re.compile(
    r"!?\[\[[^\[\]|]{1,200}\|(?=[^\[\]]{1,200}\]\])|!?\[\[|\]\]|\*\*|__|==|`+"
    r"|(?<!\S)\[[ xX]\](?=\s)|(?<!\S)#{1,6}(?=\s)|(?<!\S)[-*+>](?=\s)"
)
# Smaller parts of a score are not shown.
_MIN_PART = 0.005


def ago(epoch_us: int, now_us: int) -> Markup:
    """Return a relative time, with the exact time as a tooltip."""
    exact = rfc3339(epoch_us) or ""
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact, exact.replace("T", " ").partition(".")[0] + " UTC", _relative_time(epoch_us, now_us)
    )


def _relative_time(epoch_us: int, now_us: int) -> str:
    elapsed = now_us - epoch_us
    if elapsed < _MINUTE_US:
        return "just now"
    for unit, name, limit in ((_MINUTE_US, "minute", 60), (HOUR_US, "hour", 24), (DAY_US, "day", 7)):
        count = elapsed // unit
        if count < limit:
            return f"{count} {name}{'' if count == 1 else 's'} ago"
    day = datetime.fromtimestamp(epoch_us / SECOND_US, UTC)
    return f"{day.day} {day:%B %Y}"


def snippet(text: str, title: str) -> Markup:
    """Return a snippet as HTML with matches marked, without Markdown syntax and the page's title."""
    text = _TABLE_CELLS.sub(" · ", _SYNTAX.sub("", text).strip())
    match = re.match(_OWN_MARKS + _OWN_MARKS.join(map(re.escape, title)) + r"[»\s]+", text) if title else None
    plain = html.escape(text[match.end() :] if match is not None else text, quote=False)
    return Markup(plain.replace(snippets.OPEN, "<mark>").replace(snippets.CLOSE, "</mark>"))  # noqa: S704 - escaped one line above; the marks are ours


def excerpt(text: str) -> str:
    """Return the beginning of a Markdown text in one line, without the URLs of files."""
    links = _WIKI_LINK.sub(r"\1", _INLINE_LINK.sub(r"\1", text[:EXCERPT_SOURCE_CHARS]))
    words = _MARKS.sub("", links).split()
    return " ".join(word for word in words if not any(path in word for path in _FILE_PATHS))[:_EXCERPT_CHARS]


def why(explain: Mapping[str, Any] | None) -> list[tuple[str, float, float]]:
    """Return the parts of a score as (description, value, fraction of the largest part), the largest first.

    `explain` also contains fields that are not parts of the score; they are objects or booleans.
    """
    parts = [
        (weights.LABELS.get(name, name.replace("_", " ")), float(value))
        for name, value in (explain or {}).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= _MIN_PART
    ]
    parts.sort(key=lambda part: -part[1])
    return [(name, value, value / parts[0][1]) for name, value in parts]


def words(kind: str) -> str:
    """Return a link type as words: `works_at` becomes `works at`."""
    return kind.replace("_", " ")


def crumbs(slug: str) -> list[tuple[str, str]]:
    """Return the folders above a slug as (name, prefix)."""
    parts = slug.split("/")[:-1]
    return [(part, "/".join(parts[: number + 1]) + "/") for number, part in enumerate(parts)]


def browse(query: Mapping[str, str | int | None], base: str = "/memory") -> str:
    """Return the URL path of a list of pages."""
    encoded = urlencode({name: value for name, value in query.items() if value not in (None, "")})
    return f"{base}?{encoded}" if encoded else base


@pass_context
def _browse(context: Context, query: Mapping[str, str | int | None]) -> str:
    return browse(query, context["user"].memory_path)


@pass_context
def _page_path(context: Context, slug: str, action: str = "") -> str:
    return page_path(slug, action, context["user"].memory_path)


def author(name: str) -> str:
    """Return the display name of an author: an e-mail address, or `agent` for a key."""
    return f"agent {name[-6:]}" if name.startswith("key_") else name


FILTERS: Mapping[str, Any] = {
    "ago": ago,
    "browse": _browse,
    "why_left_out": attachments.why_left_out,
    "snippet": snippet,
    "why": why,
    "words": words,
    "crumbs": crumbs,
    "page_path": _page_path,
    "name_of": slugs.name,
    "author": author,
}
