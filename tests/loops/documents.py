"""Largest documents of each class that readers accept, generated for a limit in bytes."""

from __future__ import annotations

import functools
import gzip
import io
import json
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sixfold.core.input_limits import json_limits

MIB = 2**20
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b"
TEXT = "text/markdown"
_LIMITS = json_limits.DEFAULT
_SLOW_NUMBER = b"1.2345678901234567e-300"
# Names that routes read.
_FIELDS = (
    "api_key",
    "model",
    "input",
    "messages",
    "prompt",
    "text",
    "workflow",
    "inputs",
    "body",
    "slug",
    "params",
    "arguments",
    "image",
)


Builder = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Document:
    """Class of input, the content type of its request, and a builder of the largest document for a limit."""

    name: str
    content_type: str
    build: Builder


def _object(value: Builder, most: int, items: int = 0) -> bytes:
    """Return a builder of an object whose members share the bytes, or a number of items."""
    share = items // len(_FIELDS) if items else most // len(_FIELDS) - 24
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), value(share)) for name in _FIELDS) + b"}"


def _one(value: Builder, most: int, items: int = 0) -> bytes:
    return b'{"input":' + value(items or most - 16) + b"}"


def _string(unit: bytes) -> Builder:
    return lambda size: b'"' + unit * max(0, (size - 2) // len(unit)) + b'"'


def _list(unit: bytes) -> Builder:
    return lambda count: b"[" + b",".join([unit] * count) + b"]"


def _members(width: int) -> Builder:
    return lambda count: b"{" + b",".join(b'"%0*d":1' % (width, at) for at in range(count)) + b"}"


_STRINGS = {"string": b"A", "wide string": "a€😀".encode(), "escapes": b"\\n", "punctuation": b'\\",{'}
# Builder of a number of items, the most that are accepted, and the bytes of each.
_ITEMS: Mapping[str, tuple[Builder, int, int]] = {
    "numbers": (_list(_SLOW_NUMBER), _LIMITS.values, 24),
    "objects": (_list(b'{"a":1}'), _LIMITS.containers, 8),
    "keys": (_members(300), _LIMITS.members, 306),
}


def _many(put: Any, value: Builder, count: int, size: int, most: int) -> bytes:
    return put(value, most, max(1, min(count, most // size) - 99))


def _json() -> Iterator[Document]:
    for where, put in (("", _one), (" in fields", _object)):
        for name, unit in _STRINGS.items():
            yield Document(f"json {name}{where}", JSON, functools.partial(put, _string(unit)))
        for name, items in _ITEMS.items():
            yield Document(f"json {name}{where}", JSON, functools.partial(_many, put, *items))
    yield Document("json deep", JSON, lambda most: b'{"input":' + b"[" * (most - 16))
    yield Document("json digits", JSON, lambda most: b'{"input":' + b"1" * (most - 16) + b"}")
    yield Document("json blanks", JSON, lambda most: b"{" + b" " * (most - 16) + b"}")
    yield Document("json dense", JSON, lambda most: b'{"input":[' + b"{}," * (most // 3 - 8) + b"{}]}")


def _pairs(unit: bytes) -> Builder:
    return lambda most: (unit * (most // len(unit) + 1))[: most - 8]


def _form() -> Iterator[Document]:
    yield Document("form pairs", FORM, _pairs(b"a=1&"))
    yield Document("form escapes", FORM, lambda most: b"text=" + b"%41" * min(1_190_000, most // 3 - 8))
    yield Document("form string", FORM, lambda most: b"text=" + b"A" * (most - 16))
    yield Document("form plus", FORM, lambda most: b"text=" + b"+" * (most - 16))
    yield Document("form csrf", FORM, lambda most: b"csrf=" + "é".encode() * (most // 2 - 16))


_DISPOSITION = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'


def part(name: bytes, data: bytes, filename: bytes = b"") -> bytes:
    """Return one part of a multipart form."""
    return _DISPOSITION % (name, b'; filename="%s"' % filename if filename else b"", data)


def _part_of(data: Builder, filename: bytes = b"a.png") -> Builder:
    def build(most: int) -> bytes:
        result = data(most - 1000)
        names = (b"file", b"image", b"media")
        return (
            b"".join(part(name, result if name == b"file" else result[:100], filename) for name in names)
            + b"--b--\r\n"
        )

    return build


def _repeat(unit: bytes, head: bytes = b"", tail: bytes = b"--b--\r\n") -> Builder:
    return lambda most: head + unit * ((most - len(head) - 16) // len(unit)) + tail


def _multipart() -> Iterator[Document]:
    yield Document("multipart parts", MULTIPART, _repeat(part(b"a", b"")))
    yield Document("multipart headers", MULTIPART, _repeat(b"a: b\r\n", b"--b\r\n"))
    yield Document("multipart long header", MULTIPART, _repeat(b"x", b"--b\r\nA: "))
    yield Document("multipart boundaries", MULTIPART, _repeat(b"\r\n--", part(b"file", b"x", b"a.png")[:-2]))
    yield Document("multipart lines", MULTIPART, _repeat(b"\r\n", part(b"file", b"x", b"a.png")[:-2]))
    yield Document("multipart field", MULTIPART, _repeat(b"x", part(b"text", b"x")[:-2], b"\r\n--b--\r\n"))
    for result in FILES:
        yield Document(f"multipart {result.name}", MULTIPART, _part_of(result.build))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


_PNG = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))


def png(width: int, height: int, pixels: bytes) -> bytes:
    """Return a PNG with colors of 8 bits, of compressed pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _png(unit: bytes) -> Builder:
    return lambda most: _PNG + unit * ((most - 200) // len(unit)) + chunk(b"IEND", b"")


def _inflating(name: bytes, kind: bytes = b"zTXt", between: bytes = b"\0") -> bytes:
    return chunk(kind, name + b"\0" + between + zlib.compress(bytes(16 * MIB), 9))


def _glb(most: int) -> bytes:
    text = b'{"asset":{"version":"2.0","extras":{"sixfold":"' + b"\\n" * (most // 2 - 100) + b'"}}}'
    text += b" " * (-len(text) % 4)
    head = struct.pack("<4sII", b"glTF", 2, 20 + len(text)) + struct.pack("<I4s", len(text), b"JSON")
    return head + text


def _glb_dense(most: int) -> bytes:
    text = b'{"asset":{"version":"2.0","extras":{"a":[' + b"{}," * (most // 3 - 100) + b"{}]}}}"
    text += b" " * (-len(text) % 4)
    head = struct.pack("<4sII", b"glTF", 2, 20 + len(text)) + struct.pack("<I4s", len(text), b"JSON")
    return head + text


def _webp(unit: bytes) -> Builder:
    def build(most: int) -> bytes:
        body = b"WEBP" + unit * ((most - 100) // len(unit))
        return b"RIFF" + struct.pack("<I", len(body)) + body

    return build


def _riff(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def _lines(head: bytes, unit: bytes) -> Builder:
    return lambda most: head + unit * ((most - len(head) - 16) // len(unit))


def _box(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", 8 + len(data)) + kind + data


def _zip(most: int) -> bytes:
    result = io.BytesIO()
    count = min(20_000, most // 300)
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as archive:
        for at in range(count):
            archive.writestr(f"{at}.md", b"[[a]] #b\n" * 8)
    return result.getvalue()[:most]


def _zip_bomb(most: int) -> bytes:
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.md", bytes(min(64 * MIB, 200 * most)))
    return result.getvalue()


def _tar(most: int) -> bytes:
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w:gz", compresslevel=1) as archive:
        for at in range(min(5_000, most // 300)):
            info = tarfile.TarInfo(f"{at}.md")
            info.size = 8
            archive.addfile(info, io.BytesIO(b"[[a]] #b"))
    return result.getvalue()[:most]


FILES: tuple[Document, ...] = (
    Document("png chunks", "image/png", _png(chunk(b"tEXt", b""))),
    Document("png names", "image/png", _png(chunk(b"tEXt", b"workflow\0{}"))),
    Document("png inflating", "image/png", _png(_inflating(b"workflow"))),
    Document("png inflating itxt", "image/png", _png(_inflating(b"sixfold", b"iTXt", b"\1\0\0\0"))),
    Document("png xmp", "image/png", _png(_inflating(b"XML:com.adobe.xmp", b"iTXt", b"\1\0\0\0"))),
    Document("webp chunks", "image/webp", _webp(_riff(b"EXIF", b""))),
    Document("webp exif", "image/webp", _webp(_riff(b"EXIF", b"workflow:{" * 100))),
    Document("jpeg segments", "image/jpeg", _lines(b"\xff\xd8", b"\xff\xe1\x00\x02")),
    Document("jpeg words", "image/jpeg", _lines(b"\xff\xd8", b"workflow:")),
    Document("gif blocks", "image/gif", _lines(b"GIF89a" + bytes(7), b"\x21\xfe\x01a\0")),
    Document("glb string", "model/gltf-binary", _glb),
    Document("glb dense", "model/gltf-binary", _glb_dense),
    Document("mp4 boxes", "video/mp4", _lines(_box(b"ftyp", b"isom" + bytes(4)), _box(b"free", b""))),
    Document("mp4 nested", "video/mp4", _lines(_box(b"ftyp", b"isom" + bytes(4)), b"\0\x0f\xff\xffmoov")),
    Document("wav chunks", "audio/wav", _lines(b"RIFF\xff\xff\xff\x7fWAVE", _riff(b"LIST", b""))),
    Document("mp3 frames", "audio/mpeg", _lines(b"ID3\x04\0\0\x7f\x7f\x7f\x7f", b"TXXX\0\0\0\x01\0\0a")),
    Document("flac blocks", "audio/flac", _lines(b"fLaC", b"\x04\0\0\0")),
    Document("ogg pages", "audio/ogg", _lines(b"", b"OggS\0\2" + bytes(20) + b"\0")),
    Document("svg elements", "image/svg+xml", _lines(b"<svg>", b"<g>")),
    Document("svg entities", "image/svg+xml", _lines(b'<!DOCTYPE svg [<!ENTITY a "aaaa">]><svg>', b"&a;")),
    Document("captions srt", "application/x-subrip", _lines(b"", b"1\n00:00:00,000 --> 00:00:01,000\nx\n\n")),
    Document("captions vtt", "text/vtt", _lines(b"WEBVTT\n\n", b"00:00.000 --> 00:01.000\nx\n\n")),
    Document("abc notes", "text/vnd.abc", _lines(b"X:1\nK:C\n", b"(3CDE|")),
    Document(
        "midi events", "audio/midi", _lines(b"MThd\0\0\0\6\0\0\0\1\0`MTrk\x7f\xff\xff\xff", b"\0\x90<@")
    ),
    Document("pdf objects", "application/pdf", _lines(b"%PDF-1.4\n", b"1 0 obj<<>>endobj\n")),
    Document("json file", JSON, lambda most: b'{"nodes":[' + b"{}," * (most // 3 - 8) + b"{}]}"),
    Document("text file", "text/plain", _lines(b"", b"a,b\n")),
    Document("zip files", "application/zip", _zip),
    Document("zip bomb", "application/zip", _zip_bomb),
    Document("tar.gz files", "application/gzip", _tar),
    Document("gzip bomb", "application/gzip", lambda most: gzip.compress(bytes(64 * MIB), 6)[:most]),
)

_MARKDOWN = {
    "markdown links": b"[a][b] ",
    "markdown emphasis": b"*a _b ",
    "markdown tables": b"|a|b\n",
    "markdown lists": b"- " * 50 + b"\n",
    "markdown quotes": b">" * 50 + b"\n",
    "markdown wiki": b"[[a|b]] #c ",
    "markdown brackets": b"[" * 90 + b"\n\n",
    "front matter": b"a: [b, c]\n",
}


def _markdown() -> Iterator[Document]:
    for name, unit in _MARKDOWN.items():
        head = b"---\n" if name == "front matter" else b"# a\n\n[b]: /c\n\n"

        def text(most: int, head: bytes = head, unit: bytes = unit) -> bytes:
            return head + unit * ((most - 64) // len(unit)) + b"\n---\n"

        yield Document(name, TEXT, lambda most, t=text: t(most))
        yield Document(
            f"{name} in json",
            JSON,
            lambda most, t=text: json.dumps(
                {"slug": "a", "title": "a", "body": t(most * 9 // 10 - 2000).decode()}
            ).encode()[:most],
        )
        yield Document(
            f"{name} in a form",
            FORM,
            lambda most, t=text: (
                b"slug=a&title=a&body="
                + t(most // 3 - 100)
                .replace(b"\n", b"%0A")
                .replace(b"&", b"%26")
                .replace(b"#", b"%23")[: most - 64]
            ),
        )


def node(number: int, **inputs: Any) -> dict[str, Any]:
    """Return a node of a graph in the API's format."""
    return {"class_type": "ImageInvert", "inputs": {"image": [str(number), 0], **inputs}}


def graph(most: int) -> bytes:
    """Return a chain of as many nodes as a graph may have, under each name that routes read."""
    chain: Mapping[str, Any] = {str(at): node(at - 1) for at in range(1, min(4_990, most // 140))}
    return json.dumps({"workflow": chain, "prompt": chain, "a": {}, "b": {}}).encode()


def subgraphs(most: int) -> bytes:
    """Return subgraphs that contain two of the next level each, thirty levels deep."""
    definitions = [
        {
            "id": str(at),
            "name": str(at),
            "inputs": [],
            "outputs": [],
            "links": [],
            "nodes": [{"id": each, "type": str(at + 1), "inputs": [], "outputs": []} for each in (1, 2)],
        }
        for at in range(30)
    ]
    editor = {
        "nodes": [{"id": 1, "type": "0", "inputs": [], "outputs": []}],
        "links": [],
        "definitions": {"subgraphs": definitions},
    }
    return json.dumps({"workflow": editor, "prompt": editor, "a": editor, "b": editor}).encode()


def _graphs() -> Iterator[Document]:
    yield Document("graph chain", JSON, graph)
    yield Document("graph subgraphs", JSON, subgraphs)


DOCUMENTS: tuple[Document, ...] = (*_json(), *_form(), *_multipart(), *FILES, *_markdown(), *_graphs())

HEADERS: Mapping[str, dict[str, str]] = {
    "cookies": {"Cookie": "; ".join(f"a{at}=b" for at in range(7000))},
    "cookie string": {"Cookie": "sixfold_session=" + "x" * 60_000},
    "many headers": {f"X-{at}": "b" for at in range(90)},
    "accept": {"Accept": ",".join(["text/html;q=0.1"] * 4000)},
    "accept-encoding": {"Accept-Encoding": ",".join(["gzip;q=0"] * 6000)},
    "accept-language": {"Accept-Language": ",".join(["en;q=0.1"] * 6000)},
    "if-none-match": {"If-None-Match": ",".join(['"a"'] * 15000)},
    "range": {"Range": "bytes=" + ",".join(["0-1"] * 15000)},
    "range of spaces": {"Range": "bytes=1-" + " " * 60_000 + "x"},
    "authorization": {"Authorization": "Bearer " + "x" * 60_000},
    "forwarded": {"X-Forwarded-For": ",".join(["1.1.1.1"] * 7000)},
    "content-type": {"Content-Type": "multipart/form-data; " + "a=b; " * 12_000},
}
QUERIES: Mapping[str, str] = {
    "query parameters": "&".join(f"a{at}=1" for at in range(7000)),
    "query escapes": "q=" + "%41" * 20_000,
    "query string": "q=" + "x" * 60_000,
    "query repeated": "q=a&limit=9&" * 5000,
}
