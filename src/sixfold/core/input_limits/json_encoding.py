"""Encoding of large values as JSON in pieces.

The encoder holds the GIL: one call for a million numbers blocks all threads for 20 ms or more. Between
pieces, other threads can run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

# Values of an array that are encoded together.
_PIECE_VALUES = 16_384
# Nesting levels of arrays and objects that are split.
_MAX_LEVELS = 16
_SCALARS = frozenset({bool, float, int, str, type(None)})

_encode = msgspec.json.Encoder().encode


def encode(value: Any, levels: int = _MAX_LEVELS) -> bytes:
    """Return the value as JSON, as `msgspec.json.encode` does."""
    if levels and isinstance(value, list | tuple):
        pieces = list(_pieces(cast("Sequence[Any]", value), levels - 1)) or [b""]
        # One copy of the whole array, without another one for its brackets.
        pieces[0] = b"[" + pieces[0]
        pieces[-1] += b"]"
        return b",".join(pieces)
    if levels and isinstance(value, dict):
        members = cast("dict[Any, Any]", value).items()
        return _encode({key: msgspec.Raw(encode(each, levels - 1)) for key, each in members})
    return _encode(value)


def _pieces(items: Sequence[Any], levels: int) -> Iterator[bytes]:
    """Yield the items as JSON, without brackets, in pieces; a slice that is not small is halved."""
    if len(items) == 1:
        yield encode(items[0], levels)
    elif _is_small(items):
        yield _encode(items)[1:-1]
    elif items:
        middle = len(items) // 2
        yield from _pieces(items[:middle], levels)
        yield from _pieces(items[middle:], levels)


def _is_small(items: Sequence[Any]) -> bool:
    """Return whether items have few values, as far as one level of nested lists shows."""
    if not 0 < len(items) <= _PIECE_VALUES:
        return False
    kinds = set(map(type, items))
    return kinds <= _SCALARS or (kinds == {list} and sum(map(len, items)) <= _PIECE_VALUES)
