"""The sentences of a markdown body: what its author says, without code, quotations and open tasks.

One pass over the lines finds the blocks, one over each block its sentences. Every sentence knows where in the
body it stands, so that a reader can be shown the place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sixfold.core.memory import blocks

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+([^\n#]*)")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[([ xX])\][ \t]+)?")
_QUOTE = re.compile(r" {0,3}>")
_CODE = re.compile(r"(?: {4}|\t)")
_RULE = re.compile(r" {0,3}(?:[-*_][ \t]*){3,}$")
_TYPED = re.compile(r"\s*[A-Za-z_][\w-]{0,60}\s+\[\[[^\]\n]{1,400}\]\]\s*(?:[-–—(].*)?$")
_END = re.compile(r"[.!?][\"'”’)\]*_]{0,4}(?=\s)")
_ABBREVIATED = re.compile(
    r"(?:\b(?:Dr|Mr|Mrs|Ms|Prof|St|Sr|Jr|Inc|Ltd|Corp|Co|No|vs|etc|approx|Gen|Sen|Rep|Mt|Ave|Dept"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)|\b[A-Z]|\be\.g|\bi\.e)\.$"
)
_CLOSING = frozenset({"Inc.", "Ltd.", "Corp.", "Co.", "Jr.", "Sr.", "etc."})  # these may end a sentence, too
_AFRESH = re.compile(r"\s+(?:He|She|They|It|We|The|In|On|At|This|That|His|Her|Their)\b")
_FIELD = re.compile(r"\s*(?:\*\*|__)?([A-Za-z][\w /'-]{0,40}?)(?:\*\*|__)?:(?:\*\*|__)?\s+(?=\S)")
_NO_FIELD = frozenset({"note", "e.g", "http", "https", "update", "warning", "tip"})
_MAX_BLOCK = 20_000  # characters of one paragraph that are read
_MAX_SENTENCE = 1_000
_MAX_SENTENCES = 2_000


class Sentence(NamedTuple):
    """One sentence: its text as written and where it begins.

    `field` is the title of a `Title: value` line, or of the heading right above a list; `text` is then the
    value. `opens` says that it begins its block, and `block` counts the blocks.
    """

    text: str
    start: int
    field: str
    opens: bool
    block: int


@dataclass(slots=True)
class _TextBlock:
    start: int
    end: int
    heading: str = ""
    item: bool = False


def sentences(body: str) -> list[Sentence]:
    """Every sentence of a body in its order; at most 2,000, and none that is over 1,000 characters."""
    found: list[Sentence] = []
    for number, block in enumerate(_blocks(body)):
        found += _of_block(body, block, number)
        if len(found) >= _MAX_SENTENCES:
            return found[:_MAX_SENTENCES]
    return found


def _blocks(body: str) -> Iterator[_TextBlock]:
    """Paragraphs and list items, in their order."""
    open_block: _TextBlock | None = None
    heading, start = "", 0
    aside = ""  # what ends the quotation or the comment that was begun: a blank line, or its mark
    for line in blocks.without_fences(body).splitlines(keepends=True):
        end = start + len(line)
        bare = line.strip()
        starts, shown = "", False
        if aside:
            aside = _aside_goes_on(bare, aside)
        elif bare:
            shown, starts = _kind(line, open_block)
            aside = _aside(bare) if not shown else ""
        if open_block is not None and (not shown or starts != "text"):
            yield open_block
            open_block = None
        if shown and open_block is not None:
            open_block.end = end
        elif shown:
            open_block, heading = _opened(line, starts, start, heading)
        start = end
    if open_block is not None:
        yield open_block


def _aside(bare: str) -> str:
    """What ends the quotation or comment that a line begins; empty where it begins none."""
    if bare.startswith(">"):
        return "\n"
    return "-->" if bare.startswith("<!--") and "-->" not in bare else ""


def _aside_goes_on(bare: str, end: str) -> str:
    """The same after one more line. A quotation goes on to the next blank line, with or without its mark."""
    return "" if (not bare if end == "\n" else end in bare) else end


def _kind(line: str, open_block: _TextBlock | None) -> tuple[bool, str]:
    """Whether a line is read, and as what: `text`, `field`, `item` or `heading`."""
    first = line.lstrip()[:1]
    if first == "#" and _HEADING.match(line):
        return True, "heading"
    if first == ">" and _QUOTE.match(line):
        return False, ""
    if first in "-*_" and _RULE.match(line):
        return False, ""
    if first in "-*+0123456789" and (item := _ITEM.match(line)):
        return item[1] != " ", "item"
    if ":" in line and _FIELD.match(line):
        return True, "field"
    if first in "|<":
        return False, ""
    if open_block is None and _CODE.match(line):
        return False, ""
    return True, "text"


def _opened(line: str, starts: str, start: int, heading: str) -> tuple[_TextBlock | None, str]:
    """The block that a line opens, and the heading that holds from here on."""
    if starts == "heading":
        found = _HEADING.match(line)
        return None, found[1].strip().strip("*_: ") if found else ""
    if starts == "item":
        item = _ITEM.match(line)
        assert item is not None  # noqa: S101 - `_kind` matched it
        return _TextBlock(start + item.end(), start + len(line), heading, item=True), heading
    return _TextBlock(start, start + len(line)), ""


def _of_block(body: str, block: _TextBlock, number: int) -> Iterator[Sentence]:
    text = body[block.start : min(block.end, block.start + _MAX_BLOCK)].rstrip()
    if block.item and "[[" in text and _TYPED.match(text):
        return  # a typed link, which is explicit
    field, begin = block.heading, 0
    titled = _FIELD.match(text)
    if titled is not None and titled[1].lower() not in _NO_FIELD:
        field, begin = titled[1], titled.end()
    opens = True
    for first, last in _split(text, begin):
        if 1 < last - first <= _MAX_SENTENCE:
            yield Sentence(text[first:last], block.start + first, field, opens, number)
        field, opens = "", False


def _split(text: str, begin: int) -> Iterator[tuple[int, int]]:
    """Where sentences begin and end; a full stop behind an abbreviation or an initial ends none."""
    first = begin
    for end in _END.finditer(text, begin):
        if end[0][0] == "." and _goes_on(text, first, end.start() + 1):
            continue
        yield first, end.end()
        first = end.end()
        while first < len(text) and text[first].isspace():
            first += 1
    if first < len(text):
        yield first, len(text)


def _goes_on(text: str, first: int, stop: int) -> bool:
    """Whether the full stop before `stop` only ends an abbreviation or an initial."""
    shortened = _ABBREVIATED.search(text, max(first, stop - 12), stop)
    return shortened is not None and not (shortened[0] in _CLOSING and _AFRESH.match(text, stop))
