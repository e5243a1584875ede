"""Searches in large bodies that let other threads run in between.

A search by a regular expression takes up to a second for 32 MiB, unless its pattern begins with fixed text,
and holds the global interpreter lock all the time, so that the event loop waits even for one in a thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# Bytes that are searched in one call, about 8 ms.
_SLICE: Final = 256 * 1024
# The most that a match may have.
LONGEST: Final = 64


def has_text(texts: Iterable[bytes], body: bytes) -> bool:
    """Return whether one of some fixed texts occurs in a body, which is a fast search."""
    return any(text in body for text in texts)


def has_match(pattern: re.Pattern[bytes], body: bytes) -> bool:
    """Return whether a pattern, whose matches have at most `LONGEST` bytes, occurs in a body.

    A pattern with longer matches, such as one with `\\s*`, may be missed at the border of two slices.
    """
    return any(
        pattern.search(body, at, at + _SLICE + LONGEST) is not None for at in range(0, len(body), _SLICE)
    )
