"""Server-sent events: split a stream into complete events."""

from __future__ import annotations

from collections.abc import Iterator

_MAX_BUFFER_BYTES = 8 * 2**20


class EventSplitter:
    """Returns the complete events of a stream and buffers the incomplete rest."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, block: bytes) -> tuple[bytes, bool]:
        """Return the complete events, and whether a part of the next one is buffered."""
        if self._buffer:
            block, self._buffer = self._buffer + block, b""
            if not block.endswith((b"\n\n", b"\r\n\r\n")) and len(block) > _MAX_BUFFER_BYTES:
                return block, False
        if block.endswith((b"\n\n", b"\r\n\r\n")):
            return block, False
        unix, dos = block.rfind(b"\n\n"), block.rfind(b"\r\n\r\n")
        cut = max(unix + 2 if unix >= 0 else 0, dos + 4 if dos >= 0 else 0)
        self._buffer = block[cut:]
        return block[:cut], bool(self._buffer)

    def flush(self) -> bytes:
        """Return the buffered rest as an event, with the end that the server omitted."""
        remainder, self._buffer = self._buffer, b""
        return remainder and remainder + b"\n\n"


def data(events: bytes) -> Iterator[bytes]:
    for line in events.split(b"\n"):
        if line.startswith(b"data:"):
            value = line[5:].strip()
            if value:
                yield value
