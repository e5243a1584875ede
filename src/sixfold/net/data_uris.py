"""Parsing of `data:` URIs, which contain their content."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

import msgspec

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
    body = _base64(text, comma + 1, max_bytes) if match["base64"] else _percent(text[comma + 1 :])
    if len(body) > max_bytes:
        raise _too_large(max_bytes)
    return InlineData(body, content_type)


def _percent(content: str) -> bytes:
    try:
        return unquote_to_bytes(content)
    except UnicodeEncodeError as error:
        raise FetchFailed("This data: URI is not valid: its content is not valid UTF-8.") from error


def _base64(text: str, start: int, max_bytes: int) -> bytes:
    """Decode base64 from a position in pieces: one call for 100 MB would hold the GIL for a second."""
    if "%" in text:
        text, start = _percent(text[start:]).decode("latin-1"), 0
    end = _content_end(text)
    body, rest = bytearray(), b""
    while start < end:
        stop = min(end, start + _PIECE_CHARS)
        packed = rest + text[start:stop].encode("utf-8", "replace").translate(*_BLANKS)
        cut = len(packed) - len(packed) % 4
        # Padding is allowed at the end only.
        if b"=" in packed:
            raise FetchFailed(_NOT_BASE64)
        body += _decoded(packed[:cut])
        start, rest = stop, packed[cut:]
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
    body += _decoded(rest + b"=" * (-len(rest) % 4))
    return bytes(body)


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
