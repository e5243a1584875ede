"""Columns of byte strings and strings in a few buffers, and a hash table that maps strings to positions."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    Numbers: TypeAlias = array[int]
else:
    Numbers = array  # not generic at run time

PART_BITS = 12  # 4,096 positions per part
PART_MASK = (1 << PART_BITS) - 1
_LOAD = 6  # strings per bucket
_PLACE_BYTES = 8  # start and length
_BUCKET_BYTES = 136


class _StringPart:
    """The byte strings of 4,096 positions, one after the other."""

    __slots__ = ("data", "lengths", "starts", "unused")

    def __init__(self) -> None:
        self.data = bytearray()
        self.starts = Numbers("I")
        self.lengths = Numbers("I")
        self.unused = 0

    def append(self, value: bytes) -> None:
        self.starts.append(len(self.data))
        self.lengths.append(len(value))
        self.data += value

    def get(self, at: int) -> bytes:
        start = self.starts[at]
        return bytes(self.data[start : start + self.lengths[at]])

    def replace(self, at: int, value: bytes) -> None:
        before = self.lengths[at]
        if len(value) <= before:
            start = self.starts[at]
            self.data[start : start + len(value)] = value
            self.unused += before - len(value)
        else:
            self.starts[at] = len(self.data)
            self.data += value
            self.unused += before
        self.lengths[at] = len(value)


class BytesColumn:
    """A column with a byte string for each position.

    A string that is longer than the previous one is appended to its part, which is rewritten once half of it
    is unused.
    """

    def __init__(self) -> None:
        self._parts: list[_StringPart] = []
        self._length = 0
        self._used = 0

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: int) -> bytes:
        return self._parts[position >> PART_BITS].get(position & PART_MASK)

    def __setitem__(self, position: int, value: bytes) -> None:
        """Set the string of a position, which is at most one after the last."""
        number, at = position >> PART_BITS, position & PART_MASK
        if position == self._length:
            if not at:
                self._parts.append(_StringPart())
            self._parts[number].append(value)
            self._length += 1
            self._used += len(value)
            return
        part = self._parts[number]
        self._used += len(value) - part.lengths[at]
        part.replace(at, value)
        if part.unused > len(part.data) // 2:
            packed = _StringPart()
            for other in range(len(part.starts)):
                packed.append(part.get(other))
            # Another thread reads either the part before this change or the new one.
            self._parts[number] = packed

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        return self._used + self._length * _PLACE_BYTES


class StringColumn:
    """A column with a string for each position."""

    def __init__(self) -> None:
        self._bytes = BytesColumn()

    def __len__(self) -> int:
        return len(self._bytes)

    def __getitem__(self, position: int) -> str:
        return self._bytes[position].decode()

    def __setitem__(self, position: int, text: str) -> None:
        self._bytes[position] = text.encode()

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        return self._bytes.size


class StringTable:
    """A hash table from the strings of a column to their positions; it grows by one bucket at a time."""

    def __init__(self, texts: StringColumn) -> None:
        self._texts = texts
        self._buckets = [Numbers("I")]
        self._round = 1  # the greatest power of two that is not above the number of buckets
        self._count = 0

    def __getstate__(self) -> StringColumn:
        # The hash of a string differs between processes.
        return self._texts

    def __setstate__(self, texts: StringColumn) -> None:
        self._texts = texts
        hashes = [hash(text) if (text := texts[position]) else None for position in range(len(texts))]
        self._count = len(hashes) - hashes.count(None)
        self._buckets = [Numbers("I") for _ in range(max(1, -(-self._count // _LOAD)))]
        self._round = 1 << len(self._buckets).bit_length() - 1
        mask, buckets = 2 * self._round - 1, len(self._buckets)
        for position, number in enumerate(hashes):
            if number is not None:
                at = number & mask
                self._buckets[at if at < buckets else at - self._round].append(position)

    def __len__(self) -> int:
        return self._count

    def get(self, text: str) -> int | None:
        for position in self._bucket(text):
            if self._texts[position] == text:
                return position
        return None

    def add(self, text: str, position: int) -> None:
        """Add a string that was written to the column and is not in the table yet."""
        self._bucket(text).append(position)
        self._count += 1
        if self._count > _LOAD * len(self._buckets):
            self._split()

    def remove(self, text: str, position: int) -> None:
        self._bucket(text).remove(position)
        self._count -= 1

    def _bucket(self, text: str) -> Numbers:
        at = hash(text) & (2 * self._round - 1)
        return self._buckets[at if at < len(self._buckets) else at - self._round]

    def _split(self) -> None:
        old = len(self._buckets) - self._round
        positions = self._buckets[old]
        self._buckets[old] = Numbers("I")
        self._buckets.append(Numbers("I"))
        if len(self._buckets) == 2 * self._round:
            self._round *= 2
        for position in positions:
            self._bucket(self._texts[position]).append(position)

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        return len(self._buckets) * _BUCKET_BYTES
