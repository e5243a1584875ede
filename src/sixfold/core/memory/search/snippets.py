"""Snippets of pages, in which marks enclose the matched words.

The text is unchanged Markdown, so HTML must escape it. The marks are two characters that pages rarely
contain, so they are the same in all formats.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from sixfold.core import documents
from sixfold.core.memory import frontmatter
from sixfold.core.memory.indexing import chunks, tokens

OPEN, CLOSE = "\u00ab", "\u00bb"  # « and »
MIN_CHARS, MAX_CHARS = 0, 2_000
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_FLAT = {code: chr(code).lower() if chr(code).isalnum() or code == ord("'") else " " for code in range(128)}
# A quotation mark that is not part of a word.
_QUOTE = re.compile("'(?:(?![a-z0-9])|(?<![a-z0-9]'))")
_SPACE = re.compile(r"\s+")
# The length of the window whose page is cited.
_CITED_CHARS = 300
# Maximum characters of a passage that are searched for the best window.
_MAX_READ = 20_000


def of_body(body: str, passage: int, words: Collection[str], chars: int, *, marked: bool = True) -> str:
    """Return at most `chars` characters of a body around the most `words` of a passage.

    If `marked` is set, marks enclose the words. White space becomes one space, and `…` replaces omitted text.
    If no words match, the snippet is the beginning of the passage.
    """
    if not chars:
        return ""
    start, positions = _matches(body, passage, words)
    first = _window(positions, chars) if positions else start
    begin = _at_word(body, max(start, first - chars // 4), start) if positions else start
    lead = "…" if body[:begin].strip() else ""
    length = chars
    # Marks and `…` count as well, so the text is shortened by their number until the snippet fits.
    while length > 0:
        stop = _until_word(body, begin, min(len(body), begin + length))
        text = _marked(body, begin, stop, positions if marked else [])
        tail = "…" if body[stop:].strip() else ""
        snippet = f"{lead}{text}{tail}"
        if len(snippet) <= chars:
            return snippet
        length = stop - begin - (len(snippet) - chars)
    return _marked(body, begin, begin + chars, [])


def citation(head: str, body: str, passage: int, words: Collection[str]) -> str:
    """Return the citation for a passage of an imported document, such as `report.pdf, p. 12`, or ""."""
    source = frontmatter.value(head, "source") if frontmatter.value(head, "source_sha256") else ""
    if not source:
        return ""
    start, positions = _matches(body, passage, words)
    page = documents.page_at(body, _window(positions, _CITED_CHARS) if positions else start)
    label = f"p. {page}" if page else frontmatter.value(head, "chapter")
    return f"{source}, {label}" if label else source


def _matches(body: str, passage: int, words: Collection[str]) -> tuple[int, list[tuple[int, int, str]]]:
    """Return the start of a passage, and the positions of the words in it."""
    passages = chunks.split(body)
    start, end = passages[min(passage, len(passages) - 1)]
    end = min(end, start + _MAX_READ)
    return start, matches(body, start, end, words)


def matches(body: str, start: int, end: int, words: Collection[str]) -> list[tuple[int, int, str]]:
    """Return the positions of the words between two offsets, as start, end, and the word."""
    query_words = frozenset(words)
    if body.isascii():
        return sorted({*_plainly(body[start:end], start, query_words)})
    initials = tokens.initials(query_words)
    positions: list[tuple[int, int, str]] = []
    for match in _WORD.finditer(body, start, end):
        text = match[0]
        if text[0] not in initials and text[0] < "\x80":
            continue
        word = tokens.word(text)
        if word in query_words:
            positions.append((*match.span(), word))
        elif word is None:
            positions += _pairs(text, match.start(), query_words)
    return positions


def _plainly(text: str, start: int, query_words: frozenset[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the matching words of an ASCII text; words with other first letters are skipped quickly."""
    flat = f" {text.translate(_FLAT)} "
    if "'" in flat:
        flat = _QUOTE.sub(" ", flat)
    for sign in (*tokens.beginnings(query_words), "'"):
        at = flat.find(sign)
        while at >= 0:
            begin, end = flat.rfind(" ", 0, at + 1) + 1, flat.index(" ", at + 1)
            word = tokens.word(flat[begin:end])
            if word in query_words:
                yield start + begin - 1, start + end - 1, word
            at = flat.find(sign, end)


def _pairs(text: str, start: int, query_words: frozenset[str]) -> list[tuple[int, int, str]]:
    positions: list[tuple[int, int, str]] = []
    for at in range(len(text)):
        pair = tokens.fold(text[at : at + 2])
        if pair in query_words or (len(text) == 1 and tokens.fold(text) in query_words):
            begin, end = start + at, start + at + min(2, len(text) - at)
            if positions and begin <= positions[-1][1]:
                positions[-1] = (positions[-1][0], end, pair)
            else:
                positions.append((begin, end, pair))
    return positions


def _window(positions: list[tuple[int, int, str]], chars: int) -> int:
    """Return the start of the first window of `chars` with the most distinct words."""
    best, start, first = 0, positions[0][0], 0
    inside: dict[str, int] = {}
    for _, end, word in positions:
        inside[word] = inside.get(word, 0) + 1
        while end - positions[first][0] > chars * 3 // 4 and positions[first][1] < end:
            left_word = positions[first][2]
            inside[left_word] -= 1
            if not inside[left_word]:
                del inside[left_word]
            first += 1
        if len(inside) > best:
            best, start = len(inside), positions[first][0]
    return start


def _at_word(body: str, at: int, least: int) -> int:
    """Return the start of the word at a position, or slightly after it."""
    if at <= least:
        return least
    space = _SPACE.search(body, at, at + 40)
    return space.end() if space else at


def _until_word(body: str, begin: int, stop: int) -> int:
    if stop >= len(body) or body[stop].isspace():
        return stop
    space = max(body.rfind(" ", begin, stop), body.rfind("\n", begin, stop))
    return space if space > begin + (stop - begin) // 2 else stop


def _marked(body: str, begin: int, stop: int, positions: list[tuple[int, int, str]]) -> str:
    pieces: list[str] = []
    at = begin
    for start, end, _ in positions:
        if start >= at and end <= stop:
            pieces += (_plain(body[at:start]), OPEN, _plain(body[start:end]), CLOSE)
            at = end
    pieces.append(_plain(body[at:stop]))
    return _SPACE.sub(" ", "".join(pieces)).strip()


def _plain(text: str) -> str:
    """Replace marks in a page with single quotation marks, so that only those of the snippet remain."""
    return text.replace(OPEN, "\u2039").replace(CLOSE, "\u203a")
