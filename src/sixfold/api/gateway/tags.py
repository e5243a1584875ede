"""The tag of a call, by which its usage is reported.

It is the header `X-Sixfold-Tag`, otherwise the request's `metadata.tag`, otherwise the user: `user` in
OpenAI's APIs, `metadata.user_id` in Anthropic's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

MAX_CHARS = 100
NONE = msgspec.Raw(b"null")
_HEADER = b"x-sixfold-tag"
# Larger values are not read.
_MAX_BYTES = 4096
_decode = msgspec.json.Decoder().decode


def of(headers: Mapping[bytes, bytes], metadata: msgspec.Raw = NONE, user: msgspec.Raw = NONE) -> str:
    """Return the tag of a call, truncated to `MAX_CHARS` characters, or "" if it is missing."""
    header = headers.get(_HEADER)
    if header is not None:
        return _text(header.decode("latin-1"))
    if metadata is NONE and user is NONE:
        return ""
    fields = None if metadata is NONE else _value(metadata)
    members = cast("dict[str, Any]", fields) if isinstance(fields, dict) else dict[str, Any]()
    tag = members.get("tag") or (None if user is NONE else _value(user)) or members.get("user_id")
    return "" if tag is None else _text(tag)


def _value(raw: msgspec.Raw) -> Any:
    if memoryview(raw).nbytes > _MAX_BYTES:
        return None
    try:
        return _decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _text(value: Any) -> str:
    """Return a tag without control characters, which PostgreSQL and CSV do not support."""
    if not isinstance(value, str):
        return ""
    return "".join(character for character in value[:MAX_CHARS] if character.isprintable()).strip()
