"""Differences between two texts: blocks of equal or different lines, hunks for display, and words in a line.

Lines end only at a line feed, a carriage return or both; `"".join(lines(text))` is the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
# The limit on pairs of equal lines; more would take seconds to compare.
_MOST_PAIRS = 2_000_000
# The limit on the words of a line that are compared.
_MOST_WORDS = 600
# Lines with a lower similarity are shown whole.
_ALIKE = 0.35


class DiffBlock(NamedTuple):
    """A range of lines of one text and the matching range of the other, as start and end indexes."""

    same: bool
    old: tuple[int, int]
    new: tuple[int, int]


def lines(text: str) -> list[str]:
    """Split a text into lines, which keep their line breaks."""
    return _LINE.findall(text)


def blocks(old: Sequence[str], new: Sequence[str]) -> list[DiffBlock]:
    """Return the blocks that cover both texts in order; texts with too many equal lines are one block."""
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    a, b = old[first : len(old) - last], new[first : len(new) - last]
    result: list[DiffBlock] = [DiffBlock(True, (0, first), (0, first))] if first else []
    for same, (i, j), (k, m) in _inner(a, b):
        result.append(DiffBlock(same, (first + i, first + j), (first + k, first + m)))
    if last:
        result.append(DiffBlock(True, (len(old) - last, len(old)), (len(new) - last, len(new))))
    return result


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    for number, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return number
    return min(len(a), len(b))


def _inner(a: Sequence[str], b: Sequence[str]) -> Iterator[DiffBlock]:
    if not a and not b:
        return
    counted = Counter(a)
    if sum(counted[line] * times for line, times in Counter(b).items()) > _MOST_PAIRS:
        yield DiffBlock(False, (0, len(a)), (0, len(b)))
        return
    for tag, i, j, k, m in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        yield DiffBlock(tag == "equal", (i, j), (k, m))


class DiffPiece(NamedTuple):
    """A part of a line, and whether it differs."""

    differs: bool
    text: str


class DiffLine(NamedTuple):
    """A line of a comparison with its number in each text, 0 where it is missing."""

    kind: Literal["same", "gone", "new"]
    old: int
    new: int
    pieces: tuple[DiffPiece, ...]


class Hunk(NamedTuple):
    """Lines that are shown together, and the number of equal lines omitted before them."""

    skipped: int
    lines: tuple[DiffLine, ...]


def hunks(before: str, after: str, context: int = 3) -> tuple[Hunk, ...]:
    """Return the differences between two texts with `context` equal lines around them; () if equal."""
    old, new = lines(before), lines(after)
    rows = _diff_lines(old, new)
    near = [False] * len(rows)
    for number, line in enumerate(rows):
        if line.kind != "same":
            for place in range(max(0, number - context), min(len(rows), number + context + 1)):
                near[place] = True
    result: list[Hunk] = []
    part: list[DiffLine] = []
    skipped = 0
    for line, is_near in zip(rows, near, strict=True):
        if is_near:
            part.append(line)
            continue
        if part:
            result.append(Hunk(skipped, tuple(part)))
            part, skipped = [], 0
        skipped += 1
    if part:
        result.append(Hunk(skipped, tuple(part)))
    return tuple(result)


def _diff_lines(old: Sequence[str], new: Sequence[str]) -> list[DiffLine]:
    result: list[DiffLine] = []
    for same, (i, j), (k, m) in blocks(old, new):
        if same:
            result += [DiffLine("same", i + at + 1, k + at + 1, _whole(old[i + at])) for at in range(j - i)]
            continue
        paired = [words(_bare(left), _bare(right)) for left, right in zip(old[i:j], new[k:m], strict=False)]
        removed = [left for left, _ in paired] + [_whole(text) for text in old[i:j][len(paired) :]]
        come = [right for _, right in paired] + [_whole(text) for text in new[k:m][len(paired) :]]
        result += [DiffLine("gone", i + at + 1, 0, pieces) for at, pieces in enumerate(removed)]
        result += [DiffLine("new", 0, k + at + 1, pieces) for at, pieces in enumerate(come)]
    return result


def _whole(line: str) -> tuple[DiffPiece, ...]:
    return (DiffPiece(False, _bare(line)),)


def _bare(line: str) -> str:
    return line.rstrip("\r\n")


def words(old: str, new: str) -> tuple[tuple[DiffPiece, ...], tuple[DiffPiece, ...]]:
    """Split two lines into equal and different pieces; lines with little in common stay whole."""
    a, b = _WORD.findall(old), _WORD.findall(new)
    whole = (DiffPiece(False, old),), (DiffPiece(False, new),)
    if max(len(a), len(b)) > _MOST_WORDS:
        return whole
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return whole
    left: list[DiffPiece] = []
    right: list[DiffPiece] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if j > i:
            left.append(DiffPiece(tag != "equal", "".join(a[i:j])))
        if m > k:
            right.append(DiffPiece(tag != "equal", "".join(b[k:m])))
    return tuple(left), tuple(right)
