"""How the command line looks: six hues, one column of words, and JSON for programs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from sixfold import settings

# One hue per area, in the order of the contract: 256-colour numbers that read on dark and on light.
HUES = (173, 136, 71, 67, 97, 132)
_ACCENT = HUES[0]


class Refused(Exception):
    """The command cannot be done; the text is one sentence that says why and the way out."""


class Paint:
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
        """Write one line; what comes of it is seen at once."""
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def rows(self, pairs: Sequence[tuple[str, str]], indent: int = 2) -> None:
        """Write words with what they mean, in two columns."""
        room = max((len(word) for word, _ in pairs), default=0) + 2
        for word, meaning in pairs:
            self.line(f"{' ' * indent}{self.dim(word.ljust(room))}{meaning}")

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Write a table; the last column may be as long as it likes."""
        columns = range(len(heads))
        widths = [max([len(heads[i]), *(len(row[i]) for row in rows)]) for i in columns]
        widths[-1] = 0

        def joined(cells: Sequence[str]) -> str:
            cells = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
            return (" " * indent + "  ".join(cells)).rstrip()

        self.line(self.dim(joined(heads)))
        for row in rows:
            self.line(joined(row))


def put_json(document: Any) -> None:
    """Print one JSON document for a program."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")


def duration(ms: float) -> str:
    """A time as people read it: `0.3 ms`, `41 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if ms < 1000:
        return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def size(count: int) -> str:
    """Bytes as people read them: `812 B`, `1.4 MB`."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""
