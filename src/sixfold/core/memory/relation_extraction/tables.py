"""Parsing of tables in a Markdown body: each row is about its first cell, with column titles as fields."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

_DASHES = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
_CELL = re.compile(r"(?<!\\)\|")
_MAX_ROWS = 500
_MAX_LINE = 2_000


class TableCell(NamedTuple):
    """A cell after the first of its row, with the row, its first cell, and the column's title."""

    line: str
    start: int
    first: str
    title: str
    text: str


def cells(body: str) -> Iterator[TableCell]:
    """Yield the cells of all tables whose column has a title, row by row."""
    if "|" not in body:
        return
    for row in itertools.islice(_rows(body), _MAX_ROWS):
        first, *others = _split(row.line)
        for title, text in zip(row.titles[1:], others, strict=False):
            if title and text and first:
                yield TableCell(row.line, row.start, first, title, text)


class _TableRow(NamedTuple):
    titles: list[str]
    line: str
    start: int


def _rows(body: str) -> Iterator[_TableRow]:
    """Yield the rows of all tables below their titles, with their positions in the body."""
    lines = body.splitlines(keepends=True)
    titles: list[str] = []
    start = 0
    for line, following in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        bare = line.strip()
        if "|" not in bare or len(bare) > _MAX_LINE:
            titles = []
        elif not titles:
            titles = _titles(bare, following.strip())
        elif not _DASHES.fullmatch(bare):
            yield _TableRow(titles, bare, start + line.index(bare))
        start += len(line)


def _titles(line: str, following: str) -> list[str]:
    """Return the titles in a line, if the line that follows separates titles from rows."""
    if "|" not in following or not _DASHES.fullmatch(following[:_MAX_LINE]):
        return []
    return [title.strip("*_ ").lower() for title in _split(line)]


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL.split(line.removeprefix("|").removesuffix("|"))]
