"""The lines of a transcript with their times, which lead to their place in the recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

# Lines that are shown, about an hour of speech.
_MAX_LINES = 600
# More rows, which are words of several hours, are not drawn: they would block the event loop.
_MAX_ROWS = 30_000
_MAX_CHARS = 1000
_MAX_SECONDS = 1_000_000
# Words without segments are grouped until a pause, in seconds, the end of a sentence or a number of words.
_PAUSE, _MAX_WORDS, _ENDS = 0.8, 16, (".", "?", "!", "…", "。", "？", "！")


class TranscriptLine(msgspec.Struct, frozen=True):
    """A part of the text with its times in seconds."""

    text: str
    start: float
    end: float

    @property
    def time(self) -> str:
        """The start as minutes and seconds, with hours if there are any."""
        minutes, seconds = divmod(int(self.start), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class TranscriptView(msgspec.Struct, frozen=True):
    """The first lines of a transcript in the order of their times, and the number of all lines."""

    lines: Sequence[TranscriptLine]
    count: int

    @property
    def text(self) -> str:
        """The text of all lines that are shown."""
        return "\n".join(line.text for line in self.lines)


def draw(_model: str, _inputs: Mapping[str, Any], data: Mapping[str, Any]) -> TranscriptView | None:
    """Return the transcript in `segments`, or else in `words`; None for a text without times."""
    lines = list(_lines(data.get("segments"), "text")) or list(_grouped(_lines(data.get("words"), "word")))
    if not lines:
        return None
    ordered = sorted(lines, key=lambda line: line.start)
    return TranscriptView(ordered[:_MAX_LINES], len(ordered))


def _lines(rows: object, name: str) -> Iterator[TranscriptLine]:
    """Yield the rows with a text and times."""
    items = cast("list[Any]", rows) if isinstance(rows, list) else []
    for row in items if len(items) <= _MAX_ROWS else ():
        fields = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
        text = str(fields.get(name) or fields.get("text") or "").strip()
        start, end = _seconds(fields.get("start")), _seconds(fields.get("end"))
        if text and start is not None and end is not None:
            yield TranscriptLine(text[:_MAX_CHARS], start, end)


def _seconds(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value <= _MAX_SECONDS else None


def _grouped(words: Iterator[TranscriptLine]) -> Iterator[TranscriptLine]:
    """Yield lines of words that belong together."""
    group: list[TranscriptLine] = []
    for word in words:
        if group and (word.start - group[-1].end > _PAUSE or len(group) == _MAX_WORDS):
            yield _joined(group)
            group = []
        group.append(word)
        if word.text.endswith(_ENDS):
            yield _joined(group)
            group = []
    if group:
        yield _joined(group)


def _joined(words: Sequence[TranscriptLine]) -> TranscriptLine:
    return TranscriptLine(" ".join(word.text for word in words), words[0].start, words[-1].end)
