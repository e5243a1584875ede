"""An upload's bytes on their way to the disk: raw, or the `file` of a form; never whole in memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from sixfold import errors
from sixfold.web import sniffing

_BLOCK_BYTES = 1 << 20
_MAX_HEADER_BYTES = 8192
_FIELD = b"file"


@dataclass(slots=True)
class Received:
    """What has come in: where it lies, its size, its first bytes, the type it claimed.

    `digest` is the SHA-256 of the whole request, without a form's boundary: of all of the form's parts.
    """

    path: Path
    size: int = 0
    head: bytes = b""
    claimed: str = ""
    digest: bytes = b""

    @property
    def content_type(self) -> str:
        """What the bytes say they are."""
        return sniffing.sniff(self.head, self.claimed)


@dataclass(slots=True)
class _Sink:
    """Counts, hashes and writes, in blocks and off the event loop."""

    received: Received
    file: BinaryIO
    block: bytearray = field(default_factory=bytearray)

    def take(self, data: bytes) -> None:
        self.block += data
        self.received.size += len(data)
        if len(self.received.head) < sniffing.HEAD_BYTES:
            self.received.head += data[: sniffing.HEAD_BYTES - len(self.received.head)]

    async def flush(self, *, at_least: int = 1) -> None:
        if len(self.block) >= at_least:
            block, self.block = self.block, bytearray()
            await asyncio.to_thread(self.file.write, block)


async def receive(request: Request, path: Path, part: bytes = _FIELD) -> Received:
    """Write a request's upload to `path`: its body, or the form's `part`. The caller removes the file.

    Raises `BadRequest` or `TooLarge`.
    """
    claimed = request.headers.get("content-type", "").encode("latin-1", "replace")
    kind, options = parse_options_header(claimed)
    received = Received(path, claimed=kind.decode("latin-1"))
    whole = hashlib.sha256(kind)
    file = await asyncio.to_thread(path.open, "xb")
    try:
        sink = _Sink(received, file)
        boundary = options.get(b"boundary", b"")
        form = _Form(sink, boundary, part, whole.update) if kind == b"multipart/form-data" else None
        async for chunk in request.stream():
            if form is None:
                whole.update(chunk)
                sink.take(chunk)
            else:
                form.feed(chunk)
            await sink.flush(at_least=_BLOCK_BYTES)
        if form is not None:
            form.finish()
        await sink.flush()
    finally:
        await asyncio.to_thread(file.close)
    received.digest = whole.digest()
    if not received.size:
        raise errors.BadRequest("The upload is empty")
    return received


class _Form:
    """One part of a multipart body; all others are passed over. `hear` is told of every part."""

    def __init__(self, sink: _Sink, boundary: bytes, part: bytes, hear: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._part = part
        self._hear = hear
        self._header = self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._wanted = self._found = self._done = False
        if not boundary:
            raise errors.BadRequest("Invalid form body: it has no boundary")
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._on_field,
                    "on_header_value": self._on_value,
                    "on_header_end": self._on_header,
                    "on_headers_finished": self._on_headers,
                    "on_part_data": self._on_data,
                    "on_end": self._on_end,
                },
            )
        except FormParserError as error:
            raise errors.BadRequest("Invalid form body") from error

    def feed(self, chunk: bytes) -> None:
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise errors.BadRequest("Invalid form body") from error

    def finish(self) -> None:
        if not self._done:
            raise errors.BadRequest("Invalid form body: it breaks off")
        if not self._found:
            raise errors.BadRequest(f"The form has no part named {self._part.decode()}")

    def _begin(self) -> None:
        self._headers = {}
        self._hear(b"--")

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._header = self._capped(self._header + data[start:end])

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value = self._capped(self._value + data[start:end])

    def _on_header(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._hear(self._header + b":" + self._value + b"\n")
        self._header = self._value = b""

    def _on_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._wanted = options.get(b"name") == self._part and not self._found
        if self._wanted:
            self._found = True
            kind, _ = parse_options_header(self._headers.get(b"content-type", b""))
            self._sink.received.claimed = kind.decode("latin-1")

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        self._hear(data[start:end])
        if self._wanted:
            self._sink.take(data[start:end])

    def _on_end(self) -> None:
        self._done = True

    @staticmethod
    def _capped(text: bytes) -> bytes:
        if len(text) > _MAX_HEADER_BYTES:
            raise errors.BadRequest("Invalid form body: a header is too long")
        return text
