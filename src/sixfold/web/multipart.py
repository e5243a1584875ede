"""A parser of multipart bodies.

It searches for the boundary, which takes the same time for any content. Parts, headers and fields are counted
before they are stored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from tempfile import SpooledTemporaryFile
from typing import Any, NamedTuple, cast

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.requests import Request

from sixfold import errors
from sixfold.core.input_limits.budget import InputBudget, Limit

INVALID_FORM = "Invalid form body"
TYPE = "multipart/form-data"
MAX_FIELDS, MAX_FILES = 1000, 16
_MAX_BOUNDARY_BYTES = 200
_MAX_PADDING_BYTES = 100
# The limit on all headers of one part.
_MAX_HEADER_BYTES = 8192
# Semicolons in a header, including those of a file name.
_MAX_SEPARATORS = 300
# The limit on a part that is not a file.
_MAX_FIELD_BYTES = 2**20
_SPOOL_BYTES = _SLICE_BYTES = 2**20
_LINE, _HEADERS_END = b"\r\n", b"\r\n\r\n"
_Position = tuple[int, bool]
_State = Callable[["Splitter", bytes, int], _Position]


class Head(NamedTuple):
    """The headers of a part; `filename` is None for a field."""

    name: str
    filename: str | None
    headers: list[tuple[bytes, bytes]]

    @property
    def content_type(self) -> str:
        """The content type that the part claims."""
        return Headers(raw=self.headers).get("content-type", "")


class PartHandler:
    """Callbacks for each part of a body; this class ignores all parts."""

    def begin(self, head: Head) -> None:
        """Handle the start of a part."""

    def take(self, data: memoryview) -> None:
        """Handle some data of the part."""

    def end(self) -> None:
        """Handle the end of the part."""


class Splitter:
    """An incremental parser of multipart bodies; raises `BadRequest`."""

    def __init__(
        self, content_type: str, handler: PartHandler, *, files: int = MAX_FILES, fields: int = MAX_FIELDS
    ) -> None:
        kind, options = parameters(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != TYPE.encode() or not 0 < len(boundary) <= _MAX_BOUNDARY_BYTES:
            raise _invalid(f"its type must be {TYPE}, with a boundary of 1 to {_MAX_BOUNDARY_BYTES} bytes")
        self._delimiter = b"\r\n--" + boundary
        self._handler = handler
        self._budget = InputBudget(
            files=Limit(files, f"{INVALID_FORM}: it must have at most {{}} files", errors.BadRequest),
            fields=Limit(fields, f"{INVALID_FORM}: it must have at most {{}} fields", errors.BadRequest),
        )
        # A function and not a bound method: a reference cycle would keep the body until the next collection.
        self._read: _State = Splitter._start
        self._pending = b""
        self._is_file = False
        self._part_bytes = 0
        # The CRLF that ends the headers may also begin the next boundary.
        self._skip = 0
        self.ended = False

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the body; bytes after the last boundary are ignored."""
        data = self._pending + data if self._pending else data
        at, has_data = 0, True
        while has_data and not self.ended:
            at, has_data = self._read(self, data, at)
        self._pending = data[at:]

    # Each state returns the position at which the next one continues, and whether there are enough bytes.

    def _start(self, data: bytes, at: int) -> _Position:
        first = self._delimiter[len(_LINE) :]
        piece = data[at : at + _SLICE_BYTES]
        at += len(piece) - len(piece.lstrip(_LINE))
        if len(piece) == _SLICE_BYTES and not piece.lstrip(_LINE):
            return at, True
        if data.startswith(first, at):
            self._read = Splitter._boundary
            return at + len(first), True
        if not first.startswith(data[at : at + len(first)]):
            raise _invalid("it does not begin with its boundary")
        return at, False

    def _boundary(self, data: bytes, at: int) -> _Position:
        if data.startswith(b"--", at):
            self.ended = True
            return len(data), False
        end = data.find(_LINE, at, at + _MAX_PADDING_BYTES)
        padding = data[at : end if end >= 0 else at + _MAX_PADDING_BYTES].strip(b" \t")
        too_long = end < 0 and len(data) - at >= _MAX_PADDING_BYTES
        if too_long or padding not in (b"", b"-", b"\r"):
            raise _invalid("unexpected data after the boundary")
        if end >= 0:
            self._read = Splitter._headers
        return max(at, end), end >= 0

    def _headers(self, data: bytes, at: int) -> _Position:
        end = data.find(_HEADERS_END, at, at + _MAX_HEADER_BYTES)
        if end < 0:
            if len(data) - at >= _MAX_HEADER_BYTES:
                raise _invalid(f"the headers of a part must have at most {_MAX_HEADER_BYTES:,} bytes")
            return at, False
        head = _head(data[at + len(_LINE) : end])
        self._is_file = head.filename is not None
        self._budget.spend(files=int(self._is_file), fields=int(not self._is_file))
        self._handler.begin(head)
        self._read, self._skip, self._part_bytes = Splitter._data, len(_LINE), 0
        return end + len(_LINE), True

    def _data(self, data: bytes, at: int) -> _Position:
        # One search of 32 MiB filled with prefixes of the delimiter would hold the GIL for 80 ms.
        start, margin = at + self._skip, len(self._delimiter) - 1
        while (delimiter_at := data.find(self._delimiter, at, at + _SLICE_BYTES)) < 0:
            if at + _SLICE_BYTES >= len(data):
                break
            at += _SLICE_BYTES - margin
        end = delimiter_at if delimiter_at >= 0 else len(data) - margin
        if end > start:
            self._pass_data(memoryview(data)[start:end])
            at, self._skip = end, 0
        if delimiter_at < 0:
            return at, False
        self._handler.end()
        self._read = Splitter._boundary
        return delimiter_at + len(self._delimiter), True

    def _pass_data(self, data: memoryview) -> None:
        self._part_bytes += len(data)
        if not self._is_file and self._part_bytes > _MAX_FIELD_BYTES:
            raise _invalid(f"a field must have at most {_MAX_FIELD_BYTES:,} bytes")
        self._handler.take(data)


def _head(raw: bytes) -> Head:
    lines = [line.partition(b":") for line in raw.split(_LINE)] if raw else []
    headers = [(name.strip().lower(), value.strip()) for name, _, value in lines]
    disposition = next((value for name, value in headers if name == b"content-disposition"), b"")
    _, options = parameters(disposition)
    if b"name" not in options:
        raise _invalid("a part does not have a name")
    filename = options.get(b"filename")
    return Head(text(options[b"name"]), None if filename is None else text(filename), headers)


def parameters(header: bytes | str) -> tuple[bytes, dict[bytes, bytes]]:
    """Return the value and the parameters of a header; raises `BadRequest` for too many separators.

    The library copies the rest of the header for each separator: 1,000 parts with a header of 8 KiB took 6 s.
    """
    value = header.decode("latin-1") if isinstance(header, bytes) else header
    if (separators := value.count(";")) > _MAX_SEPARATORS:
        raise _invalid(f"a header must have at most {_MAX_SEPARATORS} semicolons (got {separators:,})")
    return parse_options_header(value)


def text(data: bytes) -> str:
    """Decode a field, which is UTF-8 or else Latin-1."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _invalid(reason: str) -> errors.BadRequest:
    return errors.BadRequest(f"{INVALID_FORM}: {reason}")


class _Collector(PartHandler):
    """Collects fields, and files with the data that is still to be written."""

    def __init__(self) -> None:
        self.items: list[tuple[str, str | UploadFile]] = []
        self.pending: list[tuple[UploadFile, memoryview]] = []
        self._field: tuple[str, bytearray] | None = None
        self._file: UploadFile | None = None

    def begin(self, head: Head) -> None:
        self._field = self._file = None
        if head.filename is None:
            self._field = head.name, bytearray()
            return
        spool_file = cast("Any", SpooledTemporaryFile(max_size=_SPOOL_BYTES))  # noqa: SIM115  # `form` closes it
        self._file = UploadFile(spool_file, size=0, filename=head.filename, headers=Headers(raw=head.headers))
        self.items.append((head.name, self._file))

    def take(self, data: memoryview) -> None:
        if self._field is not None:
            self._field[1].extend(data)
        elif self._file is not None:
            self.pending.append((self._file, data))

    def end(self) -> None:
        if self._field is not None:
            self.items.append((self._field[0], text(bytes(self._field[1]))))
            self._field = None

    def write(self) -> None:
        """Write the data that arrived since the last call."""
        for file, data in self.pending:
            file.file.write(data)
            file.size = (file.size or 0) + len(data)
        self.pending.clear()


@contextlib.asynccontextmanager
async def form(request: Request, *, max_files: int, max_fields: int) -> AsyncGenerator[FormData]:
    """Yield a form, with large files on disk until the context ends; it is empty for other content types."""
    content_type = request.headers.get("content-type", "")
    collector = _Collector()
    try:
        if content_type.partition(";")[0].strip().lower() == TYPE:
            splitter = Splitter(content_type, collector, files=max_files, fields=max_fields)
            async for chunk in request.stream():
                # A body that was read before arrives as one large chunk.
                for start in range(0, len(chunk), _SLICE_BYTES):
                    splitter.feed(chunk[start : start + _SLICE_BYTES])
                    if collector.pending:
                        await asyncio.to_thread(collector.write)
        uploads = [item for _, item in collector.items if isinstance(item, UploadFile)]
        for file in uploads:
            await file.seek(0)
        yield FormData(collector.items)
    finally:
        for _, item in collector.items:
            if isinstance(item, UploadFile):
                await asyncio.to_thread(item.file.close)
