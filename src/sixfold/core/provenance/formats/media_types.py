"""The supported file formats: media type, extension, first bytes, and the module of the container."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from sixfold.core.provenance.formats import (
    avif,
    bitmap,
    flac,
    gif,
    glb,
    jpeg,
    mp3,
    mp4,
    ogg,
    png,
    svg,
    wav,
    webm,
    webp,
)
from sixfold.core.provenance.formats.edits import FileEdit
from sixfold.core.provenance.formats.parts import DAMAGE, MalformedFile, MediaHeader

# Number of bytes that `sniff` needs.
HEAD_BYTES = 4096
# Number of bytes that `find` needs.
MAGIC_BYTES = 32
UNKNOWN = "application/octet-stream"


class Reader(Protocol):
    """A module that reads a container's header."""

    def header(self, data: bytes) -> MediaHeader:
        """Return dimensions or duration."""
        ...

    def is_complete(self, data: bytes) -> bool:
        """Return False for a truncated file."""
        ...


class Carrier(Protocol):
    """A module whose container stores text in its metadata."""

    def matches(self, data: bytes) -> bool:
        """Return whether the data begins like this container."""
        ...

    def edits(self, data: bytes, text: str) -> list[FileEdit]:
        """Return the edits that put the text into the file; raises `Unembeddable`."""
        ...

    def extract(self, data: bytes) -> str | None:
        """Return the text in the file, or None."""
        ...


class FileFormat(msgspec.Struct, frozen=True):
    """A file format.

    `head` is a regular expression, without groups, for its first bytes. `aliases` are other media types of
    the same container. `is_inline` allows browsers to display the file; other files are sent as attachments.
    `pillow` and `demuxer` are the format's names in Pillow and FFmpeg, for formats that may be decoded.
    """

    media_type: str
    extension: str
    head: bytes = b""
    reader: Reader | None = None
    carrier: Carrier | None = None
    aliases: tuple[str, ...] = ()
    is_inline: bool = False
    pillow: str = ""
    demuxer: str = ""

    @property
    def is_video(self) -> bool:
        """Whether the format may contain moving images and is read by a demuxer."""
        return bool(self.demuxer) and (self.media_type.startswith("video/") or self.media_type == "image/gif")

    def header(self, data: bytes) -> MediaHeader:
        """Return the properties in the file's header; raises `MalformedFile`."""
        try:
            return MediaHeader() if self.reader is None else self.reader.header(data)
        except DAMAGE as error:
            raise MalformedFile(str(error)) from error

    def is_complete(self, data: bytes) -> bool:
        """Return False for a truncated file; True if this cannot be determined for the format."""
        try:
            return self.reader is None or self.reader.is_complete(data)
        except DAMAGE:
            return False


# In the order in which they are tested: of two similar heads, the longer one comes first.
FORMATS = (
    FileFormat(
        "image/png", "png", rb"\x89PNG\r\n\x1a\n", png, png, ("image/apng",), is_inline=True, pillow="PNG"
    ),
    FileFormat(
        "image/jpeg", "jpg", rb"\xff\xd8\xff", jpeg, jpeg, ("image/jpg",), is_inline=True, pillow="JPEG"
    ),
    FileFormat("image/webp", "webp", rb"RIFF....WEBP", webp, webp, is_inline=True, pillow="WEBP"),
    FileFormat("image/gif", "gif", rb"GIF8[79]a", gif, gif, is_inline=True, pillow="GIF", demuxer="gif"),
    FileFormat("image/avif", "avif", rb"....ftyp(?:avi[fs]|mif1)", avif, avif, is_inline=True, pillow="AVIF"),
    FileFormat("image/heic", "heic", rb"....ftyphei[cx]", avif, avif),
    FileFormat(
        "image/bmp",
        "bmp",
        rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0",
        bitmap,
        is_inline=True,
        pillow="BMP",
    ),
    FileFormat("image/tiff", "tiff", rb"II[*+]\0|MM\0[*+]", bitmap, pillow="TIFF"),
    FileFormat("video/quicktime", "mov", rb"....ftypqt  ", mp4, mp4, is_inline=True, demuxer="mov"),
    FileFormat(
        "audio/mp4", "m4a", rb"....ftypM4A", mp4, mp4, ("audio/x-m4a",), is_inline=True, demuxer="mov"
    ),
    FileFormat("video/mp4", "mp4", rb"....ftyp", mp4, mp4, is_inline=True, demuxer="mov"),
    FileFormat(
        "video/webm",
        "webm",
        rb"\x1aE\xdf\xa3",
        webm,
        webm,
        ("audio/webm", "video/x-matroska", "audio/x-matroska"),
        is_inline=True,
        demuxer="matroska",
    ),
    FileFormat("video/x-msvideo", "avi", rb"RIFF....AVI ", demuxer="avi"),
    FileFormat(
        "audio/wav",
        "wav",
        rb"(?:RIF[FX]|RF64|BW64)....WAVE",
        wav,
        wav,
        ("audio/x-wav", "audio/wave"),
        is_inline=True,
        demuxer="wav",
    ),
    FileFormat(
        "audio/ogg",
        "ogg",
        rb"OggS",
        None,
        ogg,
        ("audio/opus", "application/ogg"),
        is_inline=True,
        demuxer="ogg",
    ),
    FileFormat("audio/flac", "flac", rb"fLaC", flac, flac, ("audio/x-flac",), is_inline=True, demuxer="flac"),
    FileFormat(
        "audio/mpeg",
        "mp3",
        rb"ID3|\xff[\xfa\xfb\xf2\xf3]",
        None,
        mp3,
        ("audio/mp3",),
        is_inline=True,
        demuxer="mp3",
    ),
    FileFormat("audio/aac", "aac", rb"\xff[\xf1\xf9]", demuxer="aac"),
    FileFormat("audio/aiff", "aiff", rb"FORM....AIF[FC]", demuxer="aiff"),
    FileFormat("model/gltf-binary", "glb", rb"glTF", None, glb, is_inline=True),
    FileFormat("application/zip", "zip", rb"PK(?:\x03\x04|\x05\x06)"),
    FileFormat("application/pdf", "pdf", rb"%PDF-"),
    # These cannot be detected by their first bytes.
    FileFormat("image/svg+xml", "svg", carrier=svg),
    FileFormat("audio/pcm", "pcm"),
    FileFormat("application/json", "json", is_inline=True),
    FileFormat("application/x-safetensors", "safetensors"),
    FileFormat("text/plain", "txt", is_inline=True),
    FileFormat("text/markdown", "md", is_inline=True),
    FileFormat("text/csv", "csv", is_inline=True),
    FileFormat("text/html", "html"),
)
BY_MEDIA_TYPE: Mapping[str, FileFormat] = {
    name: media_format
    for media_format in FORMATS
    for name in (media_format.media_type, *media_format.aliases)
}
EXTENSIONS: Mapping[str, str] = {each.media_type: each.extension for each in FORMATS}
INLINE = frozenset(each.media_type for each in FORMATS if each.is_inline)

_TEXTS = frozenset({"text/plain", "text/markdown", "text/csv", "text/html", "application/json"})
_TAGS = re.compile(rb"<(?:\?xml|!doctype|html|script|head|body)", re.IGNORECASE)
_SVG = re.compile(rb"<svg", re.IGNORECASE)
_WITH_HEAD = tuple(each for each in FORMATS if each.head)
_HEADS = re.compile(b"|".join(b"(%b)" % each.head for each in _WITH_HEAD), re.DOTALL)


def find(head: bytes) -> FileFormat | None:
    match = _HEADS.match(head)
    return _WITH_HEAD[match.lastindex - 1] if match and match.lastindex else None


def heads_of(kind: str) -> str:
    """Return a regular expression for the first bytes of files that an input of a kind accepts.

    The kinds are image, video and audio, which may be the sound of a video; for other kinds it is empty.
    """
    heads = {
        "image": [each.head for each in FORMATS if each.pillow],
        "video": [each.head for each in FORMATS if each.is_video],
        "audio": [each.head for each in FORMATS if each.demuxer and not each.media_type.startswith("image/")],
    }
    return "|".join(head.decode() for head in heads.get(kind, []) if head)


def sniff(head: bytes, claimed: str = "") -> str:
    """Return the media type of a file that begins with `head`.

    The type is determined by the content, because names and declared types are untrusted; a declared type
    only selects among kinds of text.
    """
    file_format = find(head)
    return _text(head[:HEAD_BYTES], claimed) if file_format is None else file_format.media_type


def sniff_file(path: Path) -> str:
    """Return the media type of a file by its content."""
    with path.open("rb") as file:
        return sniff(file.read(HEAD_BYTES))


def _text(head: bytes, claimed: str) -> str:
    if not head or b"\0" in head:
        return UNKNOWN
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # An error at the very end may be caused by a truncated character.
        if error.end < len(head) - 3:
            return UNKNOWN
    if _SVG.search(head):
        return "image/svg+xml"
    if _TAGS.search(head):
        return "text/html"
    return claimed if claimed in _TEXTS else "text/plain"
