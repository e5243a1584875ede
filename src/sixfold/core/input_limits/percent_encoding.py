"""Decoding of long percent-encoded texts in pieces.

One call of `unquote_to_bytes` creates an object for each escape, which takes 80 times the size of a text of
escapes, and holds the GIL for half a second for 32 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

_PIECE_CHARS = 1 << 16
# An escape such as %41 has two characters after its first one.
_ESCAPE_END = 2


def pieces(text: str, start: int = 0) -> Iterator[bytes]:
    """Yield the decoded bytes of a text from a position; raises `UnicodeEncodeError` for surrogates."""
    while start < len(text):
        stop = start + _PIECE_CHARS
        if stop < len(text):
            # An escape that continues in the next piece belongs to that piece.
            escape = text.rfind("%", stop - _ESCAPE_END, stop)
            stop = escape if escape >= 0 else stop
        yield unquote_to_bytes(text[start:stop])
        start = stop


def decode(text: str, start: int = 0) -> bytes:
    """Return the decoded bytes of a text from a position; raises as `pieces`."""
    return b"".join(pieces(text, start))
