"""Request bodies with a `Content-Encoding`, decompressed piece by piece as they are received."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator, MutableMapping
from typing import Any

from starlette.types import Message, Receive

from sixfold import errors
from sixfold.web import bodies

# A piece of output takes less than a millisecond. Input is sliced, as zlib copies what follows a gzip member.
_PIECE_BYTES, _SLICE_BYTES = 64 * 1024, 16 * 1024
# `gzip` writes one member; members without content would take time without counting as body.
_MAX_MEMBERS = 1000
_GZIP, _ZLIB, _RAW_DEFLATE = 31, 15, -15
_GZIP_NAMES = frozenset({b"gzip", b"x-gzip"})
_ZLIB_METHOD = 8
_SUPPORTED = "gzip, deflate"


class _BodyInflater:
    """Decompresses one body; `deflate` is read with or without the header of zlib, as clients send both."""

    def __init__(self, encoding: bytes) -> None:
        self._name = encoding.decode("ascii")
        self._is_gzip = encoding in _GZIP_NAMES
        self._stream: Any = None
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output in pieces of limited size; raises `BadRequest`."""
        for at in range(0, len(data), _SLICE_BYTES):
            pending, is_full = data[at : at + _SLICE_BYTES], False
            # The last piece may be full while all input is consumed.
            while pending or (is_full and not self._stream.eof):
                stream = self._open(pending)
                try:
                    piece = stream.decompress(pending, _PIECE_BYTES)
                except zlib.error as error:
                    raise errors.BadRequest(f"The request body is not valid {self._name} data") from error
                if piece:
                    yield piece
                is_full = len(piece) == _PIECE_BYTES
                pending = stream.unused_data if stream.eof else stream.unconsumed_tail

    def _open(self, data: bytes) -> Any:
        if self._stream is not None and not self._stream.eof:
            return self._stream
        self._members += 1
        if self._members > (_MAX_MEMBERS if self._is_gzip else 1):
            raise errors.BadRequest(f"The request body continues after its {self._name} data")
        has_header = data[0] & 0x0F == _ZLIB_METHOD
        bits = _GZIP if self._is_gzip else _ZLIB if has_header else _RAW_DEFLATE
        self._stream = zlib.decompressobj(bits)
        return self._stream

    def finish(self) -> None:
        """Raise `BadRequest` if the data ended too early; an empty body is valid."""
        if self._stream is not None and not self._stream.eof:
            raise errors.BadRequest(f"The request body ends within its {self._name} data")


def decode(scope: MutableMapping[str, Any], receive: Receive, max_bytes: int) -> Receive:
    """Return a `receive` for the decompressed body of a request, and remove the encoding from its headers.

    The limit applies to the compressed body here, and to the decompressed one where it is read. Raises
    `UnsupportedMedia` for another encoding.
    """
    values = [value for name, value in scope["headers"] if name == b"content-encoding"]
    encoding = b",".join(values).strip().lower()
    if encoding in (b"", b"identity"):
        return receive
    if encoding not in _GZIP_NAMES and encoding != b"deflate":
        excerpt = encoding[:50].decode("latin-1")
        raise errors.UnsupportedMedia(f"Content-Encoding must be one of {_SUPPORTED} (got {excerpt!r})")
    bodies.check_content_length(scope, max_bytes)
    lengths = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
    headers = [header for header in scope["headers"] if header[0] not in lengths]
    scope["headers"] = [*headers, (b"transfer-encoding", b"chunked")]
    messages = _messages(bodies.limit_body(receive, max_bytes), _BodyInflater(encoding))

    async def decoded() -> Message:
        message = await anext(messages, None)
        return await receive() if message is None else message

    return decoded


async def _messages(receive: Receive, inflater: _BodyInflater) -> AsyncGenerator[Message]:
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            yield message
            return
        more = message.get("more_body", False)
        for piece in inflater.feed(message.get("body", b"")):
            yield {"type": "http.request", "body": piece, "more_body": True}
            # Let the event loop serve other requests between two pieces.
            await asyncio.sleep(0)
    inflater.finish()
    yield {"type": "http.request", "body": b"", "more_body": False}
