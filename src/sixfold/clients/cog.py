"""Client of Cog's HTTP API, and conversion of its inputs and outputs to those of the catalog.

Sources: https://cog.run/http/ (routes, idempotent PUT, 409 if every slot is taken, states, health in the body
of `/health-check`, whose status is always 200) and https://cog.run/python/ (inputs and outputs in
`/openapi.json`).
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import httpx
import msgspec

from sixfold.clients import provider_client
from sixfold.core.input_limits import json_encoding
from sixfold.net import limited_responses
from sixfold.net.response_memory import ResponseMemory

PORT = 5000
_CALL_SECONDS = 10.0
# Files in a result are data: URIs.
_MAX_BYTES, _MAX_RESULT_BYTES = 8 * 2**20, 128 * 2**20
# A multiple of three, so that the pieces of a file in base64 can be joined.
_PIECE_BYTES = 192 * 1024
# The end of a longer log or error is kept.
_MAX_TEXT_CHARS = 256 * 1024
_MAX_STATE_CHARS = 100
_MIN_POLL_SECONDS = 0.02
_MAX_POLL_SECONDS = 0.5
_PREDICTION_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")

State = Literal["succeeded", "failed", "canceled"]


class CogUnreachable(Exception):
    """Raised if the server does not start or its response is not valid; the message is the reason."""


class CogBusy(Exception):
    """Raised if every slot of the server is in use."""


class CogRefused(Exception):
    """Raised if the server rejects the inputs; the message is its reason."""


class CogResult(msgspec.Struct, frozen=True):
    """The result of a prediction: its output with files as data: URIs, and its log."""

    state: State
    output: Any
    error: str
    log: str


class CogFile(msgspec.Struct, frozen=True):
    """A file that is sent as a data: URI."""

    path: Path
    content_type: str
    size: int

    @property
    def encoded_size(self) -> int:
        """The number of characters in base64."""
        return (self.size + 2) // 3 * 4


class CogClient:
    """A client of a Cog server on the operator's machine."""

    def __init__(self, client: httpx.AsyncClient, address: str) -> None:
        self._client = client
        self._address = address.rstrip("/")

    async def ready(self) -> None:
        """Wait until the model is loaded; raises `CogUnreachable` with the log if its setup failed.

        This polls until the server listens; the caller sets the time limit.
        """
        pause = _MIN_POLL_SECONDS
        while True:
            health = await self._health()
            match health.get("status"):
                case "READY" | "BUSY":
                    return
                case "SETUP_FAILED" | "DEFUNCT":
                    logs = (
                        provider_client.mapping(health.get("setup")).get("logs") or "the reason is not known"
                    )
                    raise CogUnreachable(f"its setup failed: {str(logs).strip()[-2000:]}")
                case _:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _MAX_POLL_SECONDS)

    async def _health(self) -> Mapping[str, Any]:
        try:
            return await self._get("health-check")
        except httpx.TransportError:
            # The container does not listen yet, or another process uses the port.
            return {}

    async def _get(self, path: str) -> Mapping[str, Any]:
        response = await limited_responses.request(
            self._client, "GET", f"{self._address}/{path}", max_bytes=_MAX_BYTES, seconds=_CALL_SECONDS
        )
        return await limited_responses.json_object(response.body)

    async def document(self) -> Mapping[str, Any]:
        """Return the server's OpenAPI document; raises `CogUnreachable`."""
        try:
            document = await self._get("openapi.json")
        except httpx.TransportError as error:
            raise CogUnreachable("it does not serve /openapi.json") from error
        if "Input" not in provider_client.mapping(
            provider_client.mapping(document.get("components")).get("schemas")
        ):
            raise CogUnreachable("its /openapi.json does not describe Input")
        return document

    async def predict(self, name: str, inputs: Mapping[str, Any], memory: ResponseMemory) -> CogResult:
        """Run a prediction to its end; the same name joins a run in progress.

        An input that is a `CogFile` is sent as a data: URI. Raises `CogBusy`, `CogRefused`, `CogUnreachable`,
        `TooManyRequests` if `memory` is in use, and httpx's errors if the connection fails.
        """
        parts = await asyncio.to_thread(_request_parts, inputs)
        length = sum(part.encoded_size if isinstance(part, CogFile) else len(part) for part in parts)
        response = await limited_responses.request(
            self._client,
            "PUT",
            f"{self._address}/predictions/{_checked_name(name)}",
            headers={"Content-Type": "application/json", "Content-Length": str(length)},
            content=_content(parts),
            timeout=None,
            max_bytes=_MAX_RESULT_BYTES,
            seconds=None,
            memory=memory,
        )
        if response.status == 409:
            raise CogBusy
        try:
            result = await limited_responses.json_object(response.body)
        except limited_responses.UnreadableResponse as error:
            raise CogUnreachable("it returned a response that is not a JSON object") from error
        if response.status == 422:
            raise CogRefused(_detail(result))
        state = result.get("status")
        if state not in ("succeeded", "failed", "canceled"):
            stated = provider_client.text_of(state)[:_MAX_STATE_CHARS]
            raise CogUnreachable(f"it returned {response.status} with the status {stated!r}")
        texts = (_end_of(result.get(name)) for name in ("error", "logs"))
        return CogResult(state, result.get("output"), *texts)

    async def cancel(self, name: str) -> None:
        """Cancel a run; an unknown run is ignored."""
        await limited_responses.request(
            self._client,
            "POST",
            f"{self._address}/predictions/{_checked_name(name)}/cancel",
            max_bytes=_MAX_BYTES,
            seconds=_CALL_SECONDS,
        )


def _request_parts(inputs: Mapping[str, Any]) -> list[bytes | CogFile]:
    """Return the JSON of a request in parts, between which files in base64 are inserted."""
    parts: list[bytes | CogFile] = [b'{"input":{']
    for number, (name, value) in enumerate(inputs.items()):
        prefix = b"," * bool(number) + msgspec.json.encode(name) + b":"
        if isinstance(value, CogFile):
            parts += [prefix + f'"data:{value.content_type};base64,'.encode(), value, b'"']
        else:
            parts.append(prefix + json_encoding.encode(value))
    return [*parts, b"}}"]


async def _content(parts: Iterable[bytes | CogFile]) -> AsyncGenerator[bytes, None]:
    for part in parts:
        if isinstance(part, bytes):
            yield part
            continue
        with await asyncio.to_thread(part.path.open, "rb") as file:
            while piece := await asyncio.to_thread(_encoded_piece, file):
                yield piece


def _encoded_piece(file: BinaryIO) -> bytes:
    return base64.b64encode(file.read(_PIECE_BYTES))


def _checked_name(name: str) -> str:
    if not _PREDICTION_ID.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid prediction name")
    return name


def _end_of(value: Any) -> str:
    """Return the last characters of a string, or an empty string for any other value."""
    return value[-_MAX_TEXT_CHARS:] if isinstance(value, str) else ""


def _detail(body: Mapping[str, Any]) -> str:
    """Return the first problem of a 422 response, with the name of the field."""
    detail = body.get("detail")
    first = provider_client.mapping(detail[0]) if isinstance(detail, list) and detail else {}
    location = first.get("loc")
    last = location[-1] if isinstance(location, list) and location else ""
    field = str(last) if isinstance(last, int) else provider_client.text_of(last)
    problem = provider_client.text_of(first.get("msg") or detail) or "is not valid"
    return " ".join(part for part in (field, problem) if part)[:_MAX_TEXT_CHARS]


_TYPES = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean"}
_MEDIA_WORDS = (
    ("video", re.compile(r"video|film|clip", re.I)),
    ("audio", re.compile(r"audio|sound|speech|voice|music|song|wav|mp3", re.I)),
    ("image", re.compile(r"image|picture|photo|mask|frame|portrait|img", re.I)),
)
# Limits on the description of a model, in which inputs may refer to the same part of a megabyte.
_MAX_INPUTS, _MAX_ALTERNATIVES = 500, 16
_MAX_ITEMS, _MAX_VALUE_CHARS, _MAX_DESCRIPTION_CHARS = 1_000, 20_000, 1_000
_MAX_CHOICES = 20_000
_MEMBERS = ("type", "format", "items", "description", "default", "minimum", "maximum", "maxLength", "enum")
_ORDER = "x-order"


def inputs(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the inputs of a Cog model as catalog rows, in the model's order; raises `CogUnreachable`.

    A file input has the type `file` if its name and description do not indicate a kind; lists contain strings
    or numbers.
    """
    schemas = provider_client.mapping(provider_client.mapping(document.get("components")).get("schemas"))
    input_schema = provider_client.mapping(schemas.get("Input"))
    properties = provider_client.mapping(input_schema.get("properties"))
    if len(properties) > _MAX_INPUTS:
        raise CogUnreachable(f"its /openapi.json describes more than {_MAX_INPUTS} inputs")
    required = _list(input_schema.get("required"))[:_MAX_INPUTS]
    rows = {str(name): _resolved(provider_client.mapping(row), schemas) for name, row in properties.items()}
    if sum(len(_list(row.get("enum"))) for row in rows.values()) > _MAX_CHOICES:
        raise CogUnreachable(f"its /openapi.json describes more than {_MAX_CHOICES:,} choices of inputs")
    ordered = sorted(rows.items(), key=lambda item: _order(item[1].get(_ORDER), len(rows)))
    return {name: _row(name, row, name in required) for name, row in ordered}


def _order(value: Any, default: int) -> float:
    return value if isinstance(value, int | float) else default


def _resolved(row: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return a property merged with its references (choices) and alternatives (optional inputs)."""
    merged = dict(_members(row))
    for name in ("allOf", "anyOf"):
        for alternative in _list(row.get(name))[:_MAX_ALTERNATIVES]:
            part = provider_client.mapping(alternative)
            if "$ref" in part:
                part = provider_client.mapping(
                    schemas.get(provider_client.text_of(part["$ref"]).rpartition("/")[2])
                )
            if part.get("type") != "null":
                merged = {**_members(part), **merged}
    return merged


def _members(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in (*_MEMBERS, _ORDER) if name in row}


def _row(name: str, row: Mapping[str, Any], required: bool) -> dict[str, Any]:
    description = provider_client.text_of(row.get("description"))[:_MAX_DESCRIPTION_CHARS]
    kind = _type(name, description, row)
    descriptor: dict[str, Any] = {"type": kind, "description": description}
    if required:
        descriptor["required"] = True
    default = row.get("default")
    if default is not None and kind not in ("image", "audio", "video", "file") and _is_short(default):
        descriptor["default"] = default
    for name_here, name_there in (("min", "minimum"), ("max", "maximum"), ("max_chars", "maxLength")):
        if isinstance(row.get(name_there), int | float):
            descriptor[name_here] = row[name_there]
    choices = _list(row.get("enum"))
    if choices and _is_short(choices):
        descriptor["choices"] = [str(choice) for choice in choices]
    return descriptor


def _is_short(value: Any) -> bool:
    """Return whether a value is a scalar or a list of scalars with a limited number of characters.

    The model uses its own default if the catalog does not contain it, and checks the choices itself.
    """
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return (
        len(items) <= _MAX_ITEMS
        and all(isinstance(item, str | int | float) for item in items)
        and sum(len(item) for item in items if isinstance(item, str)) <= _MAX_VALUE_CHARS
    )


def _list(value: Any) -> list[Any]:
    """Return a JSON list, or an empty list for any other value."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def _type(name: str, description: str, row: Mapping[str, Any]) -> str:
    if row.get("type") == "array":
        items = provider_client.mapping(row.get("items"))
        if items.get("type") in ("integer", "number"):
            return "numbers"
        return "texts"
    if row.get("format") == "uri":
        return _media(f"{name[:_MAX_DESCRIPTION_CHARS]} {description}")
    return _TYPES.get(provider_client.text_of(row.get("type")), "string")


def _media(text: str) -> str:
    return next((kind for kind, pattern in _MEDIA_WORDS if pattern.search(text)), "file")


def output_kind(document: Mapping[str, Any]) -> str:
    """Return the kind of the output: that of the file, `text` or `json`."""
    schemas = provider_client.mapping(provider_client.mapping(document.get("components")).get("schemas"))
    row = provider_client.mapping(schemas.get("Output"))
    items = provider_client.mapping(row.get("items"))
    if "uri" in (row.get("format"), items.get("format")):
        info = provider_client.mapping(document.get("info"))
        texts = (provider_client.text_of(value) for value in (row.get("description"), info.get("title")))
        return _media(" ".join(text[:_MAX_DESCRIPTION_CHARS] for text in texts))
    joined = row.get("x-cog-array-display") == "concatenate"
    return "text" if row.get("type") == "string" or joined else "json"


def concatenated(document: Mapping[str, Any]) -> bool:
    """Return whether the output is a list of strings to concatenate."""
    schemas = provider_client.mapping(provider_client.mapping(document.get("components")).get("schemas"))
    return provider_client.mapping(schemas.get("Output")).get("x-cog-array-display") == "concatenate"
