"""Validation of a batch's input, line by line, without holding the input in memory."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import msgspec

from sixfold.core.batches.models import LineProblem

MAX_LINE_BYTES = 8 * 2**20
MAX_ID_CHARS = 512
_CHUNK_BYTES, _CHUNK_LINES = 2**20, 500
# Splitting 256 KiB into lines of one character takes 150 ms.
_SLICE_BYTES = 2**15
_MAX_MODEL_CHARS = 200
_BLANK_LINES = re.compile(rb"\s*\n")
# A code, a message and a parameter.
_Problem = tuple[str, str, str]


class RawLine(NamedTuple):
    """A line of an input; `data` is None if the line is longer than the limit."""

    number: int
    start: int
    length: int
    data: bytes | None


class ValidLine(NamedTuple):
    """A line that can run."""

    number: int
    custom_id: str
    start: int
    length: int


class _InputRequest(msgspec.Struct):
    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class _Body(msgspec.Struct):
    model: str
    stream: bool | None = None


class _OnlyId(msgspec.Struct):
    custom_id: str = ""


_decode_request = msgspec.json.Decoder(_InputRequest).decode
_decode_body = msgspec.json.Decoder(_Body).decode
_decode_id = msgspec.json.Decoder(_OnlyId).decode


def request_body(line: bytes) -> bytes:
    return bytes(_decode_request(line).body)


async def chunks(pieces: AsyncIterator[bytes]) -> AsyncIterator[Sequence[RawLine]]:
    """Yield the lines of an input that are not blank, in groups of about 1 MiB."""
    reader = _LineReader()
    async for piece in pieces:
        for at in range(0, len(piece), _SLICE_BYTES):
            reader.feed(piece[at : at + _SLICE_BYTES])
            if reader.is_full:
                yield reader.take()
            # Other tasks run between the slices.
            await asyncio.sleep(0)
    reader.finish()
    if remainder := reader.take():
        yield remainder


class _LineReader:
    def __init__(self) -> None:
        self._lines: list[RawLine] = []
        self._bytes = 0
        self._pending = bytearray()
        self._number = 1
        self._start = 0
        # The number of bytes of a line over the limit, whose content is discarded.
        self._dropped = 0

    @property
    def is_full(self) -> bool:
        return self._bytes >= _CHUNK_BYTES or len(self._lines) >= _CHUNK_LINES

    def feed(self, piece: bytes) -> None:
        at = 0
        while (end := piece.find(b"\n", at)) >= 0:
            self._extend(piece[at:end])
            self._end_line(1)
            at = end + 1
            # A file of empty lines takes a step for each run of them, not for each line.
            if piece[at : at + 1].isspace() and (blank := _BLANK_LINES.match(piece, at)):
                self._number += piece.count(b"\n", at, blank.end())
                self._start += blank.end() - at
                at = blank.end()
        self._extend(piece[at:])

    def finish(self) -> None:
        self._end_line(0)

    def take(self) -> list[RawLine]:
        lines, self._lines, self._bytes = self._lines, [], 0
        return lines

    def _extend(self, data: bytes) -> None:
        if self._dropped or len(self._pending) + len(data) > MAX_LINE_BYTES:
            self._dropped += len(self._pending) + len(data)
            self._pending.clear()
        else:
            self._pending += data

    def _end_line(self, newline: int) -> None:
        length = self._dropped + len(self._pending)
        if self._dropped:
            self._lines.append(RawLine(self._number, self._start, length, None))
        elif self._pending.strip():
            self._lines.append(RawLine(self._number, self._start, length, bytes(self._pending)))
            self._bytes += length
        self._start += length + newline
        self._number += 1
        self._dropped = 0
        self._pending.clear()


class LineValidator:
    """Checks the lines of one input for an endpoint, and records their ids to find repeated ones."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._ids: set[str] = set()

    def check(self, lines: Sequence[RawLine]) -> tuple[list[ValidLine], list[LineProblem]]:
        """Return the valid lines and the problems of the invalid lines; not for use in the event loop."""
        valid: list[ValidLine] = []
        problems: list[LineProblem] = []
        for line in lines:
            result = self._check(line)
            if isinstance(result, LineProblem):
                problems.append(result)
            else:
                valid.append(result)
        return valid, problems

    def _check(self, line: RawLine) -> ValidLine | LineProblem:
        if line.data is None:
            return LineProblem(
                line.number, "line_too_long", f"A line must be at most {MAX_LINE_BYTES:,} bytes"
            )
        try:
            request = _decode_request(line.data)
        except msgspec.ValidationError as error:
            return _shape_problem(line, line.data, error)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return LineProblem(line.number, "invalid_json_line", "This line is not parseable as valid JSON")
        wrong = self._request_problem(request) or _body_problem(request.body)
        if wrong is not None:
            return LineProblem(line.number, *wrong, request.custom_id[:MAX_ID_CHARS])
        return ValidLine(line.number, request.custom_id, line.start, line.length)

    def _request_problem(self, request: _InputRequest) -> _Problem | None:
        custom_id = request.custom_id
        if not 0 < len(custom_id) <= MAX_ID_CHARS:
            return "invalid_custom_id", f"custom_id must have 1 to {MAX_ID_CHARS} characters", "custom_id"
        if custom_id in self._ids:
            return "duplicate_custom_id", f"The custom_id {custom_id!r} is used more than once", "custom_id"
        self._ids.add(custom_id)
        if request.method != "POST":
            return "invalid_method", "method must be POST", "method"
        if request.url != self._endpoint:
            return "mismatched_url", f"url must be {self._endpoint}, the endpoint of the batch", "url"
        return None


def _body_problem(raw: msgspec.Raw) -> _Problem | None:
    try:
        body = _decode_body(raw)
    except msgspec.ValidationError as error:
        return "invalid_request", f"Invalid request: {error}", "body"
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return "invalid_json_line", "body is not parseable as valid JSON", "body"
    if not 0 < len(body.model) <= _MAX_MODEL_CHARS:
        return "invalid_request", f"model must have 1 to {_MAX_MODEL_CHARS} characters", "body.model"
    if body.stream:
        return "invalid_request", "stream must be false in a batch", "body.stream"
    return None


def _shape_problem(line: RawLine, data: bytes, error: Exception) -> LineProblem:
    """Return the problem of a line that is JSON but not a request."""
    try:
        custom_id = _decode_id(data).custom_id[:MAX_ID_CHARS]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        custom_id = ""
    message = f"Invalid request: {error}"
    return LineProblem(line.number, "invalid_request", message, None, custom_id or None)
