"""Urlencoded forms, decoded in slices: the library's functions hold a list of all escape sequences."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

from sixfold import errors
from sixfold.core.input_budget import InputBudget, Limit

_INVALID = "Invalid form body"
_SLICE_BYTES = 64 * 1024
# 32 MiB of base64 have a million; each takes time to decode.
_ESCAPES = Limit(2_400_000, "The form may have at most {:,} percent-encoded bytes")


def decode(raw: bytes, *, max_fields: int, keep_blank: bool = False) -> dict[str, str]:
    """The last value of each field; raises `BadRequest` and `InputTooLarge`."""
    InputBudget(escapes=_ESCAPES).spend(escapes=raw.count(b"%"))
    if raw.count(b"&") >= max_fields:
        raise errors.BadRequest(f"{_INVALID}: it has more than {max_fields} fields")
    try:
        return dict(_fields(raw, keep_blank=keep_blank))
    except UnicodeDecodeError as error:
        raise errors.BadRequest(_INVALID) from error


def _fields(raw: bytes, *, keep_blank: bool) -> Iterator[tuple[str, str]]:
    for field in raw.split(b"&"):
        name, _, value = field.partition(b"=")
        if value or (keep_blank and field):
            yield _text(name), _text(value)


def _text(raw: bytes) -> str:
    raw = raw.replace(b"+", b" ")
    return (b"".join(map(unquote_to_bytes, _slices(raw))) if b"%" in raw else raw).decode("utf-8")


def _slices(raw: bytes) -> Iterator[bytes]:
    """Cut a text where no escape sequence is."""
    start = 0
    while start < len(raw):
        end = start + _SLICE_BYTES
        cut = raw.find(b"%", end - 2, end)
        end = cut if cut >= 0 else end
        yield raw[start:end]
        start = end
