"""One byte range of a file, as RFC 9110 has it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONE = re.compile(r"\s*bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """Bytes from `start`, `length` of them."""

    start: int
    length: int


class RangeNotSatisfiable(Exception):
    """The range lies outside of the file."""


def parse(header: str | None, size: int) -> ByteSpan | None:
    """The range that a header asks for; None for the whole file.

    Several ranges, other units and what is no range give the whole, which every client takes.
    Raises `RangeNotSatisfiable`.
    """
    found = _ONE.fullmatch(header) if header else None
    if found is None:
        return None
    first, last = found[1], found[2]
    if not first and not last:
        return None
    if not first:
        length = min(int(last), size)
        if length == 0:
            raise RangeNotSatisfiable
        return ByteSpan(size - length, length)
    start = int(first)
    end = min(int(last), size - 1) if last else size - 1
    if last and int(last) < start:
        return None
    if start >= size:
        raise RangeNotSatisfiable
    return ByteSpan(start, end - start + 1)
