"""Limits on what a reader builds from untrusted input, checked before it is built."""

from __future__ import annotations

import sys

from sixfold import errors

_NO_LIMIT = sys.maxsize


class InputBudget:
    """Counts the items, bytes and nesting of one input against its limits.

    A reader calls `spend` before it allocates. `subject` and `unit` name the input and its items in errors.
    """

    __slots__ = ("_bytes", "_depth", "_items", "_subject", "_unit", "bytes_left", "items_left")

    def __init__(
        self,
        subject: str,
        unit: str = "items",
        *,
        items: int = _NO_LIMIT,
        bytes: int = _NO_LIMIT,
        depth: int = _NO_LIMIT,
    ) -> None:
        self._subject = subject
        self._unit = unit
        self._items = self.items_left = items
        self._bytes = self.bytes_left = bytes
        self._depth = depth

    def spend(self, *, items: int = 0, bytes: int = 0, depth: int = 0) -> None:
        """Count what is about to be built, at nesting level `depth`; raises `InputTooLarge`."""
        self.items_left -= items
        self.bytes_left -= bytes
        if self.items_left < 0:
            raise errors.InputTooLarge(f"{self._subject} may have at most {self._items:,} {self._unit}")
        if self.bytes_left < 0:
            raise errors.InputTooLarge(f"{self._subject} may have at most {self._bytes:,} bytes")
        if depth > self._depth:
            raise errors.InputTooLarge(f"{self._subject} may be nested at most {self._depth:,} levels deep")
