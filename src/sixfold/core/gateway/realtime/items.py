"""The items of a realtime conversation."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from sixfold.core.gateway.chat import ImagePart, ToolSpec

ItemStatus = Literal["in_progress", "completed", "incomplete"]
MessageRole = Literal["user", "assistant", "system"]


class TextContent(msgspec.Struct):
    """A text part of a message."""

    text: str

    @property
    def chars(self) -> int:
        return len(self.text)


class ImageContent(msgspec.Struct):
    """An image part of a message."""

    image: ImagePart

    @property
    def chars(self) -> int:
        return len(self.image.data) + len(self.image.url)


class AudioContent(msgspec.Struct):
    """An audio part of a message; only its transcript is stored, which is None until it is known.

    `marks` are pairs of a position in the audio in milliseconds and the transcript's length at that position.
    """

    transcript: str | None = None
    marks: list[tuple[int, int]] = []

    @property
    def chars(self) -> int:
        return len(self.transcript or "")

    @property
    def duration_ms(self) -> int:
        """The duration in milliseconds of the audio generated so far."""
        return self.marks[-1][0] if self.marks else 0

    def truncate(self, end_ms: int) -> None:
        """Remove the audio after `end_ms`, and the words of the transcript that were not played."""
        start_ms, start = 0, 0
        text = self.transcript or ""
        for mark_ms, length in self.marks:
            if mark_ms > end_ms:
                share = (end_ms - start_ms) / (mark_ms - start_ms)
                words = text[start : start + round((length - start) * share)].rpartition(" ")[0]
                self.transcript = (text[:start] + words).rstrip()
                self.marks = [mark for mark in self.marks if mark[0] <= end_ms]
                self.marks.append((end_ms, len(self.transcript)))
                return
            start_ms, start = mark_ms, length


ContentPart = TextContent | ImageContent | AudioContent


class MessageItem(msgspec.Struct):
    """A message of the user, the model or the system."""

    id: str
    role: MessageRole
    parts: list[ContentPart]
    status: ItemStatus = "completed"

    @property
    def size(self) -> int:
        """The number of parts of the message, at least 1."""
        return max(1, len(self.parts))

    @property
    def chars(self) -> int:
        return sum(part.chars for part in self.parts)


class CallItem(msgspec.Struct):
    """A function call by the model; `arguments` is a JSON string."""

    id: str
    call_id: str
    name: str
    arguments: str = ""
    status: ItemStatus = "completed"
    size = 1

    @property
    def chars(self) -> int:
        return len(self.name) + len(self.arguments)


class CallOutputItem(msgspec.Struct):
    """The result of a function call."""

    id: str
    call_id: str
    output: str
    status: ItemStatus = "completed"
    size = 1

    @property
    def chars(self) -> int:
        return len(self.output)


class ServerCallItem(msgspec.Struct):
    """A call of an MCP server's tool, which this server makes.

    `shown_name` is the tool's name for the model. `output` is None until the call has ended; `failed` is True
    if the output is an error.
    """

    id: str
    server: str
    name: str
    shown_name: str
    arguments: str = ""
    output: str | None = None
    failed: bool = False
    size = 1

    @property
    def chars(self) -> int:
        return len(self.name) + len(self.arguments) + len(self.output or "")


class ToolListItem(msgspec.Struct):
    """The tools of an MCP server, empty until they are known; `chars` is their length as JSON."""

    id: str
    server: str
    tools: Sequence[ToolSpec] = ()
    chars: int = 0
    size = 1


RealtimeItem = MessageItem | CallItem | CallOutputItem | ServerCallItem | ToolListItem


def stored_bytes(items: Sequence[RealtimeItem]) -> int:
    """Return the memory of the texts of these items; one emoji quadruples that of its text."""
    return sum(sys.getsizeof(text) for item in items for text in _texts(item)) + sum(
        item.chars for item in items if isinstance(item, ToolListItem)
    )


def _texts(item: RealtimeItem) -> Iterator[str]:
    match item:
        case MessageItem():
            for part in item.parts:
                yield from _texts_of_part(part)
        case CallItem():
            yield from (item.name, item.arguments)
        case CallOutputItem():
            yield item.output
        case ServerCallItem():
            yield from (item.name, item.arguments, item.output or "")
        case ToolListItem():
            return


def _texts_of_part(part: ContentPart) -> tuple[str, ...]:
    if isinstance(part, ImageContent):
        return part.image.data, part.image.url
    return (part.text if isinstance(part, TextContent) else part.transcript or "",)
