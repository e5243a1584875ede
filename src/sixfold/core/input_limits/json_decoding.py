"""Decoding of large JSON documents in pieces.

The decoder holds the GIL: one call for a document of 32 MiB blocks all threads for up to a fifth of a second.
Between pieces, other threads can run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from sixfold.core.input_limits import json_limits
from sixfold.core.input_limits.budget import InputBudget, Limit

PIECE_BYTES = 2**19
# Nesting levels of arrays and objects that are split; each level scans its content once more.
_MAX_LEVELS = 16
_LARGE_BYTES = 8 * 2**20
_DEEP = Limit(
    _LARGE_BYTES, f"A value that is nested {_MAX_LEVELS} levels deep may have at most {{:,}} bytes of JSON"
)
# One non-ASCII character makes a string up to four times as large in memory.
_TEXT = Limit(_LARGE_BYTES, "A string with characters beyond ASCII may have at most {:,} bytes of JSON")
_FIRST = re.compile(rb"[ \t\r\n]*(.)", re.DOTALL)


def number(text: str) -> float:
    """Convert a JSON number, as `float_hook` of a decoder; raises `ValidationError` if it is out of range."""
    value = float(text)
    if math.isinf(value):
        raise msgspec.ValidationError("Number out of range")
    return value


# The decoder's own conversion takes 7 µs for a number below 1e-290, Python's less than 1 µs.
decode_whole = msgspec.json.Decoder(float_hook=number).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def decode(raw: bytes | msgspec.Raw) -> Any:
    """Decode any JSON value; raises `msgspec.DecodeError` and `InputTooLarge`."""
    json_limits.check_levels(bytes(raw))
    return _any(raw, _MAX_LEVELS, InputBudget(deep=_DEEP, text=_TEXT))


def _any(raw: bytes | msgspec.Raw, levels: int, budget: InputBudget) -> Any:
    view = memoryview(raw)
    if view.nbytes <= PIECE_BYTES:
        return decode_whole(raw)
    if not levels:
        budget.check(deep=view.nbytes)
        return decode_whole(raw)
    first = _FIRST.match(view)
    match first and first[1]:
        case b"{":
            return {name: _any(value, levels - 1, budget) for name, value in _members(raw).items()}
        case b"[":
            return [value for piece in pieces(_items(raw)) for value in _array(piece, levels - 1, budget)]
        case b'"':
            if view.nbytes > _LARGE_BYTES and _is_wide(view):
                budget.check(text=view.nbytes)
            return decode_whole(raw)
        case _:
            return decode_whole(raw)


def _is_wide(view: memoryview) -> bool:
    pieces = (bytes(view[at : at + PIECE_BYTES + 1]) for at in range(0, view.nbytes, PIECE_BYTES))
    return any(not piece.isascii() or b"\\u" in piece for piece in pieces)


def pieces(items: list[msgspec.Raw], piece_bytes: int = PIECE_BYTES) -> Iterator[list[msgspec.Raw]]:
    """Group an array's items into pieces of at most `piece_bytes`; a larger item is a separate piece."""
    piece: list[msgspec.Raw] = []
    size = 0
    for item in items:
        bytes_of_item = memoryview(item).nbytes
        if piece and size + bytes_of_item > piece_bytes:
            yield piece
            piece, size = [], 0
        piece.append(item)
        size += bytes_of_item
    if piece:
        yield piece


def _array(piece: list[msgspec.Raw], levels: int, budget: InputBudget) -> list[Any]:
    if len(piece) == 1:
        return [_any(piece[0], levels, budget)]
    return decode_whole(b"[" + b",".join(piece) + b"]")
