"""AWS event streams: split a stream of binary messages into events.

Source: https://docs.aws.amazon.com/transcribe/latest/dg/streaming-setting-up.html#streaming-event-stream. A
message consists of two lengths with a checksum, the headers, the payload, and a checksum of the whole
message.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

_PRELUDE = struct.Struct(">III")
_CHECKSUM_BYTES = 4
# Maximum size of a message.
_MAX_BYTES = 24 * 2**20
# Sizes of header values by type; strings and byte arrays begin with their length.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_WITH_LENGTH = frozenset({6, 7})


class AwsEvent(NamedTuple):
    """An event: its string headers and its payload."""

    headers: dict[str, str]
    payload: bytes

    @property
    def kind(self) -> str:
        """The type of an event, or of an exception."""
        return self.headers.get(":event-type") or self.headers.get(":exception-type", "")

    @property
    def failed(self) -> bool:
        """Whether the event reports an error of the server."""
        return self.headers.get(":message-type") in ("exception", "error")


class AwsEventSplitter:
    """Returns the complete events of a stream and buffers the incomplete rest."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def size(self) -> int:
        """The bytes of the incomplete event."""
        return len(self._buffer)

    def feed(self, block: bytes) -> list[AwsEvent]:
        """Return the events that a block completes; raises `ValueError` if the stream is invalid."""
        self._buffer += block
        events: list[AwsEvent] = []
        at = 0
        while len(self._buffer) - at >= _PRELUDE.size:
            size, header_bytes, checksum = _PRELUDE.unpack_from(self._buffer, at)
            least = _PRELUDE.size + header_bytes + _CHECKSUM_BYTES
            if zlib.crc32(self._buffer[at : at + 8]) != checksum or not least <= size <= _MAX_BYTES:
                raise ValueError("the event stream is invalid")
            if len(self._buffer) - at < size:
                break
            message = bytes(self._buffer[at : at + size])
            at += size
            if zlib.crc32(message[:-_CHECKSUM_BYTES]) != int.from_bytes(message[-_CHECKSUM_BYTES:]):
                raise ValueError("the event stream has an incorrect checksum")
            end = _PRELUDE.size + header_bytes
            payload = message[end:-_CHECKSUM_BYTES]
            events.append(AwsEvent(_parse_headers(message[_PRELUDE.size : end]), payload))
        del self._buffer[:at]
        return events


def _parse_headers(data: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode(), data[name_end]
            at = name_end + 1
            if kind in _WITH_LENGTH:
                size = int.from_bytes(data[at : at + 2])
                if kind == 7:
                    headers[name] = data[at + 2 : at + 2 + size].decode()
                at += 2 + size
            else:
                at += _SIZES[kind]
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise ValueError("the event stream has invalid headers") from error
    return headers
