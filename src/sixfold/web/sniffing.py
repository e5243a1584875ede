"""What a file is by its own first bytes: an allow-list, as names and claims are chosen by strangers."""

from __future__ import annotations

HEAD_BYTES = 4096
UNKNOWN = "application/octet-stream"
# Types that a browser may show in its own frame; all others are handed over as attachments.
INLINE = frozenset(
    {
        "image/png",
        "image/jpeg",
        "image/webp",
        "image/gif",
        "image/avif",
        "image/bmp",
        "video/mp4",
        "video/webm",
        "video/quicktime",
        "audio/mpeg",
        "audio/wav",
        "audio/ogg",
        "audio/flac",
        "audio/mp4",
        "model/gltf-binary",
        "application/json",
        "text/plain",
        "text/markdown",
    }
)
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf2", "audio/mpeg"),
    (b"glTF", "model/gltf-binary"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"%PDF-", "application/pdf"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_TEXTS = frozenset({"text/plain", "text/markdown", "application/json"})
_TAGS = (b"<svg", b"<?xml", b"<!doctype", b"<html", b"<script", b"<head", b"<body")


def sniff(head: bytes, claimed: str = "") -> str:
    """The type of a file that begins with `head`; a claim decides only between kinds of plain text."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], UNKNOWN)
    if head[4:8] == b"ftyp":
        return _brand(head[8:12])
    return _text(head[:HEAD_BYTES], claimed)


def _brand(brand: bytes) -> str:
    if brand in {b"avif", b"avis"}:
        return "image/avif"
    if brand == b"qt  ":
        return "video/quicktime"
    return "audio/mp4" if brand.startswith(b"M4A") else "video/mp4"


def _text(head: bytes, claimed: str) -> str:
    if not head or b"\0" in head:
        return UNKNOWN
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end < len(head) - 3:  # more than a character that was cut in two
            return UNKNOWN
    lowered = head.lower()
    if b"<svg" in lowered:
        return "image/svg+xml"
    if any(tag in lowered for tag in _TAGS):
        return "text/html"
    return claimed if claimed in _TEXTS else "text/plain"
