"""Server-sent events: split a stream into complete events, within limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from sixfold import errors
from sixfold.core.gateway.ports import UpstreamFailure
from sixfold.core.input_limits.json_limits import JsonLimits

_MAX_BUFFER_BYTES = 8 * 2**20
# Maximum number of lines that are parsed in one iteration of the event loop.
_MAX_LINES = 100_000
# A smaller event takes at most 2 ms to parse.
_SMALL_BYTES = 64 * 1024
# The largest event is the one that repeats a whole response.
_LIMITS = JsonLimits(containers=100_000, members=200_000, values=500_000)
# Base64 characters of streamed audio (16 bits, 24 kHz) with as many tokens as a character of text: a token is
# a twentieth of a second of audio, or 3.5 characters of text.
_AUDIO_CHARS = 914
# The same for an image, which takes 1,290 tokens at Google.
_IMAGE_CHARS = 4_515
_UNIX, _DOS = b"\n\n", b"\r\n\r\n"


class EventSplitter:
    """Returns the complete events of a stream and buffers the incomplete rest, in linear time."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def size(self) -> int:
        """The bytes of the incomplete event."""
        return len(self._buffer)

    def feed(self, block: bytes) -> tuple[bytes, bool]:
        """Return the complete events, and whether a part of the next one is buffered."""
        start = 0
        if self._buffer:
            # The end of an event may begin in bytes that were searched before.
            start = max(0, len(self._buffer) - len(_DOS) + 1)
            self._buffer += block
            if len(self._buffer) > _MAX_BUFFER_BYTES or self._buffer.endswith((_UNIX, _DOS)):
                return self._take(len(self._buffer)), False
            unix, dos = self._buffer.rfind(_UNIX, start), self._buffer.rfind(_DOS, start)
            return self._take(_end(unix, dos)), bool(self._buffer)
        if block.endswith((_UNIX, _DOS)):
            return block, False
        cut = _end(block.rfind(_UNIX), block.rfind(_DOS))
        self._buffer += block[cut:]
        return block[:cut], bool(self._buffer)

    def flush(self) -> bytes:
        """Return the buffered rest as an event, with the delimiter that the server omitted."""
        remainder = self._take(len(self._buffer))
        return remainder and remainder + _UNIX

    def _take(self, size: int) -> bytes:
        # A slice of the buffer would be a second copy.
        with memoryview(self._buffer) as view:
            piece = bytes(view[:size])
        del self._buffer[:size]
        return piece


def _end(unix: int, dos: int) -> int:
    """Return the offset at which the last event ends, given the offsets of the two possible delimiters."""
    return max(unix + len(_UNIX) if unix >= 0 else 0, dos + len(_DOS) if dos >= 0 else 0)


def data(events: bytes) -> Iterator[bytes]:
    """Yield the data of events; raises `UpstreamFailure` if they would take too long to parse."""
    if len(events) > _MAX_LINES and events.count(b"\n") > _MAX_LINES:
        raise UpstreamFailure(f"sent events of more than {_MAX_LINES:,} lines")
    for line in events.split(b"\n"):
        if line.startswith(b"data:"):
            value = line[5:].strip()
            if len(value) > _SMALL_BYTES:
                _check(value)
            if value:
                yield value


def _check(value: bytes) -> None:
    try:
        _LIMITS.check(value)
    except errors.InputTooLarge as error:
        raise UpstreamFailure("sent an event with too many values") from error


def other_chars(function_call: Any, audio: Any, images: Any) -> int:
    """Return the length of a text with as many tokens as the other content of a chat, in its JSON types."""
    if function_call is None and audio is None and images is None:
        return 0
    count = len(cast("list[Any]", images)) if isinstance(images, list) else 0
    audio_chars = -(-len(_text(audio, "data")) // _AUDIO_CHARS) + len(_text(audio, "transcript"))
    return len(_text(function_call, "arguments")) + audio_chars + count * _IMAGE_CHARS


def _text(value: Any, name: str) -> str:
    text = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""
