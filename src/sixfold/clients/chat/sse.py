"""Server-sent events as they pass: cut into whole events, whatever the blocks they came in."""

from __future__ import annotations

from collections.abc import Iterator

_MOST = 8 * 2**20


class EventSplitter:
    """Gives the whole events of a stream, and keeps the beginning of the next."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, block: bytes) -> tuple[bytes, bool]:
        """The whole events that are there now, and whether the beginning of another is kept."""
        if self._rest:
            block, self._rest = self._rest + block, b""
            if not block.endswith((b"\n\n", b"\r\n\r\n")) and len(block) > _MOST:
                return block, False
        if block.endswith((b"\n\n", b"\r\n\r\n")):
            return block, False
        unix, dos = block.rfind(b"\n\n"), block.rfind(b"\r\n\r\n")
        cut = max(unix + 2 if unix >= 0 else 0, dos + 4 if dos >= 0 else 0)
        self._rest = block[cut:]
        return block[:cut], bool(self._rest)

    def flush(self) -> bytes:
        """What was kept: the last event, with the end that the server left out."""
        rest, self._rest = self._rest, b""
        return rest and rest + b"\n\n"


def data(events: bytes) -> Iterator[bytes]:
    """The data of each event."""
    for line in events.split(b"\n"):
        if line.startswith(b"data:"):
            found = line[5:].strip()
            if found:
                yield found
