"""Code and headings of a markdown text, found as CommonMark defines them; each pass takes linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_HEADING = 500
_FENCE = re.compile(
    r"^(?P<lead>[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]++)?)(?P<mark>`{3,}+(?![^\n]*`)|~{3,}+)(?P<info>[^\n]*)",
    re.MULTILINE,
)
_CODE = re.compile(r"(?<!`)(`+)(?!`)([^\n]{0,1000}?[^`\n])\1(?!`)")
_HEADING = re.compile(
    r"^\ufeff? {0,3}(?:(?P<marks>#{1,6})[ \t]+(?P<text>[^\n]*)"
    r"|(?<![^\r\n]\n)(?<![^\n]\r\n)(?!\d{1,9}[.)] )(?P<over>[^\s#>|*+-][^\n]*)\n"
    r" {0,3}(?P<rule>=++|--++)[ \t]*\r?$)\n?",
    re.MULTILINE,
)
_CLOSING = re.compile(r"(?:^|[ \t]+)#+$")
# Code is skipped, because marks in it have no meaning.
_MARKED = re.compile(
    r"`++[^`]++`++"
    r"|(?P<mark>\*{1,3}+|~~)(?=\S)(?P<strong>(?:`[^`]*`|[^*~`])+)(?<=\S)(?P=mark)"
    r"|(?<!\w)(?P<line>_{1,3})(?=\S)(?P<soft>(?:`[^`]*`|[^_`])+)(?<=\S)(?P=line)(?!\w)"
    r"|!?\[(?P<label>[^\[\]]*)\]\([^()]*\)"
)
_TICKED = re.compile(r"(`+)[ ]?([^`]+?)[ ]?\1")
# The nesting depth of marks that is resolved.
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class HeadingBlock:
    """A heading: its level (1 to 6), its text as written, and its position in the body."""

    level: int
    text: str
    start: int
    end: int


def headings(body: str) -> Iterator[HeadingBlock]:
    """Return all headings in order, both `# ATX` and underlined ones, except in fenced code."""
    for match in _HEADING.finditer(without_fences(body)):
        level = len(match["marks"]) if match["marks"] else 1 + match["rule"].startswith("-")
        text = _CLOSING.sub("", (match["over"] or match["text"])[:MAX_HEADING].strip())
        if text:
            yield HeadingBlock(level, text, match.start(), match.end())


def read_aloud(text: str) -> str:
    """Return the text of a heading without the marks of links, emphasis and code."""
    for _ in range(_DEEPEST):
        text, changed = _MARKED.subn(_within, text)
        if not changed:
            break
    return _TICKED.sub(r"\2", text).strip()


def _within(match: re.Match[str]) -> str:
    return match[match.lastgroup or 0]


def without_code(body: str) -> str:
    """Return the body with code replaced by spaces, so that all other characters keep their positions."""
    body = without_fences(body)
    return _CODE.sub(_blank, body) if "`" in body else body


def without_fences(body: str) -> str:
    """Replace fenced code by spaces, as `without_code` does."""
    if "```" not in body and "~~~" not in body:
        return body
    parts: list[str] = []
    end = 0
    for start, stop in _fenced(body):
        parts += body[end:start], _blanked(body[start:stop])
        end = stop
    return "".join((*parts, body[end:]))


def _fenced(body: str) -> Iterator[tuple[int, int]]:
    """Return the ranges of fenced code; an unclosed fence extends to the end.

    In a list or quotation, which ends sooner, an unclosed fence ends at the next fence with less indentation.
    """
    opened: re.Match[str] | None = None
    for line in _FENCE.finditer(body):
        if opened is None or (_is_inside(opened["lead"]) and len(line["lead"]) < len(opened["lead"])):
            opened = line
        elif line["mark"].startswith(opened["mark"]) and not line["info"].strip():
            yield opened.start(), line.end()
            opened = None
    if opened is not None and not _is_inside(opened["lead"]):
        yield opened.start(), len(body)


def _is_inside(lead: str) -> bool:
    """Return whether the text before a fence puts it into a list or a quotation."""
    return len(lead.expandtabs(4)) > 3 or bool(lead.strip())


def _blank(match: re.Match[str]) -> str:
    return _blanked(match[0])


def _blanked(text: str) -> str:
    return "".join("\n" if char == "\n" else " " for char in text)
