"""Searches in large bodies that let other threads run in between.

A search by a regular expression takes up to a second for 32 MiB, unless its pattern begins with fixed text,
and holds the global interpreter lock, so the event loop waits even for a search in a thread. A pattern with
fixed text at its beginning takes a tenth of the time. Therefore a pattern of names is `"(?:a|b)"`, and
escaped letters, which may hide a name, have a separate pattern.
"""

from __future__ import annotations

import re
import string
from typing import Final

# Bytes that are searched in one call, about 8 ms.
_SLICE: Final = 256 * 1024
# Maximum length of a match.
LONGEST: Final = 64
# An escaped ASCII letter or underscore, which may be part of any name in JSON.
_ESCAPED: Final = re.compile(rb"\\u00[4-7]")
_CHARACTERS: Final = (string.ascii_letters + string.digits + "+/").encode()
# Translates characters of base64 to `a` and all other characters to spaces.
_BASE64: Final = bytes(ord("a") if byte in _CHARACTERS else ord(" ") for byte in range(256))
# Every 32nd byte of a body is checked first.
_STEP: Final = 32


def has_match(pattern: re.Pattern[bytes], body: bytes) -> bool:
    """Return whether a pattern with matches of at most `LONGEST` bytes occurs in a body.

    A longer match, for example of `\\s*`, may be missed at the boundary of two slices.
    """
    if len(body) <= _SLICE:
        return pattern.search(body) is not None
    return any(
        pattern.search(body, at, at + _SLICE + LONGEST) is not None for at in range(0, len(body), _SLICE)
    )


def find(text: bytes, body: bytes) -> int:
    """Return the first position of a text in a body, or -1."""
    parts = (body.find(text, at, at + _SLICE + len(text) - 1) for at in range(0, len(body), _SLICE))
    return next((position for position in parts if position >= 0), -1)


def has_escaped_name(body: bytes) -> bool:
    """Return whether JSON may contain a name with an escaped letter."""
    return has_match(_ESCAPED, body)


def may_have_name(pattern: re.Pattern[bytes], body: bytes) -> bool:
    """Return whether JSON contains a pattern for names, or an escaped letter that may hide a name."""
    return has_match(pattern, body) or has_match(_ESCAPED, body)


def may_have_base64(body: bytes, least: int) -> bool:
    """Return whether a run of `least` (64 or more) base64 characters may occur; False is certain."""
    # A run contains as many of these bytes in a row; text soon has a space or punctuation among them.
    return b"a" * (least // _STEP) in body[_STEP - 1 :: _STEP].translate(_BASE64)
