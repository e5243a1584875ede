"""The field `api_key` of a request body, found without building the rest of the body."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_plus

import msgspec
from python_multipart.multipart import parse_options_header

from sixfold import errors
from sixfold.web.bodies import INVALID_FORM, INVALID_JSON, MAX_PARTS

_NAME = "api_key"
_MAX_BYTES = 4096  # of a value that is worth decoding; a key has 46
_MAX_HEADER_BYTES = 8192
_TOO_LONG = ""  # no key


class _Credential(msgspec.Struct):
    api_key: msgspec.Raw = msgspec.Raw(b"null")


_read = msgspec.json.Decoder(_Credential).decode


def in_json(raw: bytes) -> Any:
    """The member of the outermost object, None where it is absent; raises `BadRequest` for malformed JSON.

    The decoder skips all other values and allocates nothing for them. Of a repeated member the last one
    counts, as when the whole document is decoded.
    """
    try:
        value = _read(raw).api_key
        return msgspec.json.decode(value) if len(bytes(value)) <= _MAX_BYTES else _TOO_LONG
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise errors.BadRequest(INVALID_JSON) from error


def in_urlencoded(raw: bytes) -> str | None:
    """The last such field that is not empty; raises `BadRequest` for too many fields."""
    if raw.count(b"&") >= MAX_PARTS:
        raise errors.BadRequest(INVALID_FORM)
    found = None
    for field in raw.split(b"&"):
        name, _, value = field.partition(b"=")
        if len(name) <= _MAX_BYTES and value and unquote_plus(name.decode("utf-8", "replace")) == _NAME:
            found = unquote_plus(value.decode("utf-8", "replace")) if len(value) <= _MAX_BYTES else _TOO_LONG
    return found


def in_multipart(raw: bytes, content_type: str) -> str | None:
    """The last such part that is not empty and no file; raises `BadRequest` for a form without a boundary."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise errors.BadRequest(INVALID_FORM)
    delimiter = b"\r\n--" + boundary
    found, at = None, 0 if raw.startswith(delimiter[2:]) else raw.find(delimiter)
    for _ in range(MAX_PARTS + 1):
        start = raw.find(b"\r\n", at + 2)
        end = raw.find(b"\r\n\r\n", start, start + _MAX_HEADER_BYTES)
        if at < 0 or start < 0 or end < 0:
            return found
        at = raw.find(delimiter, end + 2)
        if at > end + 4 and _is_key(raw[start:end]):
            value = raw[end + 4 : at]
            found = value.decode("utf-8", "replace") if len(value) <= _MAX_BYTES else _TOO_LONG
    raise errors.BadRequest(INVALID_FORM)


def _is_key(headers: bytes) -> bool:
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-disposition":
            _, options = parse_options_header(value.strip())
            return options.get(b"name") == _NAME.encode() and b"filename" not in options
    return False
