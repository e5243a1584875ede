"""Removal of metadata from sounds and 3D models, in which ComfyUI also stores the graph and its prompt."""

from __future__ import annotations

from collections.abc import Iterator

from sixfold.core.provenance.formats import flac, riff
from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable
from sixfold.core.provenance.formats.parts import ContainerPart, part_budget

# Stream information, seek table and cue sheet; others are comments, pictures, padding and applications' data.
_FLAC_KEPT = frozenset({0, 3, 5})
_FLAC_LAST = 0x80
_WAV_KEPT = frozenset({b"fmt ", b"fact", b"data", b"cue ", b"smpl"})
_ID3, _ID3_FOOTER = b"ID3", 0x10
_ID3V1, _ID3V1_BYTES = b"TAG", 128
# Before and after the frames; programs write one of each kind.
_MAX_TAGS = 1000
_APE, _APE_BYTES, _APE_HAS_HEADER = b"APETAGEX", 32, 1 << 31


def of_flac(data: bytes) -> Iterator[FileEdit]:
    blocks = list(flac.blocks(data))
    remaining = [block for block in blocks if _is_needed(block)]
    if not blocks or not _is_needed(blocks[0]) or not blocks[-1].kind & _FLAC_LAST:
        raise Unembeddable("not a complete FLAC")
    yield from (FileEdit(block.start, block.end, b"") for block in blocks if not _is_needed(block))
    yield FileEdit(remaining[-1].start, remaining[-1].start + 1, bytes([remaining[-1].kind | _FLAC_LAST]))


def _is_needed(block: ContainerPart[int]) -> bool:
    return block.kind & ~_FLAC_LAST in _FLAC_KEPT


def of_wav(data: bytes) -> Iterator[FileEdit]:
    size, chunks = int.from_bytes(data[4:8], "little"), riff.complete(data, b"WAVE")
    for chunk in chunks:
        if chunk.kind not in _WAV_KEPT:
            size -= chunk.end - chunk.start
            yield FileEdit(chunk.start, chunk.end, b"")
    yield FileEdit(4, 8, size.to_bytes(4, "little"))
    yield FileEdit(chunks[-1].end, len(data), b"")


def of_mp3(data: bytes) -> Iterator[FileEdit]:
    """Yield edits that remove the tags before and after the frames."""
    start, end, budget = 0, len(data), part_budget(_MAX_TAGS)
    while data[start : start + 3] == _ID3 and start + 10 <= end:
        budget.spend(parts=1)
        size = sum(byte << 7 * place for place, byte in enumerate(reversed(data[start + 6 : start + 10])))
        start += 10 + size + (10 if data[start + 5] & _ID3_FOOTER else 0)
    while end > start:
        budget.spend(parts=1)
        if data[end - _ID3V1_BYTES : end].startswith(_ID3V1):
            end -= _ID3V1_BYTES
            continue
        footer = data[end - _APE_BYTES : end]
        if not footer.startswith(_APE):
            break
        flags = int.from_bytes(footer[20:24], "little")
        # The size includes the footer, whatever the file states.
        size = max(_APE_BYTES, int.from_bytes(footer[12:16], "little"))
        end -= size + (_APE_BYTES if flags & _APE_HAS_HEADER else 0)
    if start >= end:
        raise Unembeddable("not a complete MP3")
    yield FileEdit(0, start, b"")
    yield FileEdit(end, len(data), b"")
