"""Division of a Markdown body into sentences, without code, quotations and open tasks.

One pass over the lines finds the blocks, another pass over each block finds the sentences. Each sentence
contains its position in the body, so that it can be displayed there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from sixfold.core.memory import markdown
from sixfold.core.memory.indexing import english

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
# These abbreviations may end a sentence.
_CLOSING = frozenset({"Inc.", "Ltd.", "Corp.", "Co.", "Jr.", "Sr.", "etc."})
_OPENERS = (*english.SUBJECTS, *english.POSSESSIVES, "the", "in", "on", "at", "this", "that")
_AFRESH = re.compile(rf"\s+(?:{'|'.join(map(str.capitalize, _OPENERS))})\b")
_FIELD = re.compile(r"\s*(?:\*\*|__)?([A-Za-z][\w /'-]{0,40}?)(?:\*\*|__)?:(?:\*\*|__)?\s+(?=\S)")
_NO_FIELD = frozenset({"note", "e.g", "http", "https", "update", "warning", "tip"})
# Maximum characters of a paragraph.
_MAX_BLOCK = 20_000
_MAX_SENTENCE = 1_000
_MAX_SENTENCES = 2_000


class Sentence(NamedTuple):
    """A sentence as written, with its position.

    `field` is the title of a `Title: value` line, or of the heading right above a list; `text` is then the
    value. `opens` is True for the first sentence of a block, and `block` is the number of the block.
    """

    text: str
    start: int
    field: str
    opens: bool
    block: int


class _TextBlock(msgspec.Struct):
    start: int
    end: int
    heading: str = ""
    item: bool = False


def sentences(body: str) -> list[Sentence]:
    """Return the sentences of a body in order: at most 2,000, with at most 1,000 characters each."""
    result: list[Sentence] = []
    for number, block in enumerate(_blocks(body)):
        result += _of_block(body, block, number)
        if len(result) >= _MAX_SENTENCES:
            return result[:_MAX_SENTENCES]
    return result


def _blocks(body: str) -> Iterator[_TextBlock]:
    """Yield the paragraphs and list items in order."""
    open_block: _TextBlock | None = None
    heading, start = "", 0
    # The end of the current quotation or comment: a blank line, or its mark.
    aside = ""
    for line in markdown.without_fences(body).splitlines(keepends=True):
        end = start + len(line)
        bare = line.strip()
        starts, is_text = "", False
        if aside:
            aside = _aside_goes_on(bare, aside)
        elif bare:
            is_text, starts = _kind(line, open_block)
            aside = _aside(bare) if not is_text else ""
        if open_block is not None and (not is_text or starts != "text"):
            yield open_block
            open_block = None
        if is_text and open_block is not None:
            open_block.end = end
        elif is_text:
            open_block, heading = _opened(line, starts, start, heading)
        start = end
    if open_block is not None:
        yield open_block


def _aside(bare: str) -> str:
    """Return the end mark of the quotation or comment that a line begins, or an empty string."""
    if bare.startswith(">"):
        return "\n"
    return "-->" if bare.startswith("<!--") and "-->" not in bare else ""


def _aside_goes_on(bare: str, end: str) -> str:
    """Update the end mark after another line; a quotation continues up to the next blank line."""
    return "" if (not bare if end == "\n" else end in bare) else end


def _kind(line: str, open_block: _TextBlock | None) -> tuple[bool, str]:
    """Return the kind of a line, `text`, `field`, `item` or `heading`, or an empty string to skip it."""
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
    """Return the block that a line begins, if any, and the heading that applies from then on."""
    if starts == "heading":
        match = _HEADING.match(line)
        return None, match[1].strip().strip("*_: ") if match else ""
    if starts == "item":
        item = _ITEM.match(line)
        assert item is not None  # noqa: S101 - `_kind` matched it
        return _TextBlock(start + item.end(), start + len(line), heading, item=True), heading
    return _TextBlock(start, start + len(line)), ""


def _of_block(body: str, block: _TextBlock, number: int) -> Iterator[Sentence]:
    text = body[block.start : min(block.end, block.start + _MAX_BLOCK)].rstrip()
    if block.item and "[[" in text and _TYPED.match(text):
        # A typed link is already explicit.
        return
    field, begin = block.heading, 0
    field_match = _FIELD.match(text)
    if field_match is not None and field_match[1].lower() not in _NO_FIELD:
        field, begin = field_match[1], field_match.end()
    opens = True
    for first, last in _split(text, begin):
        if 1 < last - first <= _MAX_SENTENCE:
            yield Sentence(text[first:last], block.start + first, field, opens, number)
        field, opens = "", False


def _split(text: str, begin: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of sentences; a period after an abbreviation or an initial does not end a sentence."""
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
    """Return whether the period before `stop` only ends an abbreviation or an initial."""
    abbreviation = _ABBREVIATED.search(text, max(first, stop - 12), stop)
    return abbreviation is not None and not (abbreviation[0] in _CLOSING and _AFRESH.match(text, stop))
