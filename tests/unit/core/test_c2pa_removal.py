"""Removal of C2PA manifests from damaged files."""

from __future__ import annotations

import struct

from sixfold.core.provenance import c2pa_removal

SIGNATURE_BOX = bytes.fromhex("d8fec3d61b0e483c92975828877ec481")


def box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(body), kind) + body


def test_video_with_deeply_nested_boxes_stays_unchanged() -> None:
    count = 100_000
    nested = b"".join(struct.pack(">I4s", 8 * (count - depth), b"trak") for depth in range(count))
    video = box(b"ftyp", b"isom\0\0\0\0isom") + box(b"uuid", SIGNATURE_BOX) + nested
    assert c2pa_removal.remove(video) == video
