"""Parsing of the Markdown of pages: front matter, headings, code, links and timeline.

Parsing never fails: malformed markup is plain text. Code and headings follow CommonMark, and each pass takes
linear time.
"""

from __future__ import annotations

import contextlib
import itertools
import posixpath
import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

import msgspec

from sixfold import errors
from sixfold.core.memory import frontmatter, limits, slugs
from sixfold.core.memory.models import LINK_TYPE, TimelineEntry

MAX_HEADING = 500
MAX_LEVEL = 6
_FENCE = re.compile(
    r"^(?P<lead>[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]++)?)(?P<mark>`{3,}+(?![^\n]*`)|~{3,}+)(?P<info>[^\n]*)",
    re.MULTILINE,
)
# Characters that are searched for code in one call.
_PIECE_CHARS = 2**16
_CODE = re.compile(r"(?<!`)(`+)(?!`)([^\n]{0,1000}?[^`\n])\1(?!`)")
_HEADING = re.compile(
    r"^\ufeff? {0,3}(?:(?P<marks>#{1,6})[ \t]+(?P<text>[^\n]*)"
    r"|(?<![^\r\n]\n)(?<![^\n]\r\n)(?!\d{1,9}[.)] )(?P<over>[^\s#>|*+-][^\n]*)\n"
    r" {0,3}(?P<rule>=++|--++)[ \t]*\r?$)\n?",
    re.MULTILINE,
)
_CLOSING = re.compile(r"(?:^|[ \t]+)#+$")
# Code is skipped, because marks in code do not have a meaning.
_MARKED = re.compile(
    r"`++[^`]++`++"
    r"|(?P<mark>\*{1,3}+|~~)(?=\S)(?P<strong>(?:`[^`]*`|[^*~`])+)(?<=\S)(?P=mark)"
    r"|(?<!\w)(?P<line>_{1,3})(?=\S)(?P<soft>(?:`[^`]*`|[^_`])+)(?<=\S)(?P=line)(?!\w)"
    r"|!?\[(?P<label>[^\[\]]*)\]\([^()]*\)"
)
_TICKED = re.compile(r"(`+)[ ]?([^`]+?)[ ]?\1")
# Maximum nesting depth of marks that is resolved.
_MAX_MARK_DEPTH = 3
MAX_LINKS = 2_000
_MAX_MARKS = 20_000
MAX_CONTEXT = 240
# Two signs on one line, or on separate lines around a block.
_COMMENT = re.compile(r"%%[^%]*(?:%(?!%)[^%]*)*%%")
# As in Obsidian: at least one character other than a digit, after a space or at the start of a line.
TAG = re.compile(r"(?<!\S)#(?=[\w/-]*[^\W\d])([\w/-]{1,100})(?![\w/#-])")
_TASK = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[([ xX])\](?=[ \t])")
_WIKI = re.compile(r"\[\[([^\[\]\n]{1,500})\]\]")
_FILE_LINK = re.compile(
    r"(?<!!)\[[^\[\]\n]{0,300}\]\(<?([^()<>\n]{1,500}?\.(?:md|x?html?))(?:#[^()<>\s]*)?>?\)", re.IGNORECASE
)
_TYPED_LINE = re.compile(r"[ \t]*[-*+][ \t]+([^\W\d][\w-]{0,63})[ \t]+$")
_TYPED_FIELD = re.compile(
    r"[ \t]*(?:[-*+][ \t]+)?([^\W\d][\w-]{0,63})::[ \t]*(?:\[\[[^\[\]\n]{1,500}\]\][ \t,;]*)*"
)
_MAX_LEAD = 2_000
_TYPED_TEXT = re.compile(r"\s*([^\W\d][\w-]{0,63})\s*::\s*(.+)$")
_DATED = re.compile(
    r"^[ \t]*[-*+][ \t]+\*\*(\d{4}(?:-\d{2}(?:-\d{2})?)?)\*\*[ \t]*[|:—–-]*[ \t]*([^\n]{1,2000})",
    re.MULTILINE,
)
_DASH = re.compile(r" [—–] ")
_ATTACHMENT = re.compile(r"\.(?!md$)[a-z0-9]{2,6}$", re.IGNORECASE)


class WrittenLink(msgspec.Struct, frozen=True):
    """A link in a body: its slug, its type, and its line."""

    target: str
    type: str
    context: str


class MarkdownText(msgspec.Struct, frozen=True):
    """A Markdown text, divided into front matter and body; `head + body` is the text."""

    head: str
    body: str
    fields: frontmatter.FrontMatter


def split(text: str) -> MarkdownText:
    """Separate the front matter from the body; an invalid front matter remains in the body."""
    head = frontmatter.block(text)
    if head:
        fields = frontmatter.read(head)
        if fields is not None:
            return MarkdownText(head, text[len(head) :], fields)
    return MarkdownText("", text, frontmatter.properties(text))


def first_heading(body: str, max_level: int = MAX_LEVEL) -> str:
    """Return the first heading without the marks of links, code and emphasis.

    Returns an empty string if there is none, or if its level is greater than `max_level`.
    """
    first = next(headings(body), None)
    return label(first.text) if first is not None and first.level <= max_level else ""


def label(text: str) -> str:
    """Return a line without the marks of links, code and emphasis."""
    return plain_text(_WIKI.sub(_label_of, text))


def _label_of(match: re.Match[str]) -> str:
    target, bar, text = match[1].partition("|")
    return text if bar else target


def links(body: str, slug: str = "", head: str = "") -> tuple[WrittenLink, ...]:
    """Return the links of a body and its head, each target and type once, except in code.

    Only the first 20,000 links of a text are read.
    """
    unique: dict[tuple[str, str], WrittenLink] = {}
    body_links = _links(body, without_code(body), slugs.parent(slug)) if "](" in body or "[[" in body else ()
    for link in itertools.chain(body_links, _head_links(head) if "[[" in head else ()):
        unique.setdefault((link.target, link.type), link)
        if len(unique) >= MAX_LINKS:
            break
    return tuple(unique.values())


def _links(body: str, text: str, folder: str) -> Iterator[WrittenLink]:
    """Yield the links of `text`, the body with its code blanked out, with context from `body`."""
    for match in itertools.islice(_WIKI.finditer(text), _MAX_MARKS):
        wiki_link = _wiki(text, match)
        if wiki_link is not None:
            yield WrittenLink(*wiki_link, _line(body, match.start(), match.end()))
    for match in itertools.islice(_FILE_LINK.finditer(text) if "](" in text else (), _MAX_MARKS):
        target = file_target(match[1], folder)
        if target is not None:
            yield WrittenLink(target, LINK_TYPE, _line(body, match.start(), match.end()))


def _head_links(head: str) -> Iterator[WrittenLink]:
    """Yield the links in fields such as `owner: "[[people/ann]]"`, whose keys are the types."""
    key = ""
    for line in head.splitlines():
        key = frontmatter.key_of(line) or key
        kind = _kind(limits.loose_link_type(key))
        for match in _WIKI.finditer(line) if not line.lstrip().startswith("#") else ():
            reference = parse_reference(match[1])
            if reference is not None:
                yield WrittenLink(
                    reference.target, reference.type or kind, _line(line, match.start(), match.end())
                )


def _kind(key: str) -> str:
    """Return the link type of a field: its key, unless the key describes the page itself."""
    return LINK_TYPE if not key or key in frontmatter.OWN else key


class NamedReference(msgspec.Struct, frozen=True):
    """The content of `[[…]]`: the name, the slug to which it refers, its type (or ""), and its label."""

    name: str
    target: str
    type: str
    text: str


def parse_reference(inside: str) -> NamedReference | None:
    """Parse the content of double brackets; return None if it does not contain a name."""
    type_match = _TYPED_TEXT.fullmatch(inside) if "::" in inside else None
    whole, _, text = (type_match[2] if type_match is not None else inside).partition("|")
    # In a table, the bar of a link is escaped.
    name = whole.removesuffix("\\").partition("#")[0].partition("^")[0].strip()
    target = slugs.loosely(name[:-3] if name.lower().endswith(".md") else name) if name else None
    if target is None:
        return None
    return NamedReference(name, target, type_match[1].lower() if type_match is not None else "", text.strip())


def _wiki(text: str, match: re.Match[str]) -> tuple[str, str] | None:
    reference = parse_reference(match[1])
    at = match.start()
    if (
        reference is None
        or (text[at - 1 : at] == "!" and _ATTACHMENT.search(reference.name))
        or _escaped(text, at)
    ):
        return None
    if reference.type:
        return reference.target, reference.type
    least = max(0, at - _MAX_LEAD)
    start = max(text.rfind("\n", least, at) + 1, least)
    before = _TYPED_LINE.fullmatch(text, start, at)
    if before is not None:
        return reference.target, before[1].lower()
    field = _TYPED_FIELD.fullmatch(text, start, at)
    return reference.target, _kind(field[1].lower()) if field is not None else LINK_TYPE


def _escaped(text: str, at: int) -> bool:
    return text[at - 1 : at] == "\\" and text[at - 2 : at] != "\\\\"


def file_target(path: str, folder: str) -> str | None:
    """Return the slug of a relative link to a Markdown or HTML file, or None for other links."""
    if ":" in path or path.startswith("//"):
        return None
    path = slugs.without_ids(unquote(path))
    target = path if path.startswith("/") else posixpath.join(folder, path)
    plain = posixpath.normpath(target.lstrip("/"))
    if plain.startswith(".."):
        return None
    # The slug of a document includes its file name extension, the slug of a page does not.
    return slugs.loosely(plain[:-3] if plain.lower().endswith(".md") else plain)


def _line(text: str, start: int, end: int) -> str:
    """Return the line around a link, or the nearest part of a long line."""
    # The search is limited, because a text of one line would otherwise be scanned completely for each of its
    # links.
    earliest, latest = max(0, start - MAX_CONTEXT - 1), min(len(text), end + MAX_CONTEXT + 1)
    first = max(text.rfind("\n", earliest, start) + 1, earliest)
    last = text.find("\n", end, latest)
    last = latest if last < 0 else last
    if last - first > MAX_CONTEXT:
        margin = max(0, MAX_CONTEXT - (end - start)) // 2
        first, last = max(first, start - margin), min(last, end + margin)
    return text[first:last].strip()[:MAX_CONTEXT]


def timeline(body: str) -> tuple[TimelineEntry, ...]:
    """Return the unique lines `- **2026-11-20** | source — summary` of a body that have a valid date."""
    if "**" not in body:
        return ()
    entries: dict[TimelineEntry, None] = {}
    for match in _DATED.finditer(without_code(body)):
        parts = _DASH.split(match[2].strip(), maxsplit=1)
        source = parts[0].strip() if len(parts) == 2 else ""
        with contextlib.suppress(errors.BadRequest):
            entries[TimelineEntry(limits.date(match[1]), parts[-1].strip(), "", source)] = None
        if len(entries) >= MAX_LINKS:
            break
    return tuple(entries)


class HeadingBlock(msgspec.Struct, frozen=True):
    """A heading: its level (1 to 6), its text as written, and its position in the body."""

    level: int
    text: str
    start: int
    end: int


def headings(body: str) -> Iterator[HeadingBlock]:
    """Yield all headings in order, both `# ATX` and underlined headings, except in fenced code."""
    for match in _HEADING.finditer(without_fences(body)):
        level = len(match["marks"]) if match["marks"] else 1 + match["rule"].startswith("-")
        text = _CLOSING.sub("", (match["over"] or match["text"])[:MAX_HEADING].strip())
        if text:
            yield HeadingBlock(level, text, match.start(), match.end())


def plain_text(text: str) -> str:
    """Return the text of a heading without the marks of links, emphasis and code."""
    for _ in range(_MAX_MARK_DEPTH):
        text, changed = _MARKED.subn(_within, text)
        if not changed:
            break
    return _TICKED.sub(r"\2", text).strip()


def _within(match: re.Match[str]) -> str:
    return match[match.lastgroup or 0]


def without_code(body: str) -> str:
    """Return the body with code replaced by spaces, so that all other characters keep their positions."""
    body = without_fences(body)
    if "`" not in body:
        return body
    return "".join(_CODE.sub(_blank, piece) for piece in _pieces(body))


def _pieces(body: str) -> Iterator[str]:
    """Yield a text in pieces, if possible of whole lines; one call for 1 MB would block all threads."""
    start = 0
    while start < len(body):
        end = body.rfind("\n", start, start + _PIECE_CHARS) + 1 or start + _PIECE_CHARS
        yield body[start:end]
        start = end


def without_comments(body: str) -> str:
    """Return the body without Obsidian's comments (`%%private%%`), which are only for the writer.

    Line breaks in comments are kept, so that line numbers do not change.
    """
    return _replace_comments(body, lambda match: "\n" * match[0].count("\n"))


def blank_comments(body: str) -> str:
    """Return the body with spaces for comments, so that all other characters keep their positions."""
    return _replace_comments(body, _blank)


def _replace_comments(body: str, replacement: Callable[[re.Match[str]], str]) -> str:
    if "%%" not in body:
        return body
    parts: list[str] = []
    end = 0
    for match in _COMMENT.finditer(without_code(body)):
        parts.append(body[end : match.start()] + replacement(match))
        end = match.end()
    return "".join((*parts, body[end:]))


def tags(body: str) -> tuple[str, ...]:
    """Return the tags that a body contains as `#tag`, each once, except in code and comments."""
    if "#" not in body or TAG.search(body) is None:
        return ()
    names = dict.fromkeys(match[1] for match in TAG.finditer(without_comments(without_code(body))))
    return tuple(itertools.islice(names, limits.TAGS))


def toggle_task(line: str) -> str | None:
    """Return a line with the checkbox of its task toggled, or None if the line is not a task."""
    match = _TASK.match(line)
    if match is None:
        return None
    return f"{line[: match.start(1)]}{'x' if match[1] == ' ' else ' '}{line[match.end(1) :]}"


def without_fences(body: str) -> str:
    """Replace fenced code with spaces, like `without_code`."""
    if "```" not in body and "~~~" not in body:
        return body
    parts: list[str] = []
    end = 0
    for start, stop in _fences(body):
        parts += body[end:start], _blank_out(body[start:stop])
        end = stop
    return "".join((*parts, body[end:]))


def _fences(body: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of fenced code; an unclosed fence extends to the end.

    In a list or quotation, which ends sooner, an unclosed fence ends at the next fence with less indentation.
    """
    fence: re.Match[str] | None = None
    for line in _FENCE.finditer(body):
        if fence is None or (_is_inside(fence["lead"]) and len(line["lead"]) < len(fence["lead"])):
            fence = line
        elif line["mark"].startswith(fence["mark"]) and not line["info"].strip():
            yield fence.start(), line.end()
            fence = None
    if fence is not None and not _is_inside(fence["lead"]):
        yield fence.start(), len(body)


def _is_inside(lead: str) -> bool:
    """Return whether the text before a fence places it in a list or quotation."""
    return len(lead.expandtabs(4)) > 3 or bool(lead.strip())


def _blank(match: re.Match[str]) -> str:
    return _blank_out(match[0])


def _blank_out(text: str) -> str:
    return "".join("\n" if char == "\n" else " " for char in text)
