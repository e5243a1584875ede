"""Request bodies from untrusted clients: JSON, forms, their limits, and the API key in them."""

from __future__ import annotations

import functools
import io
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import unquote_plus, unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from sixfold import errors
from sixfold.core import humanize
from sixfold.core.catalog import text_values
from sixfold.core.catalog.inputs import LIST_TYPES, Descriptor
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.input_limits import json_decoding, json_limits
from sixfold.core.input_limits.budget import InputBudget, Limit
from sixfold.core.input_limits.json_limits import JsonLimits
from sixfold.core.provenance.formats.media_types import UNKNOWN
from sixfold.web import refusals
from sixfold.web.multipart import INVALID_FORM, MAX_FIELDS, MAX_FILES, Head, PartHandler, Splitter, text

INVALID_JSON = "Invalid JSON body"
NOT_AN_OBJECT = "The body must be a JSON object"
MAX_PARTS = MAX_FIELDS + MAX_FILES
_OBJECT = re.compile(rb"[ \t\n\r]*\{")
_MAX_DIGITS = 20
# A shorter body cannot exceed the limits on values.
_SMALL_BYTES = 64 * 1024
_T = TypeVar("_T")
_FORM_TYPES = frozenset({"multipart/form-data", "application/x-www-form-urlencoded"})
_SWITCHES = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}


class FormPart(NamedTuple):
    """One part of a form; `filename` and `kind` are set for files only.

    A large file is a view of the body, which is not a copy.
    """

    name: str
    data: bytes | memoryview
    filename: str = ""
    kind: str = ""


class BodyFields(msgspec.Struct, frozen=True):
    """The named values of a body. In a form every value is a string; `files` contains the bytes of its files.

    Of a field that occurs several times, `values` has the last string and `repeated` has all. `parts`
    contains all parts of a multipart form.
    """

    values: dict[str, Any]
    is_form: bool = False
    files: dict[str, bytes | memoryview] = {}
    parts: tuple[FormPart, ...] = ()
    repeated: Mapping[str, Sequence[str]] = {}


def parse_json(raw: bytes, limits: JsonLimits = json_limits.DEFAULT) -> Any:
    """Parse any JSON value; raises `BadRequest` also for NaN, deep nesting, bad Unicode and trailing text.

    A document with too many values raises `InputTooLarge` before it is decoded.
    """
    check_size(raw, limits)
    try:
        return json_decoding.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise errors.BadRequest(INVALID_JSON) from error


def parse(parser: Callable[[bytes], _T], raw: bytes) -> Coroutine[Any, Any, _T]:
    """Run `parser` on a body, in the thread of parsers if the body is large."""
    return PARSER.run_large(len(raw), parser, raw)


def check_size(raw: bytes, limits: JsonLimits = json_limits.DEFAULT) -> None:
    """Raise `InputTooLarge` for a JSON document with too many values; a small document is not scanned."""
    if len(raw) > _SMALL_BYTES:
        limits.check(raw)


def parse_object(raw: bytes, limits: JsonLimits = json_limits.DEFAULT) -> dict[str, Any]:
    """Parse a JSON object; raises `BadRequest` for any other value, or `InputTooLarge`."""
    value = parse_json(raw, limits)
    if not isinstance(value, dict):
        raise errors.BadRequest(NOT_AN_OBJECT)
    return cast("dict[str, Any]", value)


def require_object(raw: bytes) -> None:
    """Raise `BadRequest` for a body that is another JSON value than an object, or that is not JSON.

    An object is not checked further, so that a decoder can report its fields.
    """
    if not _OBJECT.match(raw):
        parse_object(raw)


def media_type(request: Request) -> str:
    """Return the content type of the body in lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def form_type(request: Request, raw: bytes) -> str:
    """Return the media type of a form, or "" for a body to be read as JSON."""
    kind = media_type(request)
    if kind == "application/x-www-form-urlencoded" and raw[:_SMALL_BYTES].lstrip().startswith(b"{"):
        return ""
    return kind if kind in _FORM_TYPES else ""


class BufferedRequest(Request):
    """A request that collects its body in a buffer; a list of chunks and their join take twice the memory."""

    async def body(self) -> bytes:
        """Return the whole body."""
        if not hasattr(self, "_body"):
            buffer = io.BytesIO()
            async for chunk in self.stream():
                buffer.write(chunk)
            # The value of the buffer is not a copy.
            self._body = buffer.getvalue()
        return self._body


async def fields(request: Request) -> BodyFields:
    """Read the named values of a JSON or form body; raises `BadRequest`.

    A body that looks like a JSON object is read as JSON even if it claims to be urlencoded, as with `curl -d
    '{…}'`. Empty fields of a form are omitted.
    """
    raw = await request.body()
    match form_type(request, raw):
        case "multipart/form-data":
            split = functools.partial(_multipart, content_type=request.headers["content-type"])
            return await parse(split, raw)
        case "application/x-www-form-urlencoded":
            return await parse(_urlencoded, raw)
        case _:
            return BodyFields(await parse(parse_object, raw))


class _PartReader(PartHandler):
    """Collects non-empty parts; a browser sends an empty file for an input without a selection."""

    def __init__(self) -> None:
        self.parts: list[FormPart] = []
        self._head: Head | None = None
        self._pieces: list[memoryview] = []

    def begin(self, head: Head) -> None:
        self._head, self._pieces = head, []

    def take(self, data: memoryview) -> None:
        self._pieces.append(data)

    def end(self) -> None:
        head, pieces = self._head, self._pieces
        if head is None or not pieces:
            return
        if head.filename is None:
            self.parts.append(FormPart(head.name, b"".join(pieces)))
        else:
            is_large = len(pieces) == 1 and len(pieces[0]) > SLICE_BYTES
            data = pieces[0] if is_large else b"".join(pieces)
            self.parts.append(
                FormPart(head.name, data, head.filename or "file", head.content_type or UNKNOWN)
            )


def _multipart(raw: bytes, content_type: str) -> BodyFields:
    reader = _PartReader()
    Splitter(content_type, reader).feed(raw)
    pairs = [(part.name, text(bytes(part.data))) for part in reader.parts if not part.filename]
    files = {part.name: part.data for part in reader.parts if part.filename}
    return BodyFields(dict(pairs), True, files, tuple(reader.parts), _repeated(pairs))


def _urlencoded(raw: bytes) -> BodyFields:
    pairs = _decode_pairs(raw, MAX_FIELDS)
    return BodyFields(dict(pairs), is_form=True, repeated=_repeated(pairs))


def _repeated(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for name, value in pairs:
        texts.setdefault(name, []).append(value)
    return {name: values for name, values in texts.items() if len(values) > 1}


def from_text(
    descriptors: tuple[Descriptor, ...],
    values: dict[str, Any],
    repeated: Mapping[str, Sequence[str]] = {},
) -> dict[str, Any]:
    """Convert the texts of a form or query to the types of their descriptors, where possible.

    A list that is sent as a repeated field is joined with commas, which separate its entries.
    """
    kinds = {descriptor.name: descriptor.type for descriptor in descriptors}
    joined_values = {
        name: ",".join(texts) for name, texts in repeated.items() if kinds.get(name) in LIST_TYPES
    }
    return {
        name: _convert(kinds.get(name, "string"), value) for name, value in (values | joined_values).items()
    }


def _convert(kind: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if kind == "boolean":
        return _SWITCHES.get(text.lower(), value)
    if kind == "integer":
        return _integer(text, value)
    if kind == "number":
        try:
            return float(text)
        except ValueError:
            return value
    return text_values.from_text(kind, value)


def _integer(text: str, default: Any) -> Any:
    digits = text.removeprefix("-").removeprefix("+")
    if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS:
        return int(text)
    return default


_MAX_LENGTH_DIGITS = 18
_FREE_BYTES = 64 * 1024


def check_content_length(scope: Scope, max_bytes: int) -> None:
    """Raise `TooLarge` if the `Content-Length` of a request exceeds `max_bytes`."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            digits = len(value) if value.isdigit() else 0
            if digits > _MAX_LENGTH_DIGITS or (digits and int(value) > max_bytes):
                raise too_large(max_bytes)


def limit_body(receive: Receive, max_bytes: int) -> Receive:
    """Return a `receive` that raises `TooLarge` once the body exceeds `max_bytes`."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > max_bytes:
                raise too_large(max_bytes)
        return message

    return limited


def too_large(max_bytes: int) -> errors.TooLarge:
    return errors.TooLarge(f"The request body is larger than {humanize.limit(max_bytes)}")


def may_be_large(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request with these headers may have a body that a `BodyBudget` counts."""
    length = headers.get(b"content-length", b"")
    return b"transfer-encoding" in headers or len(length) >= len(str(_FREE_BYTES))


class BodyBudget:
    """A limit on memory for bodies: in total, and half of it per caller.

    The first 64 KiB of each body are not counted. `reason` is the label in the metrics, `message` the error.
    """

    def __init__(self, max_bytes: int, reason: str, message: str) -> None:
        self._max_bytes = max_bytes
        self._reason = reason
        self._message = message
        self._total = 0
        self._callers: Counter[str] = Counter()

    @contextmanager
    def track(self, caller: str, receive: Receive) -> Generator[Receive]:
        """Yield a `receive` that raises `TooManyRequests` over the budget; release the bytes on exit."""
        received = counted = 0

        async def metered() -> Message:
            nonlocal received, counted
            message = await receive()
            received += len(message.get("body", b""))
            more = max(0, received - _FREE_BYTES) - counted
            counted += more
            self._total += more
            self._callers[caller] += more
            if more and (self._total > self._max_bytes or 2 * self._callers[caller] > self._max_bytes):
                refusals.recorder().add(self._reason, caller)
                raise errors.TooManyRequests(self._message)
            return message

        try:
            yield metered
        finally:
            self._total -= counted
            self._callers[caller] -= counted
            if self._callers[caller] <= 0:
                del self._callers[caller]


SLICE_BYTES = 64 * 1024
# One count of dense matches in 32 MiB would hold the GIL for 100 ms.
_COUNTED_BYTES = 2**20
# Each escape takes time to decode; 32 MiB of base64 have a million.
_ESCAPES = Limit(2_400_000, "The form may have at most {:,} percent-encoded bytes")


def decode_urlencoded(raw: bytes, *, max_fields: int, keep_blank: bool = False) -> dict[str, str]:
    """Return the last value of each field of an urlencoded form; raises `BadRequest` or `InputTooLarge`.

    It decodes in slices: the functions of the standard library hold a list of all escape sequences, and one
    call for 32 MiB would block all threads.
    """
    return dict(_decode_pairs(raw, max_fields, keep_blank=keep_blank))


def _decode_pairs(raw: bytes, max_fields: int, *, keep_blank: bool = False) -> list[tuple[str, str]]:
    InputBudget(escapes=_ESCAPES).spend(escapes=_count(raw, b"%"))
    if _count(raw, b"&") >= max_fields:
        raise errors.BadRequest(f"{INVALID_FORM}: it has more than {max_fields} fields")
    try:
        return list(_urlencoded_fields(raw, keep_blank=keep_blank))
    except UnicodeDecodeError as error:
        raise errors.BadRequest(INVALID_FORM) from error


def _urlencoded_fields(raw: bytes, *, keep_blank: bool) -> Iterator[tuple[str, str]]:
    for start, name_end, end in _pairs(raw):
        if end > name_end + 1 or (keep_blank and end > start):
            yield _unquote(raw, start, name_end), _unquote(raw, name_end + 1, end)


def _pairs(raw: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield where each field begins, its name ends and its value ends, without copies of large values."""
    start = 0
    while start <= len(raw):
        end = raw.find(b"&", start)
        end = end if end >= 0 else len(raw)
        equals = raw.find(b"=", start, end)
        yield start, equals if equals >= 0 else end, end
        start = end + 1


def _count(raw: bytes, byte: bytes) -> int:
    return sum(raw.count(byte, at, at + _COUNTED_BYTES) for at in range(0, len(raw), _COUNTED_BYTES))


def _unquote(raw: bytes, start: int, end: int) -> str:
    pieces = (piece.replace(b"+", b" ") for piece in _slices(raw, start, end))
    return b"".join(unquote_to_bytes(piece) if b"%" in piece else piece for piece in pieces).decode("utf-8")


def _slices(raw: bytes, start: int, end: int) -> Iterator[bytes]:
    """Split a range without cutting an escape sequence."""
    while start < end:
        stop = start + SLICE_BYTES
        cut = raw.find(b"%", stop - 2, stop)
        stop = min(cut if cut >= 0 else stop, end)
        yield raw[start:stop]
        start = stop


_KEY_FIELD = "api_key"
# A longer value is not decoded, since a key has 46 bytes.
_MAX_KEY_BYTES = 4096
# Replaces a value that is too long to be a key.
_INVALID_KEY = ""


class _Credential(msgspec.Struct):
    api_key: msgspec.Raw = msgspec.Raw(b"null")


_read_key = msgspec.json.Decoder(_Credential).decode
_skip = msgspec.json.Decoder(msgspec.Raw).decode


def key_in_json(raw: bytes) -> Any:
    """Return the member `api_key` of a JSON object, or None; raises `BadRequest` for any other body.

    The decoder skips all other values without allocating memory. The last of repeated members counts, as when
    the whole document is decoded. A document with more values than any route accepts raises `InputTooLarge`:
    the decoder would hold the GIL while it skips them.
    """
    check_size(raw, json_limits.GRAPH)
    try:
        if not _OBJECT.match(raw):
            _skip(raw)
            raise errors.BadRequest(NOT_AN_OBJECT)
        value = _read_key(raw).api_key
        return msgspec.json.decode(value) if len(bytes(value)) <= _MAX_KEY_BYTES else _INVALID_KEY
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise errors.BadRequest(INVALID_JSON) from error


def key_in_urlencoded(raw: bytes) -> str | None:
    """Return the last `api_key` field that is not empty; raises `BadRequest` for too many fields."""
    if _count(raw, b"&") >= MAX_PARTS:
        raise errors.BadRequest(INVALID_FORM)
    key = None
    for start, name_end, end in _pairs(raw):
        if (
            name_end - start <= _MAX_KEY_BYTES
            and end > name_end + 1
            and unquote_plus(raw[start:name_end].decode("utf-8", "replace")) == _KEY_FIELD
        ):
            value = raw[name_end + 1 : min(end, name_end + 2 + _MAX_KEY_BYTES)]
            key = (
                unquote_plus(value.decode("utf-8", "replace"))
                if len(value) <= _MAX_KEY_BYTES
                else _INVALID_KEY
            )
    return key


def key_in_multipart(raw: bytes, content_type: str) -> str | None:
    """Return the last `api_key` part that is neither empty nor a file.

    Raises `BadRequest` for a malformed form.
    """
    reader = _KeyReader()
    Splitter(content_type, reader).feed(raw)
    return reader.key


class _KeyReader(PartHandler):
    key: str | None = None
    _is_key = False
    _data = b""

    def begin(self, head: Head) -> None:
        self._is_key, self._data = head.name == _KEY_FIELD and head.filename is None, b""

    def take(self, data: memoryview) -> None:
        if self._is_key:
            self._data += data[: _MAX_KEY_BYTES + 1 - len(self._data)]

    def end(self) -> None:
        if self._is_key and self._data:
            self.key = (
                self._data.decode("utf-8", "replace") if len(self._data) <= _MAX_KEY_BYTES else _INVALID_KEY
            )
