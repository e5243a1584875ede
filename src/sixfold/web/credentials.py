"""The field `api_key` of a request body, found without building the rest of the body."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_plus

import msgspec

from sixfold import errors
from sixfold.web.bodies import INVALID_JSON, MAX_PARTS
from sixfold.web.multipart import INVALID_FORM, Head, PartHandler, Splitter

_NAME = "api_key"
_MAX_BYTES = 4096  # of a value that is worth decoding; a key has 46
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
    """The last such part that is not empty and no file; raises `BadRequest` for a malformed form."""
    reader = _KeyReader()
    Splitter(content_type, reader).feed(raw)
    return reader.key


class _KeyReader(PartHandler):
    key: str | None = None
    _wanted = False
    _data = b""

    def begin(self, head: Head) -> None:
        self._wanted, self._data = head.name == _NAME and head.filename is None, b""

    def take(self, data: memoryview) -> None:
        if self._wanted:
            self._data += data[: _MAX_BYTES + 1 - len(self._data)]

    def end(self) -> None:
        if self._wanted and self._data:
            self.key = self._data.decode("utf-8", "replace") if len(self._data) <= _MAX_BYTES else _TOO_LONG
