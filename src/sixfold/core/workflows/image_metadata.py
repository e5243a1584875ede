"""Workflows embedded in images: ComfyUI's text chunks in PNG, and its EXIF fields in WebP and JPEG."""

from __future__ import annotations

import functools
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sixfold.core.input_limits import byte_search
from sixfold.core.input_limits.budget import InputBudget, Limit
from sixfold.core.provenance import redaction
from sixfold.core.provenance.formats import media_types, png, riff, webp
from sixfold.core.provenance.formats.parts import MalformedFile
from sixfold.core.workflows.documents import Json, mapping
from sixfold.core.workflows.editor_format.to_api import NotAWorkflow
from sixfold.core.workflows.limits import DEFAULT_LIMITS, GraphLimits, GraphTooLarge

_NAMES = ("workflow", "prompt")
_TEXTS = frozenset({b"tEXt", b"zTXt", b"iTXt"})
# Bytes of an iTXt chunk before its text: flags, language and translated keyword.
_MAX_KEYWORDS = 1024
# Replaces the name of a file.
_WITHHELD = "withheld"
_FLAGS, _HAS_EXIF, _HAS_ALPHA, _ASCII = 20, 0x08, 0x10, 2


def read(data: bytes, limits: GraphLimits = DEFAULT_LIMITS) -> Json:
    """Return the document of a JSON file, or the document that is embedded in an image.

    If an image contains both, the graph that ran (`prompt`) is preferred to the editor's document
    (`workflow`). Raises `NotAWorkflow` or `GraphTooLarge`; never decompresses or decodes more than the limit.
    """
    texts = _embedded_texts(data, limits)
    if texts is None:
        # A mapped file is read up to the limit.
        return _json(data[: limits.json_bytes + 1], limits)
    for name in reversed(_NAMES):
        if text := texts.get(name, bytes)():
            return _json(text, limits)
    raise NotAWorkflow("The image does not contain a workflow")


def extract(data: bytes, limits: GraphLimits = DEFAULT_LIMITS) -> dict[str, Json]:
    """Return the documents embedded in an image by name (`workflow`, `prompt`).

    Raises `NotAWorkflow` or `GraphTooLarge`.
    """
    texts = _embedded_texts(data, limits) or {}
    return {name: _json(content, limits) for name, text in texts.items() if (content := text())}


_Text = Callable[[], bytes]


def _embedded_texts(data: bytes, limits: GraphLimits) -> dict[str, _Text] | None:
    """Return the embedded texts as functions that decode them, or None if the data is not an image."""
    try:
        return _texts(data, limits)
    except MalformedFile as error:
        raise NotAWorkflow(f"The image cannot be read: {error}") from error


def _texts(data: bytes, limits: GraphLimits) -> dict[str, _Text] | None:
    kind = media_types.find(data)
    if kind is None:
        return None
    if kind.media_type == "image/png":
        inflater = _Inflater(len(_NAMES) * limits.json_bytes)
        return {
            name: functools.partial(_text, kind, payload, inflater)
            for name, (kind, payload) in _png(data, limits.json_bytes).items()
        }
    if kind.media_type in ("image/jpeg", "image/webp"):
        return {name: functools.partial(bytes, text) for name, text in _exif(data, limits.json_bytes)}
    return None


def _json(data: bytes, limits: GraphLimits) -> Json:
    limits.check_document(data)
    try:
        value: object = json.loads(data, parse_constant=lambda _word: None, parse_float=_finite)
    except (ValueError, RecursionError):
        raise NotAWorkflow("The file must be JSON or an image with an embedded workflow") from None
    document = mapping(value)
    if not document:
        raise NotAWorkflow
    return document


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _png(data: bytes, limit: int) -> dict[str, tuple[bytes, bytes]]:
    """Return the first text chunk of each name, undecoded and truncated above `limit` bytes."""
    texts: dict[str, tuple[bytes, bytes]] = {}
    for chunk in png.chunks(data):
        if chunk.kind in _TEXTS:
            for name in _NAMES:
                mark = name.encode() + b"\0"
                if name not in texts and data.startswith(mark, chunk.body):
                    begin = chunk.body + len(mark)
                    texts[name] = chunk.kind, data[begin : min(chunk.end - 4, begin + limit + _MAX_KEYWORDS)]
            if len(texts) == len(_NAMES):
                break
    return texts


def _text(kind: bytes, payload: bytes, inflater: _Inflater) -> bytes:
    if kind == b"tEXt":
        return payload
    if kind == b"zTXt":
        return inflater.inflate(payload[1:])
    is_compressed, payload = payload[:1] == b"\1", payload[2:]
    text = payload.split(b"\0", 2)[-1]
    return inflater.inflate(text) if is_compressed else text


class _Inflater:
    """Decompresses the texts of one file, up to a common limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        message = "The text chunks of an image may have at most {:,} bytes when decompressed"
        self._budget = InputBudget(bytes=Limit(limit, message, GraphTooLarge))

    def inflate(self, data: bytes) -> bytes:
        unpacker = zlib.decompressobj()
        try:
            text = unpacker.decompress(data, self._limit - self._budget.amount("bytes") + 1)
        except zlib.error:
            return b""
        self._budget.spend(bytes=len(text))
        return text


def _exif(data: bytes, limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield the texts `workflow:{…}` and `prompt:{…}`, each up to its NUL, from any part of the EXIF data."""
    for name in _NAMES:
        mark = name.encode() + b":{"
        at = byte_search.find(mark, data)
        if at >= 0:
            begin = at + len(mark) - 1
            end = data.find(b"\0", at, begin + limit + 1)
            yield name, data[begin : end if end >= 0 else begin + limit + 1]


def chunks(prompt: Mapping[str, Any] | None, workflow: Mapping[str, Any] | None) -> bytes:
    """Return the text chunks that ComfyUI writes into a PNG, to be inserted after its header."""
    data_chunks = b""
    for name, document in (("prompt", prompt), ("workflow", workflow)):
        if document is not None:
            text = _public_text(document).encode("latin-1", "replace")
            data_chunks += png.chunk(b"tEXt", name.encode() + b"\0" + text)
    return data_chunks


def _public_text(document: Mapping[str, Any]) -> str:
    """Return a graph as JSON, without names by which anyone could read the files that it loads."""
    return redaction.FILE_PATH.sub(lambda path: f"{path[1] or path[2]}{_WITHHELD}", json.dumps(document))


class GraphEmbedder:
    """Embeds one graph in any number of PNG and WebP files, encoding the graph once per format."""

    def __init__(self, prompt: Mapping[str, Any] | None, workflow: Mapping[str, Any] | None = None) -> None:
        self._prompt = prompt
        self._workflow = workflow

    def embed(self, data: bytes) -> bytes:
        """Return the file with the graph embedded; other formats are returned unchanged."""
        if png.matches(data):
            if data[12:16] != b"IHDR":
                return data
            end = png.HEADER_BYTES
            # Readers expect the chunks before the pixels.
            return data[:end] + self._chunks + data[end:]
        if webp.matches(data) and data[12:15] == b"VP8":
            whole = data if data[15:16] == b"X" else _extended(data)
            extended = whole[:_FLAGS] + bytes([whole[_FLAGS] | _HAS_EXIF]) + whole[_FLAGS + 1 :]
            extended += self._exif
            return extended[:4] + (len(extended) - 8).to_bytes(4, "little") + extended[8:]
        return data

    @functools.cached_property
    def _chunks(self) -> bytes:
        return chunks(self._prompt, self._workflow)

    @functools.cached_property
    def _exif(self) -> bytes:
        tags = {0x010F: ("workflow", self._workflow), 0x0110: ("prompt", self._prompt)}
        return riff.chunk(b"EXIF", _tiff(tags))


def embed(data: bytes, prompt: Mapping[str, Any] | None, workflow: Mapping[str, Any] | None = None) -> bytes:
    """Return a PNG or WebP with its graph embedded, so that it can be loaded and run again."""
    return GraphEmbedder(prompt, workflow).embed(data)


def _extended(data: bytes) -> bytes:
    """Return a simple WebP as an extended one, which can contain metadata; raises `Unembeddable`."""
    header = webp.extended_header(data, riff.complete(data, b"WEBP")[0])
    return data[:12] + header[:8] + bytes([header[8] & _HAS_ALPHA]) + header[9:] + data[12:]


def _tiff(tags: Mapping[int, tuple[str, Mapping[str, Any] | None]]) -> bytes:
    """Return EXIF data with the texts in the tags for the camera's make and model, which ComfyUI reads."""
    texts = {
        tag: f"{name}:{_public_text(document)}".encode() + b"\0"
        for tag, (name, document) in tags.items()
        if document is not None
    }
    at = 8 + 2 + 12 * len(texts) + 4
    entries, bodies = b"", b""
    for tag, text in texts.items():
        head = tag.to_bytes(2, "little") + _ASCII.to_bytes(2, "little")
        entries += head + len(text).to_bytes(4, "little") + (at + len(bodies)).to_bytes(4, "little")
        bodies += text + b"\0" * (len(text) % 2)
    return (
        b"II*\0" + (8).to_bytes(4, "little") + len(texts).to_bytes(2, "little") + entries + bytes(4) + bodies
    )
