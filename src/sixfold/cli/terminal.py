"""Terminal output of the commands: styled text, tables, progress lines and JSON."""

from __future__ import annotations

import io
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

# Numbers of terminal colors, one for each API, that are legible on dark and light backgrounds.
HUES = (173, 136, 71, 67, 97, 132)
_ACCENT = HUES[0]
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
# Minimum number of columns to which text is wrapped.
_MIN_COLUMNS = 24
# Moves the cursor to the start of its line and erases the line.
ERASE_LINE = "\r\x1b[2K"
# The codes of `TerminalStyle`, or a control character that is neither a line end nor a tab.
_CONTROL = re.compile(r"(\x1b\[(?:[012]|38;5;\d{1,3})m)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class CommandError(Exception):
    """Raised when a command cannot run; the message is one sentence with the reason and what to do."""


class TerminalStream(io.TextIOWrapper):
    """Text output to a terminal, in which the control characters of untrusted texts are shown as escapes.

    A terminal would execute them: they move the cursor, change its title, and write to the clipboard.
    """

    @classmethod
    def of(cls, stream: TextIO) -> TextIO:
        """Return a stream for the same file, or `stream` if it is not an unprotected terminal."""
        if isinstance(stream, cls) or not isinstance(stream, io.TextIOWrapper) or not stream.isatty():
            return stream
        return cls(stream.buffer, stream.encoding, stream.errors, line_buffering=True)

    def write(self, text: str, /) -> int:
        """Write text; `ERASE_LINE` has an effect only at its start."""
        start = ERASE_LINE if text.startswith(ERASE_LINE) else ""
        return super().write(start + _CONTROL.sub(_escaped, text[len(start) :]))


def _escaped(match: re.Match[str]) -> str:
    return match[1] or f"\\x{ord(match[0]):02x}"


class TerminalStyle:
    """Styled text for one stream; plain if the stream is not a terminal or color is turned off."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.is_terminal = self.stream.isatty()
        self._on = self.is_terminal and not settings.plain_terminal()

    def _wrap(self, codes: str, text: str) -> str:
        return f"\x1b[{codes}m{text}\x1b[0m" if self._on and text else text

    def bold(self, text: str) -> str:
        """Return `text` in bold, for the subject of a line."""
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        """Return `text` dimmed, for secondary information."""
        return self._wrap("2", text)

    def accent(self, text: str) -> str:
        """Return `text` in the accent color, for completed steps and filled bars."""
        return self.hue(_ACCENT, text)

    def hue(self, number: int, text: str) -> str:
        """Return `text` in a 256-color terminal color."""
        return self._wrap(f"38;5;{number}", text)

    def mark(self) -> str:
        """Return the logo: six dots, one for each API."""
        return "".join(self.hue(number, "●") for number in HUES)

    def width(self) -> int:
        """Return the width of the terminal in columns; 80 without a terminal."""
        return shutil.get_terminal_size((80, 24)).columns if self.is_terminal else 80

    def line(self, text: str = "") -> None:
        """Write one line and flush the stream."""
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def rows(self, pairs: Sequence[tuple[str, str]], indent: int = 2) -> None:
        """Write pairs of label and value in two columns."""
        width = max((len(word) for word, _ in pairs), default=0) + 2
        for word, meaning in pairs:
            self.line(f"{' ' * indent}{self.dim(word.ljust(width))}{meaning}")

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Write a table; the last column is wrapped if the terminal is too narrow."""
        widths = [max(map(_columns, column)) for column in zip(heads, *rows, strict=True)][:-1]

        def join_cells(cells: Sequence[str]) -> str:
            padded = [
                cell + " " * (width - _columns(cell)) for cell, width in zip(cells, widths, strict=False)
            ]
            return self._wrapped(" " * indent + "".join(f"{cell}  " for cell in padded), cells[-1])

        self.line(self.dim(join_cells(heads)))
        for row in rows:
            self.line(join_cells(row))

    def paragraph(self, text: str, indent: int = 2) -> None:
        """Write `text`, wrapped between words if the terminal is too narrow."""
        self.line(self._wrapped(" " * indent, text))

    def _wrapped(self, lead: str, text: str) -> str:
        """Return `lead` and `text`; on a terminal, wrapped with a hanging indent."""
        start = _columns(lead)
        width = max(self.width() - start, _MIN_COLUMNS)
        if not self.is_terminal or _columns(text) <= width:
            return f"{lead}{text}".rstrip()
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
        return lead + f"\n{' ' * start}".join(lines)


def _columns(text: str) -> int:
    """Return the width of `text` in columns, not counting color codes."""
    return len(_COLOR.sub("", text))


class Spinner:
    """A progress line on standard error that redraws itself on a terminal, and is silent otherwise."""

    _CELLS, _EVERY_SECONDS = 28, 0.1

    def __init__(self, label: str, total: int = 0) -> None:
        """Create a progress line; `total` is the number of bytes, or 0 if it is unknown."""
        self._paint = TerminalStyle(sys.stderr)
        self._label = label
        self._total = total
        self._done = 0
        self._drawn = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            self._paint.stream.write(ERASE_LINE)
            self._paint.stream.flush()

    def count(self, amount: int) -> None:
        """Add `amount` bytes to the progress."""
        self._done += amount
        moment = time.monotonic()
        if self._paint.is_terminal and moment - self._drawn >= self._EVERY_SECONDS:
            self._drawn = moment
            self._paint.stream.write(f"{ERASE_LINE}  {self._label}  {self._rail()}{size(self._done)}")
            self._paint.stream.flush()

    def _rail(self) -> str:
        if not self._total:
            return ""
        full = round(min(1.0, self._done / self._total) * self._CELLS)
        return self._paint.accent("━" * full) + self._paint.dim("━" * (self._CELLS - full)) + "  "


class ReadableProgress(Protocol):
    """A readable source of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes."""
        ...


class CountedProgress:
    """A readable file that reports the bytes read to a `Spinner`."""

    def __init__(self, file: ReadableProgress, waiting: Spinner) -> None:
        self._file = file
        self._waiting = waiting

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes and count them."""
        data = self._file.read(size)
        self._waiting.count(len(data))
        return data


def json_text(document: Any) -> str:
    """Return a document as indented JSON that ends with a newline."""
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def put_json(document: Any) -> None:
    """Print a document as JSON on standard output."""
    sys.stdout.write(json_text(document))
