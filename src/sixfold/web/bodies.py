"""Request bodies from strangers: JSON, or a form in its place."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from starlette.requests import Request

from sixfold import errors
from sixfold.core import json_decoding, json_limits
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.json_limits import JsonLimits
from sixfold.core.provenance.formats.media_types import UNKNOWN
from sixfold.web import urlencoded
from sixfold.web.multipart import MAX_FIELDS, MAX_FILES, Head, PartHandler, Splitter, text

INVALID_JSON = "Invalid JSON body"
MAX_PARTS = MAX_FIELDS + MAX_FILES
_MAX_DIGITS = 20
_SMALL_BYTES = 64 * 1024  # too short to exceed the limits on values
_LOOP_BYTES = 256 * 1024  # take at most 10 ms to parse
_T = TypeVar("_T")
_FORM_TYPES = frozenset({"multipart/form-data", "application/x-www-form-urlencoded"})
_SWITCHES = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}


class FormPart(NamedTuple):
    """One part of a form as it came; only a file has a name and a kind."""

    name: str
    data: bytes
    filename: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class BodyFields:
    """The named values of a body; in a form every value is text, and `files` are the bytes of its files.

    `parts` are all of a form's, where a name may come twice.
    """

    values: dict[str, Any]
    is_form: bool = False
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    parts: tuple[FormPart, ...] = ()


def parse_json(raw: bytes, limits: JsonLimits = json_limits.DEFAULT) -> Any:
    """Any JSON value; raises `BadRequest`: for NaN, deep nesting, bad Unicode and trailing text, too.

    A document with too many values is refused with `InputTooLarge` before it is decoded.
    """
    check_size(raw, limits)
    try:
        return json_decoding.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise errors.BadRequest(INVALID_JSON) from error


async def parsed(parse: Callable[[bytes], _T], raw: bytes) -> _T:
    """Return what `parse` makes of a body, in a thread where a large one takes long."""
    return parse(raw) if len(raw) <= _LOOP_BYTES else await asyncio.to_thread(parse, raw)


def check_size(raw: bytes, limits: JsonLimits = json_limits.DEFAULT) -> None:
    """Raise `InputTooLarge` for a JSON document with too many values; a small one is not scanned."""
    if len(raw) > _SMALL_BYTES:
        limits.check(raw)


def parse_object(raw: bytes, limits: JsonLimits = json_limits.DEFAULT) -> dict[str, Any]:
    """A JSON object; raises `BadRequest` for anything else, and `InputTooLarge`."""
    value = parse_json(raw, limits)
    if not isinstance(value, dict):
        raise errors.BadRequest(INVALID_JSON)
    return cast("dict[str, Any]", value)


def media_type(request: Request) -> str:
    """The body's content type, without its parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def form_type(request: Request, raw: bytes) -> str:
    """Which of the two types of forms a body has; empty for JSON."""
    kind = media_type(request)
    if kind == "application/x-www-form-urlencoded" and raw[:_SMALL_BYTES].lstrip().startswith(b"{"):
        return ""
    return kind if kind in _FORM_TYPES else ""


async def fields(request: Request) -> BodyFields:
    """The body's named values, from JSON or a form; raises `BadRequest`.

    What looks like an object is read as one, as `curl -d '{…}'` calls it a form. A form's empty
    fields were left empty: they are not given.
    """
    raw = await request.body()
    match form_type(request, raw):
        case "multipart/form-data":
            split = functools.partial(_multipart, content_type=request.headers["content-type"])
            return await parsed(split, raw)
        case "application/x-www-form-urlencoded":
            decode = functools.partial(urlencoded.decode, max_fields=MAX_FIELDS)
            return BodyFields(await parsed(decode, raw), is_form=True)
        case _:
            return BodyFields(await parsed(parse_object, raw))


class _PartReader(PartHandler):
    """Reads the parts that are not empty; a browser sends an empty file where none was chosen."""

    def __init__(self) -> None:
        self.parts: list[FormPart] = []
        self._head: Head | None = None
        self._pieces: list[memoryview] = []

    def begin(self, head: Head) -> None:
        self._head, self._pieces = head, []

    def take(self, data: memoryview) -> None:
        self._pieces.append(data)

    def end(self) -> None:
        head, data = self._head, b"".join(self._pieces)
        if head is None or not data:
            return
        if head.filename is None:
            self.parts.append(FormPart(head.name, data))
        else:
            self.parts.append(
                FormPart(head.name, data, head.filename or "file", head.content_type or UNKNOWN)
            )


def _multipart(raw: bytes, content_type: str) -> BodyFields:
    reader = _PartReader()
    Splitter(content_type, reader).feed(raw)
    values = {part.name: text(part.data) for part in reader.parts if not part.filename}
    files = {part.name: part.data for part in reader.parts if part.filename}
    return BodyFields(values, is_form=True, files=files, parts=tuple(reader.parts))


def from_text(descriptors: tuple[Descriptor, ...], given: dict[str, Any]) -> dict[str, Any]:
    """A form's or a query's texts as the values that descriptors ask for; what does not fit stays text."""
    kinds = {descriptor.name: descriptor.type for descriptor in descriptors}
    return {name: _typed(kinds.get(name, "string"), value) for name, value in given.items()}


def _typed(kind: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if kind == "boolean":
        return _SWITCHES.get(text.lower(), value)
    if kind == "integer":
        return _whole(text, value)
    if kind == "number":
        try:
            return float(text)
        except ValueError:
            return value
    return value


def _whole(text: str, otherwise: Any) -> Any:
    digits = text.removeprefix("-").removeprefix("+")
    if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS:
        return int(text)
    return otherwise
