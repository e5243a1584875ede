"""Division of a page's body into passages that are short enough to cover one topic.

A passage ends at a heading, or at the end of a paragraph once it is long enough. A short body, like that of
most notes, is one passage. The division depends only on the body.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# About 150 words, which is the input size of MiniLM.
TARGET_CHARS = 900
# Maximum length of a passage without headings and paragraphs.
_MAX_CHARS = 2 * TARGET_CHARS
# Maximum per page; the last passage contains the rest.
MAX_PASSAGES = 256
_BREAK = re.compile(r"\n[ \t]*\n|\n(?=[ \t]{0,3}#{1,6}[ \t])")
_HEADING = re.compile(r"[ \t]{0,3}#{1,6}[ \t]")
_SENTENCE = re.compile(r"[.!?。！？]\s+|\n|[。！？]")


class Passage(NamedTuple):
    """The characters from `start` to `end` of the body."""

    start: int
    end: int


def split(body: str) -> tuple[Passage, ...]:
    """Return the passages of a body, which cover it without gaps."""
    if len(body) <= _MAX_CHARS and "\n#" not in body:
        return (Passage(0, len(body)),)
    passages: list[Passage] = []
    start = 0
    for end in _ends(body):
        headed = _HEADING.match(body, end) is not None and end - start > TARGET_CHARS // 3
        if len(passages) + 1 < MAX_PASSAGES and (end - start >= TARGET_CHARS or headed):
            passages.append(Passage(start, end))
            start = end
    if start < len(body):
        passages.append(Passage(start, len(body)))
    return tuple(passages) or (Passage(0, len(body)),)


def _ends(body: str) -> list[int]:
    """Return the possible ends of passages: between blocks, and between sentences of a long block."""
    blocks = [match.end() for match in _BREAK.finditer(body)]
    ends: list[int] = []
    last = 0
    for block in (*blocks, len(body)):
        if block - last > _MAX_CHARS:
            ends += _inside(body, last, block)
        ends.append(block)
        last = block
    return ends


def _inside(body: str, start: int, stop: int) -> list[int]:
    ends: list[int] = []
    while stop - start > _MAX_CHARS:
        window = (start + TARGET_CHARS // 2, start + TARGET_CHARS)
        cut = next((match.end() for match in _SENTENCE.finditer(body, *window)), 0)
        if not cut:
            space = body.rfind(" ", *window)
            cut = space + 1 if space > 0 else window[1]
        ends.append(cut)
        start = cut
    return ends
