"""Responses with stored files: byte ranges, validators, and headers that disable scripts in files."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.core.media.ports import BlobStore
from sixfold.core.provenance.formats import media_types

T = TypeVar("T")
FOREVER = "public, max-age=31536000, immutable"
REVALIDATE = "public, no-cache"
# For files that a session may read: otherwise, a browser would show its copy after the session has ended.
REVALIDATE_PRIVATE = "private, no-cache"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; media-src 'self'; sandbox"


class ServedFile(msgspec.Struct, frozen=True):
    """A file to be served; `tag` changes with its bytes, and `caching` is the `Cache-Control` value.

    With a `filename`, browsers save the file under this name, which must not contain quotes.
    """

    store: BlobStore
    key: str
    size: int
    content_type: str
    tag: str
    caching: str
    filename: str = ""


async def serve(request: Request, file: ServedFile) -> Response:
    """Return the file, a part of it, or 304; raises `NotFound` if its bytes are missing.

    The first bytes are read before the response starts, so that a failing store yields an error instead of
    half a file.
    """
    headers = _headers(file)
    if is_known(request, file.tag):
        return Response(None, 304, headers)
    range_header = request.headers.get("range")
    condition = request.headers.get("if-range")
    if condition is not None and condition != headers["ETag"]:
        range_header = None
    try:
        span = parse_range(range_header, file.size)
    except RangeNotSatisfiable:
        return Response(None, 416, {"Content-Range": f"bytes */{file.size}", "Accept-Ranges": "bytes"})
    start, length, status = 0, file.size, 200
    if span is not None:
        start, length, status = span.start, span.length, 206
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{file.size}"
    headers["Content-Length"] = str(length)
    if request.method == "HEAD":
        return Response(None, status, headers, file.content_type)
    pieces = aiter(file.store.stream(file.key, start, length))
    try:
        first = await anext(pieces, b"")
    except KeyError:
        raise errors.NotFound("The file was not found") from None
    return StreamingResponse(chained(first, pieces), status, headers, file.content_type)


async def chained(first: T, rest: AsyncIterator[T]) -> AsyncGenerator[T]:
    """Yield the first item, which has been read, and the rest."""
    yield first
    # A slow client may wait for minutes.
    del first
    async for each in rest:
        yield each


def is_known(request: Request, tag: str) -> bool:
    """Return whether `If-None-Match` matches the version with this tag."""
    header = request.headers.get("if-none-match")
    if header is None:
        return False
    return header.strip() == "*" or f'"{tag}"' in (
        part.strip().removeprefix("W/") for part in header.split(",")
    )


def _headers(file: ServedFile) -> dict[str, str]:
    headers = {
        "ETag": f'"{file.tag}"',
        "Accept-Ranges": "bytes",
        "Cache-Control": file.caching,
        "Content-Security-Policy": _POLICY,
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    if file.filename:
        headers["Content-Disposition"] = f'attachment; filename="{file.filename}"'
    elif file.content_type not in media_types.INLINE:
        headers["Content-Disposition"] = "attachment"
    return headers


# Linear time: two `\s*` around optional digits would try each way to divide a run of spaces.
_RANGE = re.compile(r"\s*bytes\s*=\s*(?:(\d{1,18})\s*)?-\s*(?:(\d{1,18})\s*)?", re.IGNORECASE | re.ASCII)


class ByteSpan(msgspec.Struct, frozen=True):
    """A range of `length` bytes from offset `start`."""

    start: int
    length: int


class RangeNotSatisfiable(Exception):
    """The requested range is outside of the file."""


def parse_range(header: str | None, size: int) -> ByteSpan | None:
    """Parse a `Range` header (RFC 9110); return None to send the whole file.

    Several ranges, other units and malformed ranges return None, which every client accepts. Raises
    `RangeNotSatisfiable`.
    """
    match = _RANGE.fullmatch(header) if header else None
    if match is None:
        return None
    first, last = match[1], match[2]
    if not first and not last:
        return None
    if not first:
        length = min(int(last), size)
        if length == 0:
            raise RangeNotSatisfiable
        return ByteSpan(size - length, length)
    start = int(first)
    end = min(int(last), size - 1) if last else size - 1
    if last and int(last) < start:
        return None
    if start >= size:
        raise RangeNotSatisfiable
    return ByteSpan(start, end - start + 1)
