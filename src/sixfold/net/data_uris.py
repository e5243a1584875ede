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
    content = text[comma + 1 :]
    body = _base64(content, max_bytes) if match["base64"] else _percent(content)
    if len(body) > max_bytes:
        raise _too_large(max_bytes)
    return InlineData(body, content_type)


def _percent(content: str) -> bytes:
    try:
        return unquote_to_bytes(content)
    except UnicodeEncodeError as error:
        raise FetchFailed("This data: URI is not valid: its content is not valid UTF-8.") from error


def _base64(content: str, max_bytes: int) -> bytes:
    packed = _percent(content) if "%" in content else content.encode("utf-8", "replace")
    packed = packed.translate(*_BLANKS).rstrip(b"=")
    if len(packed) * 3 // 4 > max_bytes:
        raise _too_large(max_bytes)
    try:
        return base64.b64decode(packed + b"=" * (-len(packed) % 4), validate=True)
    except binascii.Error as error:
        raise FetchFailed("This data: URI is not valid: its content is not base64.") from error


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"The content of this data: URI is larger than {max_bytes} bytes.")
