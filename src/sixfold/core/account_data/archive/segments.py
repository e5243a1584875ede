"""The file of an archive segment: JSON lines, compressed with gzip.

The first line is a `SegmentHeader`; each following line is a `SegmentLine`, one record. The hash of a segment
is the BLAKE3 hash of the header and of the hashes of all other lines, and the header contains the hash of the
previous segment. When an account is erased, each of its lines is replaced by the hash of that line, so the
hash of the segment does not change.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import blake3
import msgspec

FORMAT = "sixfold-archive/1"
# Lines without personal data, which the ledger needs: they are not erased.
PERMANENT = frozenset({"transfer", "closing"})
# The largest decompressed segment that is read; a segment is written with a few MiB and one record.
_MAX_BYTES = 512 << 20
_LEVEL = 6
_encode = msgspec.json.Encoder().encode


class SegmentDamaged(Exception):
    """A file is not a segment; the message states the reason."""


class SegmentHeader(msgspec.Struct, frozen=True):
    """The first line of a segment; `previous` is the hash of the previous segment, or empty."""

    format: str
    number: int
    kind: str
    previous: str


class SegmentLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record of a segment, or the hash of its line if it was erased."""

    table: str = ""
    account: str = ""
    row: dict[str, Any] = {}
    erased: str = ""


class Segment(msgspec.Struct, frozen=True):
    """A segment with its compressed file and its hash."""

    header: SegmentHeader
    lines: Sequence[SegmentLine]
    data: bytes
    hash: str


def line_of(table: str, account_id: str | None, row: Mapping[str, Any]) -> SegmentLine:
    return SegmentLine(table, account_id or "", dict(row))


def build(header: SegmentHeader, lines: Sequence[SegmentLine]) -> Segment:
    return _packed(header, lines, [_encode(line) for line in lines])


def parse(data: bytes) -> Segment:
    """Parse the file of a segment; raises `SegmentDamaged`."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            text = file.read(_MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SegmentDamaged(f"it cannot be unpacked ({error})") from error
    if len(text) > _MAX_BYTES:
        raise SegmentDamaged(f"it is larger than {_MAX_BYTES:,} bytes")
    first, *rest = text.splitlines() or [b""]
    try:
        header = msgspec.json.decode(first, type=SegmentHeader)
        lines = [msgspec.json.decode(line, type=SegmentLine) for line in rest]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SegmentDamaged(f"a line cannot be read ({error})") from error
    if header.format != FORMAT:
        raise SegmentDamaged(f"its format is {header.format[:40]!r}, but this version reads {FORMAT!r}")
    return Segment(header, lines, data, _hash(first, lines, rest))


def erase(segment: Segment, account_ids: AbstractSet[str]) -> tuple[Segment, int]:
    """Return a segment without the records of some accounts, and the number of erased records."""
    texts = [_encode(line) for line in segment.lines]
    erased = 0
    lines = list(segment.lines)
    for index, line in enumerate(lines):
        if line.account in account_ids and line.table not in PERMANENT:
            lines[index] = SegmentLine(erased=_digest(texts[index]).hex())
            texts[index] = _encode(lines[index])
            erased += 1
    return _packed(segment.header, lines, texts), erased


def _packed(header: SegmentHeader, lines: Sequence[SegmentLine], texts: Sequence[bytes]) -> Segment:
    first = _encode(header)
    data = gzip.compress(b"".join(text + b"\n" for text in (first, *texts)), _LEVEL, mtime=0)
    return Segment(header, lines, data, _hash(first, lines, texts))


def _hash(first: bytes, lines: Iterable[SegmentLine], texts: Iterable[bytes]) -> str:
    digest = blake3.blake3(first)
    for line, text in zip(lines, texts, strict=True):
        try:
            digest.update(bytes.fromhex(line.erased) if line.erased else _digest(text))
        except ValueError as error:
            raise SegmentDamaged("the hash of an erased line is not hexadecimal") from error
    return digest.hexdigest()


def _digest(text: bytes) -> bytes:
    return blake3.blake3(text).digest()
