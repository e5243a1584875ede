"""Differences between two texts: blocks of equal or different lines, hunks for display, and words in a line.

Lines end only at a line feed, a carriage return or both; `"".join(lines(text))` is the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Literal, NamedTuple

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
# Maximum number of lines that a comparison shows; one more line indicates that lines are omitted.
MAX_LINES = 3_000
# Maximum lines and pairs of equal lines that are compared; above it, only lines that occur once are compared.
_MAX_STEPS = 4_000_000
# Ranges of more lines are divided at lines that occur once: each search of 100,000 lines takes 0.1 s.
_LARGE = 5_000
# The limit on the words of a line that are compared.
_MAX_WORDS = 600
# Lines with a lower similarity are shown as a whole.
_ALIKE = 0.35


# The start and the end of a range in each of two sequences.
_Range = tuple[int, int, int, int]


class DiffBlock(NamedTuple):
    """A range of lines of one text and the matching range of the other, as start and end indexes."""

    same: bool
    old: tuple[int, int]
    new: tuple[int, int]


def lines(text: str) -> list[str]:
    """Split a text into lines with their line breaks."""
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
    at = (0, 0)
    for i, k, size in [*_matches(a, b, Steps()), (len(a), len(b), 0)]:
        if at != (i, k):
            yield DiffBlock(False, (at[0], i), (at[1], k))
        if size:
            yield DiffBlock(True, (i, i + size), (k, k + size))
        at = (i + size, k + size)


class Steps:
    """The remaining steps of a comparison: items, and pairs of equal items."""

    def __init__(self) -> None:
        self.left = _MAX_STEPS

    def spend(self, count: int) -> bool:
        """Use steps of the budget; return False if too few are left."""
        self.left -= count
        return self.left >= 0


def _matches(a: Sequence[str], b: Sequence[str], steps: Steps) -> list[tuple[int, int, int]]:
    """Return the equal ranges that `SequenceMatcher` finds, as start, start and length.

    The time is quadratic if the longest equal range is always at an end, so the steps are limited, and a
    large range is divided at the items that occur once in each sequence.
    """
    counted = Counter(b)
    # The steps for each range of `a`.
    upto = list(accumulate((1 + counted[item] for item in a), initial=0))
    matcher = SequenceMatcher(None, a, b, autojunk=False) if upto[-1] <= steps.left else None
    ranges: list[_Range] = [(0, len(a), 0, len(b))]
    matches: list[tuple[int, int, int]] = []
    while ranges:
        i, j, k, m = ranges.pop()
        if i == j or k == m:
            continue
        if j - i > _LARGE and (anchors := _unique(a[i:j], b[k:m])):
            matches += [(i + at, k + to, 1) for at, to in anchors]
            ranges += _gaps(anchors, (i, j, k, m))
            continue
        if matcher is None or not steps.spend(upto[j] - upto[i]):
            matches += [(i + at, k + to, 1) for at, to in _unique(a[i:j], b[k:m])]
            continue
        x, y, size = matcher.find_longest_match(i, j, k, m)
        if size:
            matches.append((x, y, size))
            ranges += [(i, x, k, y), (x + size, j, y + size, m)]
    return _joined(sorted(matches))


def _gaps(anchors: Sequence[tuple[int, int]], inside: _Range) -> Iterator[_Range]:
    """Yield the ranges of both sequences between equal items, whose positions count from the start."""
    i, j, k, m = inside
    left, right = i, k
    for at, to in (*((i + at, k + to) for at, to in anchors), (j, m)):
        if left < at and right < to:
            yield left, at, right, to
        left, right = at + 1, to + 1


def _joined(matches: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    result: list[tuple[int, int, int]] = []
    for x, y, size in matches:
        if result and (result[-1][0] + result[-1][2], result[-1][1] + result[-1][2]) == (x, y):
            x, y, size = result[-1][0], result[-1][1], result.pop()[2] + size
        result.append((x, y, size))
    return result


def _unique(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Return the longest list of ascending pairs of items that occur once in each sequence."""
    first, second = Counter(a), Counter(b)
    positions = {item: position for position, item in enumerate(b) if second[item] == 1}
    ends: list[int] = []
    last: list[int] = []
    before: dict[int, int] = {}
    pairs = {at: positions[item] for at, item in enumerate(a) if first[item] == 1 and item in positions}
    for at, position in pairs.items():
        length = bisect_left(ends, position)
        ends[length : length + 1] = [position]
        last[length : length + 1] = [at]
        before[at] = last[length - 1] if length else -1
    result: list[tuple[int, int]] = []
    at = last[-1] if last else -1
    while at >= 0:
        result.append((at, pairs[at]))
        at = before[at]
    return result[::-1]


def unified(
    old: Sequence[str], new: Sequence[str], names: tuple[str, str], context: int = 3
) -> Iterator[str]:
    """Yield the lines of a unified diff, like `difflib.unified_diff` but in a limited number of steps."""
    for number, group in enumerate(_BlockMatcher(blocks(old, new)).get_grouped_opcodes(context)):
        if not number:
            yield from (f"--- {names[0]}", f"+++ {names[1]}")
        (_, i, _, k, _), (_, _, j, _, m) = group[0], group[-1]
        yield f"@@ -{_range(i, j)} +{_range(k, m)} @@"
        for tag, first, last, begin, end in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[first:last])
                continue
            yield from (f"-{line}" for line in old[first:last])
            yield from (f"+{line}" for line in new[begin:end])


class _BlockMatcher(SequenceMatcher[str]):
    """Groups blocks that were found earlier."""

    def __init__(self, blocks: Sequence[DiffBlock]) -> None:
        super().__init__()
        self._found = blocks

    def get_opcodes(self) -> list[tuple[_Tag, int, int, int, int]]:
        return [(_tag(block), *block.old, *block.new) for block in self._found]


_Tag = Literal["replace", "delete", "insert", "equal"]


def _tag(block: DiffBlock) -> _Tag:
    if block.same:
        return "equal"
    if block.old[0] == block.old[1]:
        return "insert"
    return "delete" if block.new[0] == block.new[1] else "replace"


def _range(start: int, end: int) -> str:
    """Format a range of lines as in unified diffs; an empty range starts after the preceding line."""
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + 1 if length else start},{length}"


class DiffPiece(NamedTuple):
    """A part of a line, and whether it differs."""

    differs: bool
    text: str


class DiffLine(NamedTuple):
    """A line of a comparison with its number in each text, or 0 if it is missing there."""

    kind: Literal["same", "gone", "new"]
    old: int
    new: int
    pieces: tuple[DiffPiece, ...]


class Hunk(NamedTuple):
    """Lines that are shown together, and the number of equal lines omitted before them."""

    skipped: int
    lines: tuple[DiffLine, ...]


def hunks(before: str, after: str, context: int = 3) -> tuple[Hunk, ...]:
    """Return the differences between two texts with `context` equal lines; () if the texts are equal.

    The first hunk that exceeds `MAX_LINES` is the last one.
    """
    old, new = lines(before), lines(after)
    result: list[Hunk] = []
    part: list[DiffLine] = []
    skipped = shown = 0
    steps = Steps()
    diff_blocks = blocks(old, new)
    for number, block in enumerate(diff_blocks):
        if shown + len(part) > MAX_LINES:
            break
        if not block.same:
            part += _changed(block, old, new, steps)
            continue
        (i, j), k = block.old, block.new[0]
        head = context if number else 0
        tail = context if number + 1 < len(diff_blocks) else 0
        if j - i <= head + tail:
            part += _equal(old, i, j, k)
            continue
        part += _equal(old, i, i + head, k)
        if part:
            result.append(Hunk(skipped, tuple(part)))
            shown += len(part)
        skipped, part = j - i - head - tail, _equal(old, j - tail, j, k + j - tail - i)
    return (*result, Hunk(skipped, tuple(part))) if part else tuple(result)


def _equal(old: Sequence[str], start: int, end: int, new: int) -> list[DiffLine]:
    return [DiffLine("same", at + 1, new + at - start + 1, _whole(old[at])) for at in range(start, end)]


def _changed(block: DiffBlock, old: Sequence[str], new: Sequence[str], steps: Steps) -> list[DiffLine]:
    """Return the removed and the new lines of a block, at most one more of each than are shown."""
    removed_lines = old[block.old[0] : min(block.old[1], block.old[0] + MAX_LINES + 1)]
    new_lines = new[block.new[0] : min(block.new[1], block.new[0] + MAX_LINES + 1)]
    pairs = zip(removed_lines, new_lines, strict=False)
    word_pairs = [words(_bare(left), _bare(right), steps) for left, right in pairs]
    removed = [left for left, _ in word_pairs] + [_whole(text) for text in removed_lines[len(word_pairs) :]]
    new_pieces = [right for _, right in word_pairs] + [_whole(text) for text in new_lines[len(word_pairs) :]]
    return [
        *(DiffLine("gone", block.old[0] + at + 1, 0, pieces) for at, pieces in enumerate(removed)),
        *(DiffLine("new", 0, block.new[0] + at + 1, pieces) for at, pieces in enumerate(new_pieces)),
    ]


def _whole(line: str) -> tuple[DiffPiece, ...]:
    return (DiffPiece(False, _bare(line)),)


def _bare(line: str) -> str:
    return line.rstrip("\r\n")


def words(
    old: str, new: str, steps: Steps | None = None
) -> tuple[tuple[DiffPiece, ...], tuple[DiffPiece, ...]]:
    """Split two lines into equal and different pieces; lines with little in common stay whole.

    Lines share the budget `steps`; when it is exhausted, they stay whole as well.
    """
    steps = Steps() if steps is None else steps
    pieces = (DiffPiece(False, old),), (DiffPiece(False, new),)
    if steps.left <= 0:
        return pieces
    a, b = _WORD.findall(old), _WORD.findall(new)
    if max(len(a), len(b)) > _MAX_WORDS:
        return pieces
    matches = _matches(a, b, steps)
    if 2 * sum(size for _, _, size in matches) < _ALIKE * (len(a) + len(b)):
        return pieces
    left: list[DiffPiece] = []
    right: list[DiffPiece] = []
    at = (0, 0)
    for x, y, size in [*matches, (len(a), len(b), 0)]:
        for side, items, begin, end in ((left, a, at[0], x), (right, b, at[1], y)):
            side += [DiffPiece(True, "".join(items[begin:end]))] if end > begin else []
            side += [DiffPiece(False, "".join(items[end : end + size]))] if size else []
        at = (x + size, y + size)
    return tuple(left), tuple(right)
