"""How the command line looks: six hues, one column of words, and JSON for programs."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from typing import Any, Protocol, Self, TextIO

from sixfold import settings
from sixfold.core.humanize import size

# One hue per area, in the order of the contract: 256-colour numbers that read on dark and on light.
HUES = (173, 136, 71, 67, 97, 132)
_ACCENT = HUES[0]
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LEAST_COLUMNS = 24  # a column is not folded narrower than this


class CommandError(Exception):
    """The command cannot be done; the text is one sentence that says why and the way out."""


class TerminalStyle:
    """Text for one stream, coloured where that is wanted and possible."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.is_terminal = self.stream.isatty()
        self._on = self.is_terminal and not settings.plain_terminal()

    def _wrap(self, codes: str, text: str) -> str:
        return f"\x1b[{codes}m{text}\x1b[0m" if self._on and text else text

    def bold(self, text: str) -> str:
        """What a line is about."""
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        """What may be skipped in reading."""
        return self._wrap("2", text)

    def accent(self, text: str) -> str:
        """What has happened: a lit station, a full bar."""
        return self.hue(_ACCENT, text)

    def hue(self, number: int, text: str) -> str:
        """One of the six hues."""
        return self._wrap(f"38;5;{number}", text)

    def mark(self) -> str:
        """Six dots, one per interface."""
        return "".join(self.hue(number, "●") for number in HUES)

    def width(self) -> int:
        """How many columns there are."""
        return shutil.get_terminal_size((80, 24)).columns if self.is_terminal else 80

    def line(self, text: str = "") -> None:
        """Write one line, and flush it."""
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def rows(self, pairs: Sequence[tuple[str, str]], indent: int = 2) -> None:
        """Write words with what they mean, in two columns."""
        room = max((len(word) for word, _ in pairs), default=0) + 2
        for word, meaning in pairs:
            self.line(f"{' ' * indent}{self.dim(word.ljust(room))}{meaning}")

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Write a table; its last column may be long, and is folded where a terminal is too narrow."""
        widths = [max(map(_columns, column)) for column in zip(heads, *rows, strict=True)][:-1]

        def joined(cells: Sequence[str]) -> str:
            padded = [
                cell + " " * (width - _columns(cell)) for cell, width in zip(cells, widths, strict=False)
            ]
            return self._folded(" " * indent + "".join(f"{cell}  " for cell in padded), cells[-1])

        self.line(self.dim(joined(heads)))
        for row in rows:
            self.line(joined(row))

    def paragraph(self, text: str, indent: int = 2) -> None:
        """Write a text, folded between words where a terminal is too narrow."""
        self.line(self._folded(" " * indent, text))

    def _folded(self, lead: str, text: str) -> str:
        """`text` after `lead`, its further lines below its first; one line where nobody watches."""
        start = _columns(lead)
        room = max(self.width() - start, _LEAST_COLUMNS)
        if not self.is_terminal or _columns(text) <= room:
            return f"{lead}{text}".rstrip()
        lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
        return lead + f"\n{' ' * start}".join(lines)


def _columns(text: str) -> int:
    """How many columns of a terminal a text fills: its colours fill none."""
    return len(_COLOUR.sub("", text))


class Spinner:
    """What is being waited for, on one line that redraws itself; silent where nobody watches."""

    _CELLS, _EVERY_SECONDS = 28, 0.1

    def __init__(self, what: str, total: int = 0) -> None:
        """`total` is how many bytes there are, where that is known."""
        self._paint = TerminalStyle(sys.stderr)
        self._what = what
        self._total = total
        self._done = 0
        self._drawn = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            self._paint.stream.write("\r\x1b[2K")
            self._paint.stream.flush()

    def count(self, amount: int) -> None:
        """So many bytes more."""
        self._done += amount
        moment = time.monotonic()
        if self._paint.is_terminal and moment - self._drawn >= self._EVERY_SECONDS:
            self._drawn = moment
            self._paint.stream.write(f"\r\x1b[2K  {self._what}  {self._rail()}{size(self._done)}")
            self._paint.stream.flush()

    def _rail(self) -> str:
        if not self._total:
            return ""
        full = round(min(1.0, self._done / self._total) * self._CELLS)
        return self._paint.accent("━" * full) + self._paint.dim("━" * (self._CELLS - full)) + "  "


class ReadableProgress(Protocol):
    """What can be read in pieces."""

    def read(self, size: int = -1, /) -> bytes:
        """Some bytes."""
        ...


class CountedProgress:
    """A file that is read, and the line that tells how far."""

    def __init__(self, file: ReadableProgress, waiting: Spinner) -> None:
        self._file = file
        self._waiting = waiting

    def read(self, size: int = -1, /) -> bytes:
        """Some bytes."""
        data = self._file.read(size)
        self._waiting.count(len(data))
        return data


def json_text(document: Any) -> str:
    """A document as this program prints it: indented, with a line's end."""
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def put_json(document: Any) -> None:
    """Print one JSON document for a program."""
    sys.stdout.write(json_text(document))
