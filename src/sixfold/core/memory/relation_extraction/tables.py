"""Parsing of tables in a Markdown body: each row is about its first cell, with column titles as fields."""

from __future__ import annotations

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
    lines = body.splitlines(keepends=True)
    titles: list[str] = []
    start = rows = 0
    for number, line in enumerate(lines):
        bare = line.strip()
        if "|" not in bare or len(bare) > _MAX_LINE:
            titles = []
        elif not titles:
            following = lines[number + 1].strip() if number + 1 < len(lines) else ""
            if "|" in following and _DASHES.fullmatch(following[:_MAX_LINE]):
                titles = [title.strip("*_ ").lower() for title in _split(bare)]
        elif not _DASHES.fullmatch(bare) and rows < _MAX_ROWS:
            rows += 1
            first, *more_cells = _split(bare)
            for title, text in zip(titles[1:], more_cells, strict=False):
                if title and text and first:
                    yield TableCell(bare, start + line.index(bare), first, title, text)
        start += len(line)


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL.split(line.removeprefix("|").removesuffix("|"))]
