"""Parsing of `data:` URIs, which contain their content."""

from __future__ import annotations

import base64
import binascii
import io
import re
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from sixfold.core.input_limits import percent_encoding
from sixfold.errors import FetchFailed, TooLarge

_HEADER = re.compile(r"data:(?P<type>[^;,]*)(?P<parameters>(?:;[^;,]*)*?)(?P<base64>;base64)?", re.I)
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,127}/[a-z0-9!#$&^_.+-]{1,127}")
_MAX_HEADER = 1024
_PIECE_CHARS, _TAIL_CHARS = 1 << 20, 4096
_PADDING = "= \t\r\n\f"
_NOT_BASE64 = "This data: URI is not valid: its content is not base64."
_BLANKS = bytes.maketrans(b"", b""), b" \t\r\n\f"


class InlineData(msgspec.Struct, frozen=True):
    """The content of a data: URI; the content type is not verified."""

    body: bytes
    content_type: str


def is_data_uri(text: str) -> bool:
    return text[:5].lower() == "data:"


def parse_data_uri(text: str, max_bytes: int) -> InlineData:
    """Decode a data: URI; raises `FetchFailed` if it is invalid, and `TooLarge` before decoding."""
    body = io.BytesIO()
    content_type = write_data_uri(text, body, max_bytes)
    return InlineData(body.getvalue(), content_type)


def write_data_uri(text: str, target: BinaryIO, max_bytes: int) -> str:
    """Decode a data: URI into a file in pieces, and return its content type; raises as `parse_data_uri`."""
    comma = text.find(",", 0, _MAX_HEADER)
    match = _HEADER.fullmatch(text, 0, comma) if comma >= 0 else None
    if match is None:
        raise FetchFailed("This data: URI is not valid: it must be data:<type>;base64,<content>.")
    content_type = match["type"].strip().lower() or "text/plain"
    if not _MEDIA_TYPE.fullmatch(content_type):
        raise FetchFailed("This data: URI is not valid: its media type must be type/subtype.")
    # A byte is encoded in at most three characters (%41), or more in base64 if those are escaped too.
    if len(text) - comma - 1 > max_bytes * (6 if match["base64"] else 3) + 1024:
        raise _too_large(max_bytes)
    pieces = _base64(text, comma + 1) if match["base64"] else _unescaped(text, comma + 1)
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        target.write(piece)
    return content_type


def _unescaped(text: str, start: int) -> Iterator[bytes]:
    try:
        yield from percent_encoding.pieces(text, start)
    except UnicodeEncodeError as error:
        raise FetchFailed("This data: URI is not valid: its content is not valid UTF-8.") from error


def _base64(text: str, start: int) -> Iterator[bytes]:
    """Decode base64 from a position in pieces: one call for 100 MB would hold the GIL for a second."""
    if "%" in text:
        text, start = b"".join(_unescaped(text, start)).decode("latin-1"), 0
    end = _content_end(text)
    rest = b""
    while start < end:
        stop = min(end, start + _PIECE_CHARS)
        packed = rest + text[start:stop].encode("utf-8", "replace").translate(*_BLANKS)
        cut = len(packed) - len(packed) % 4
        # Padding is allowed at the end only.
        if b"=" in packed:
            raise FetchFailed(_NOT_BASE64)
        yield _decoded(packed[:cut])
        start, rest = stop, packed[cut:]
    yield _decoded(rest + b"=" * (-len(rest) % 4))


def _content_end(text: str) -> int:
    """Return the end of the text without padding and blanks, searched from the end without a copy."""
    end = len(text)
    while end:
        begin = max(0, end - _TAIL_CHARS)
        if tail := text[begin:end].rstrip(_PADDING):
            return begin + len(tail)
        end = begin
    return 0


def _decoded(packed: bytes) -> bytes:
    try:
        return base64.b64decode(packed, validate=True)
    except binascii.Error as error:
        raise FetchFailed(_NOT_BASE64) from error


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"The content of this data: URI is larger than {max_bytes} bytes.")
