"""Three-way merge of two edits of a text, which are combined unless they change the same lines.

If both changed the same lines differently, the result contains both versions between marks, so that all lines
are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from sixfold.core.memory import diff
from sixfold.core.memory.diff import DiffBlock

MINE, BETWEEN, THEIRS = _MARKS = "<<<<<<< yours", "=======", ">>>>>>> theirs"
_MARKED = re.compile(rf"^(?:{re.escape(MINE)}|{re.escape(THEIRS)})\r?$", re.MULTILINE)


class MergePart(msgspec.Struct, frozen=True):
    """A part of the result; `mine` and `theirs` are set if the part is a conflict."""

    lines: tuple[str, ...] = ()
    mine: tuple[str, ...] | None = None
    theirs: tuple[str, ...] | None = None

    @property
    def conflicts(self) -> bool:
        """Whether both sides changed these lines differently."""
        return self.mine is not None

    @property
    def sides(self) -> tuple[str, str]:
        """The lines of both sides that are placed between the marks."""
        return "".join(_with_line_end(self.mine or ())), "".join(_with_line_end(self.theirs or ()))


class MergeResult(msgspec.Struct, frozen=True):
    """The result of a merge."""

    parts: tuple[MergePart, ...]

    @property
    def conflicts(self) -> tuple[MergePart, ...]:
        """The parts that need a decision."""
        return tuple(part for part in self.parts if part.conflicts)

    @property
    def text(self) -> str:
        """The merged text, with both sides of a conflict between marks on separate lines."""
        lines: list[str] = []
        for part in self.parts:
            if not part.conflicts:
                lines += part.lines
                continue
            if lines and not lines[-1].endswith("\n"):
                lines.append("\n")
            mine, theirs = part.sides
            lines += [f"{MINE}\n", mine, f"{BETWEEN}\n", theirs, f"{THEIRS}\n"]
        return "".join(lines)


def _with_line_end(lines: Sequence[str]) -> list[str]:
    """Return the lines, with a line end added to the last one if it has none."""
    if lines and not lines[-1].endswith("\n"):
        return [*lines[:-1], lines[-1] + "\n"]
    return list(lines)


_MARK_LINE = re.compile(rf"^({re.escape(MINE)}|{BETWEEN}|{re.escape(THEIRS)})(?:\n|$)", re.MULTILINE)


class _Conflict(NamedTuple):
    """A conflict in a text: its position, and both sides."""

    start: int
    end: int
    mine: str
    theirs: str


def _conflicts(text: str) -> Iterator[_Conflict]:
    """Yield the conflicts; one regular expression for all marks would take cubic time."""
    marks: list[re.Match[str]] = []
    for match in _MARK_LINE.finditer(text):
        if match[1] == _MARKS[len(marks)]:
            marks.append(match)
        if len(marks) == len(_MARKS):
            first, middle, last = marks
            mine, theirs = text[first.end() : middle.start()], text[middle.end() : last.start()]
            yield _Conflict(first.start(), last.end(), mine, theirs)
            marks = []


def readable(text: str) -> str:
    """Return a text with conflicts as readable Markdown, in which a label states the origin of each side."""
    parts: list[str] = []
    at = 0
    for conflict in _conflicts(text):
        parts.append(text[at : conflict.start])
        parts.append(f"\n*yours:*\n\n{conflict.mine}\n*theirs:*\n\n{conflict.theirs}\n")
        at = conflict.end
    return "".join([*parts, text[at:]])


def conflicts_in(text: str) -> list[tuple[str, str]]:
    """Return both sides of the conflicts whose markers remain in a text."""
    return [(conflict.mine, conflict.theirs) for conflict in _conflicts(text)]


def has_marks(text: str) -> bool:
    """Return whether a text contains conflict markers."""
    return _MARKED.search(text) is not None


def texts(base: str, mine: str, theirs: str) -> MergeResult:
    old, left, right = diff.lines(base), diff.lines(mine), diff.lines(theirs)
    parts: list[MergePart] = []
    spans = [*_shared_spans(old, left, right), _Span((len(old), len(left), len(right)), 0)]
    at = (0, 0, 0)
    for span in spans:
        o, a, b = span.start
        parts += _between(old[at[0] : o], left[at[1] : a], right[at[2] : b])
        if span.length:
            parts.append(MergePart(tuple(old[o : o + span.length])))
        at = (o + span.length, a + span.length, b + span.length)
    return MergeResult(tuple(parts))


class _Span(msgspec.Struct, frozen=True):
    """A span of lines that all three texts share: its start in each text, and its length."""

    start: tuple[int, int, int]
    length: int


def _shared_spans(base: Sequence[str], mine: Sequence[str], theirs: Sequence[str]) -> list[_Span]:
    equal_blocks = [block for block in diff.blocks(base, mine) if block.same]
    right = [block for block in diff.blocks(base, theirs) if block.same]
    spans: list[_Span] = []
    i = j = 0
    while i < len(equal_blocks) and j < len(right):
        start = max(equal_blocks[i].old[0], right[j].old[0])
        end = min(equal_blocks[i].old[1], right[j].old[1])
        if start < end:
            spans.append(_Span((start, _place(equal_blocks[i], start), _place(right[j], start)), end - start))
        if equal_blocks[i].old[1] < right[j].old[1]:
            i += 1
        else:
            j += 1
    return spans


def _place(block: DiffBlock, line: int) -> int:
    return block.new[0] + line - block.old[0]


def _between(base: Sequence[str], mine: Sequence[str], theirs: Sequence[str]) -> list[MergePart]:
    """Merge the lines between two shared spans: a change of one side is applied, changes of both conflict."""
    if mine == theirs or theirs == base:
        return [MergePart(tuple(mine))] if mine else []
    if mine == base:
        return [MergePart(tuple(theirs))] if theirs else []
    first = 0
    while first < min(len(mine), len(theirs)) and mine[first] == theirs[first]:
        first += 1
    last = 0
    while last < min(len(mine), len(theirs)) - first and mine[-1 - last] == theirs[-1 - last]:
        last += 1
    middle = MergePart((), tuple(mine[first : len(mine) - last]), tuple(theirs[first : len(theirs) - last]))
    around = (MergePart(tuple(mine[:first])), middle, MergePart(tuple(mine[len(mine) - last :])))
    return [part for part in around if part.lines or part.conflicts]


def names(base: Sequence[str], mine: Sequence[str], theirs: Sequence[str]) -> tuple[str, ...]:
    """Merge tags or collections by applying the additions and removals of both sides."""
    remaining = [name for name in theirs if name in mine or name not in base]
    return tuple(dict.fromkeys([*remaining, *(name for name in mine if name not in base)]))


def value(base: str, mine: str, theirs: str) -> tuple[str, bool]:
    """Merge a single value; return it, and whether the sides conflict, in which case mine wins."""
    return (theirs if mine == base else mine), base not in (mine, theirs) and mine != theirs


def with_ends_of(text: str, original: str) -> str:
    """Return a text from an HTML form with the line ends of `original` instead of line feeds.

    An existing line keeps its line end; a new line gets that of the preceding line.
    """
    if "\r" not in original:
        return text
    old, new = diff.lines(original), diff.lines(text)
    bare = [line.rstrip("\r\n") for line in old]
    usual = _end_of(old[0]) or "\n"
    result: list[str] = []
    for same, (i, _), (k, m) in diff.blocks(bare, [line.rstrip("\n") for line in new]):
        for at in range(k, m):
            end = _end_of(old[i + at - k]) if same else usual
            usual = end or usual
            result.append(new[at].rstrip("\n") + ((end or usual) if new[at].endswith("\n") else ""))
    return "".join(result)


def _end_of(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]
