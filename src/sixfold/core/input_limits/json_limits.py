"""Limits on the values and the nesting of a JSON document, checked on its bytes before decoding.

A document of 32 MiB can contain 10 million empty objects, which take seconds and gigabytes to build. Each
slice of the bytes is counted without decoding. The first count includes the punctuation inside strings; it is
never too low and quickly accepts nearly every document. If the first count exceeds a limit, a second count
excludes strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import NamedTuple

from sixfold import errors
from sixfold.core.input_limits.budget import InputBudget, Limit

_SLICE_BYTES = 256 * 1024
_PUNCTUATION = b"{[,:"
_NOT_PUNCTUATION = bytes(set(range(256)) - set(_PUNCTUATION))
_MESSAGE = "The JSON document may have at most {:,} "
_Count = Callable[[bytes], None]
MAX_LEVELS = 200
# The interpreter's recursion limit counts the frames of the caller too: without this limit, a value that one
# call could decode could not be encoded by a call that is deeper in the stack.
_LEVELS = Limit(MAX_LEVELS, _MESSAGE + "levels of nested arrays and objects")
_BRACKETS = b"{}[]"
_NOT_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))
_STEPS = {byte: 1 if byte in b"{[" else -1 for byte in _BRACKETS}
# The decoder holds the GIL while it reads all members of an object, half a second for a million of them.
_OBJECT = Limit(100_000, _MESSAGE + "members in one object")
_NESTING = b"{}[]:"
_NOT_NESTING = bytes(set(range(256)) - set(_NESTING))
_NESTING_STEP = re.compile(rb":+|[{\[]|[}\]]")


class JsonLimits(NamedTuple):
    """The maximum numbers of arrays and objects, object members, values and backslashes in a document."""

    containers: int = 50_000
    members: int = 100_000
    values: int = 500_000
    backslashes: int = 4_000_000

    def check(self, raw: bytes) -> None:
        """Raise `InputTooLarge` if a document exceeds a limit; a malformed document may pass."""
        # Each item has at least one byte.
        if len(raw) <= min(self):
            return
        escapes = InputBudget(backslashes=Limit(self.backslashes, _MESSAGE + "backslashes"))
        for piece in _slices(raw):
            escapes.spend(backslashes=piece.count(b"\\"))
        try:
            self._count_all(_slices(raw), self._counter())
        except errors.InputTooLarge:
            self._count_all(_outside_strings(raw, self.values + self.members), self._counter())
        if sum(piece.count(b":") for piece in _slices(raw)) > _OBJECT.maximum:
            _check_objects(_outside_strings(raw, self.values + self.members))

    def _counter(self) -> _Count:
        budget = InputBudget(
            containers=Limit(self.containers, _MESSAGE + "arrays and objects"),
            members=Limit(self.members, _MESSAGE + "members of objects"),
            values=Limit(self.values, _MESSAGE + "values"),
        )

        def count(piece: bytes) -> None:
            # Base64 data does not contain punctuation.
            if not any(byte in piece for byte in _PUNCTUATION):
                return
            punctuation = piece.translate(None, _NOT_PUNCTUATION)
            opened = punctuation.count(b"{") + punctuation.count(b"[")
            budget.spend(
                containers=opened, members=punctuation.count(b":"), values=opened + punctuation.count(b",")
            )

        return count

    @staticmethod
    def _count_all(pieces: Iterator[bytes], count: _Count) -> None:
        for piece in pieces:
            count(piece)


DEFAULT = JsonLimits()
# A workflow in the editor's format has about 25 containers and 60 members per node, and at most 5,000 nodes.
GRAPH = JsonLimits(containers=150_000, members=300_000, values=500_000)
# A response of another server, such as all of ComfyUI's `/object_info` with many custom nodes, or a chat with
# the alternatives of each token.
RESPONSE = JsonLimits(containers=500_000, members=1_000_000, values=3_000_000, backslashes=16_000_000)


def check_levels(raw: bytes) -> None:
    """Raise `InputTooLarge` if arrays and objects are nested too deep; a malformed document may pass."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_LEVELS:
        return
    level = 0
    for piece in _outside_strings(raw, len(raw)):
        steps = map(_STEPS.__getitem__, piece.translate(None, _NOT_BRACKETS))
        for reached in accumulate(steps, initial=level):
            if reached > MAX_LEVELS:
                raise _LEVELS.exceeded()
            level = reached


def _slices(raw: bytes) -> Iterator[bytes]:
    return (raw[start : start + _SLICE_BYTES] for start in range(0, len(raw), _SLICE_BYTES))


def _outside_strings(raw: bytes, max_strings: int) -> Iterator[bytes]:
    """Yield the bytes of each slice that are not in a string; raises `InputTooLarge` for too many strings."""
    strings = InputBudget(strings=Limit(max_strings, _MESSAGE + "strings"))
    inside, start = False, 0
    while start < len(raw):
        piece = raw[start : start + _SLICE_BYTES]
        # Do not split an escape sequence.
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = raw[start : start + len(piece) + 1]
        start += len(piece)
        piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        quotes = piece.count(b'"')
        strings.spend(strings=(quotes + inside) // 2)
        parts = piece.split(b'"')
        yield b"".join(parts[int(inside) :: 2])
        inside ^= bool(quotes % 2)


def _check_objects(pieces: Iterator[bytes]) -> None:
    """Raise `InputTooLarge` if one object has too many members."""
    # The members of each open object; an open array has none.
    members = [0]
    for piece in pieces:
        nesting = piece.translate(None, _NOT_NESTING).replace(b"{}", b"").replace(b"[]", b"")
        for step in _NESTING_STEP.finditer(nesting):
            text = step[0]
            if text.startswith(b":"):
                members[-1] += len(text)
                if members[-1] > _OBJECT.maximum:
                    raise _OBJECT.exceeded()
            elif text in b"{[":
                members.append(0)
            elif len(members) > 1:
                members.pop()
