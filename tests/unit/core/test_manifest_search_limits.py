"""Large files in which a manifest is searched: calls that block other threads are short, and copies small."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from sixfold.core.provenance import embed, private_metadata
from sixfold.core.provenance.formats import edits, parts, webm
from sixfold.core.provenance.formats.parts import MalformedFile
from sixfold.core.workflows import image_metadata
from sixfold.core.workflows.editor_format.to_api import NotAWorkflow
from tests import gil_time

MIB = 1 << 20
SIZE = 40 * MIB
LONGEST_MS, MOST_BYTES = 130.0, 24 * MIB
GIF_HEAD = b"\x21\xff\x0bSIXFOLD11.0"
_MANIFEST = b'<rdf:Description rdf:about="" xmlns:sixfold="urn:sixfold:manifest:1"><sixfold:Manifest>'


def box(kind: bytes, body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4) + kind + body


def glb(text: bytes) -> bytes:
    return struct.pack("<4sIII4s", b"glTF", 2, 20 + len(text), len(text), b"JSON") + text


def glb_members(members: int) -> bytes:
    return glb(b'{"asset":{"extras":{}},%b}' % b",".join(b'"%d":0' % number for number in range(members)))


def riff(kind: bytes, body: bytes) -> bytes:
    chunks = b"VP8X\x0a\0\0\0" + bytes(10) + kind + len(body).to_bytes(4, "little") + body
    return b"RIFF" + (len(chunks) + 4).to_bytes(4, "little") + b"WEBP" + chunks


def png(body: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + len(body).to_bytes(4) + b"iTXt" + body + bytes(4)


def ogg() -> bytes:
    page = b"OggS\0\0" + bytes(8) + b"1234" + bytes(8) + b"\xff" + b"\xff" * 255
    page += b"OpusTags".ljust(255 * 255, b"x")
    first = b"OggS\0\2" + bytes(8) + b"1234" + bytes(8) + b"\x01\x08OpusHead"
    return first + page * (SIZE // len(page))


FILES: dict[str, Callable[[], bytes]] = {
    "jpeg fill bytes": lambda: b"\xff\xd8" + b"\xff" * 4 * SIZE,
    "mp3 tag": lambda: b"ID3\3\0\xc0\x14\0\0\0" + b"\xff\0" * (SIZE // 2),
    "ogg comments": ogg,
    "glb members": lambda: glb_members(2_000_000),
    "glb few bytes with many members": lambda: glb_members(600_000),
    "glb string": lambda: glb(b'{"asset":{"extras":{"sixfold":"%b"}}}' % (b"x" * SIZE)),
    "svg tags": lambda: b"<svg>" + b"<" * SIZE,
    "svg comment": lambda: b"<!--" + b"-" * 4 * SIZE,
    "svg blanks": lambda: b" " * 4 * SIZE + b"<svg>",
    "svg manifest": lambda: b'<svg><metadata id="sixfold-manifest">' + b"x" * SIZE,
    "webp xmp": lambda: riff(b"XMP ", _MANIFEST + b"x" * SIZE),
    "png text": lambda: png(b"sixfold\0\0\0\0\0" + b"x" * SIZE),
    "mp4 box": lambda: box(b"ftyp", bytes(8)) + box(b"uuid", embed.mp4._UUID + b"x" * SIZE),
    "gif extension": lambda: b"GIF89a" + bytes(7) + GIF_HEAD + (b"\xff" * 256) * (SIZE // 256) + b"\0;",
}


@pytest.mark.parametrize("name", FILES)
def test_search_for_a_manifest_is_short_and_copies_little(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(FILES[name]())

    def read() -> None:
        with path.open("rb") as file, edits.mapped(file) as data:
            assert embed.extract(data) is None

    tracemalloc.start()
    try:
        read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES
    assert gil_time.longest_call(read, LONGEST_MS) < LONGEST_MS


@pytest.mark.parametrize("head", [b"\xff\xd8\xff\xe0", riff(b"VP8 ", b"")], ids=["jpeg", "webp"])
def test_search_for_a_workflow_in_a_photo_is_short(head: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(head + b"work" * (3 * SIZE // 4))

    def read() -> None:
        with path.open("rb") as file, edits.mapped(file) as data, pytest.raises(NotAWorkflow):
            image_metadata.read(data)

    assert gil_time.longest_call(read, 20) < 20


@pytest.mark.parametrize("read", [webm.header, webm.extract, lambda data: list(webm.tag_removals(data))])
def test_elements_of_a_webm_are_limited_by_its_size(read: Callable[[bytes], object]) -> None:
    head = bytes.fromhex("1a45dfa380 18538067 01ffffffffffffff")
    read(head + b"\xec\x80" * 16_000)
    read(head + (b"\xec\x8e" + bytes(14)) * 70_000)
    with pytest.raises(MalformedFile, match="more than 32,768 parts"):
        read(head + b"\xec\x80" * 200_000)


def test_elements_of_all_tracks_of_a_webm_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webm, "part_budget", lambda _: parts.part_budget(100))
    track = b"\xae\x40\x40" + b"\xae\x80" * 32
    data = b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\xff"
    assert list(webm.tag_removals(data + track * 2)) == []
    with pytest.raises(MalformedFile, match="more than 100 parts"):
        list(webm.tag_removals(data + track * 4))


@pytest.mark.parametrize("tag", [b"ID3\4\0\0\0\0\0\0", b"APETAGEX" + bytes(24)], ids=["id3", "ape"])
def test_mp3_with_too_many_tags_is_unchanged(tag: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    frames = b"\xff\xfb\x90\0" + bytes(413)
    for count in (900, 1001):
        data = tag * count + frames if tag.startswith(b"ID3") else frames + tag * count
        path.write_bytes(data)
        private_metadata.remove(path)
        assert path.read_bytes() == (frames if count == 900 else data)
