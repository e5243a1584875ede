"""JSON responses, the error format that most APIs share, the schema of model inputs, and compressed pages."""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast, get_args
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.predictions.models import Prediction
from sixfold.errors import InvalidInput, SixfoldError, Unauthenticated

Url = Annotated[str, msgspec.Meta(extra_json_schema={"format": "uri"})]
_encode = msgspec.json.Encoder().encode
# The headers of responses that neither the client nor a proxy may store.
NO_STORE = {"Cache-Control": "no-store"}
# The maximum length of `X-Sixfold-Ignored` and `X-Sixfold-Ignored-Inputs` in characters.
_MAX_WORDS_HEADER = 1024


def encode(content: Any) -> bytes:
    return _encode(content)


def raw(content: Any) -> msgspec.Raw:
    """Encode a part of a document as JSON."""
    return msgspec.Raw(_encode(content))


def json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(content), status, headers, "application/json")


def unstored_json(content: Any, status: int = 200) -> Response:
    """Return a document that neither the client nor a proxy may store."""
    return json(content, status, NO_STORE)


async def encode_each(rows: Iterable[Any]) -> list[msgspec.Raw]:
    """Encode rows one by one, so that a long list does not block the event loop."""
    encoded: list[msgspec.Raw] = []
    for row in rows:
        encoded.append(msgspec.Raw(_encode(row)))
        await asyncio.sleep(0)
    return encoded


def result_headers(prediction: Prediction) -> dict[str, str]:
    """Return the headers with the engine and quality of a result, and what it ignored."""
    engine = engine_name(prediction.engine)
    headers = {"X-Sixfold-Engine": engine, "X-Sixfold-Quality": prediction.quality}
    if prediction.words.ignored:
        headers["X-Sixfold-Ignored"] = _word_list(prediction.words.ignored)
    return headers | ignored_inputs_header(prediction.ignored_inputs)


def ignored_inputs_header(ignored_inputs: Mapping[str, str]) -> dict[str, str]:
    """Return the header with the names of inputs that a model does not have, or no header."""
    return {"X-Sixfold-Ignored-Inputs": _word_list([*ignored_inputs])} if ignored_inputs else {}


def _word_list(words: Sequence[str]) -> str:
    """Return words percent-encoded and separated by commas, as many as fit into the limit."""
    encoded = [quote(word, safe="'&", errors="replace") for word in words]
    ends = itertools.accumulate(len(word) + 2 for word in encoded)
    return ", ".join(word for word, end in zip(encoded, ends, strict=True) if end <= _MAX_WORDS_HEADER)


def error_headers(error: SixfoldError) -> dict[str, str]:
    """Return the headers of an error in every format, such as `Retry-After` and `WWW-Authenticate`."""
    if error.retry_after:
        return {"Retry-After": str(error.retry_after)}
    # The official clients of OpenAI and Anthropic retry any other 503.
    if error.permanent:
        return {"x-should-retry": "false"}
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": "Bearer"}
    return {}


class InputProblemSchema(TypedDict):
    """The problem of one input."""

    input: str
    message: str


def ignored_inputs_field(model: str, ignored_inputs: Mapping[str, str]) -> IgnoredInputsSchema:
    """Return the field with the inputs that a model does not have, or no field."""
    if not ignored_inputs:
        return {}
    problems: list[InputProblemSchema] = []
    for name, near in ignored_inputs.items():
        message = f"{model} does not have the input {name}{near and f': did you mean {near}?'}"
        problems.append({"input": name, "message": message})
    return {"ignored_inputs": problems}


class IgnoredInputsSchema(TypedDict):
    """The inputs of a request that the model does not have and that were ignored."""

    ignored_inputs: NotRequired[
        Annotated[
            list[InputProblemSchema],
            msgspec.Meta(description="Inputs that the model does not have; at most 20"),
        ]
    ]


class ErrorSchema(TypedDict):
    """An error with its code; `errors` has all invalid inputs."""

    error: str
    code: str
    status: int
    request_id: str
    errors: NotRequired[list[InputProblemSchema]]


def error_response(error: SixfoldError, request_id: str) -> Response:
    """Return an error as `{"error","code","status","request_id"}`, with `errors` for invalid inputs."""
    body: ErrorSchema = {
        "error": error.message,
        "code": error.code,
        "status": error.status,
        "request_id": request_id,
    }
    if isinstance(error, InvalidInput):
        body["errors"] = problems(error)
    return json(body, error.status, error_headers(error))


def problems(error: InvalidInput) -> list[InputProblemSchema]:
    return [{"input": problem.input, "message": problem.message} for problem in error.problems]


class LongResponse(Response):
    """A response that streams for an unknown time and ends when its credential is revoked.

    `revocation` is then sent, so that clients do not take the stream for complete.
    """

    revocation: bytes = b""


WireType = Literal["string", "integer", "number", "boolean", "image", "audio", "video", "file"]
_WIRE_TYPES = frozenset(get_args(WireType))


class InputSchema(TypedDict):
    """An input of a model."""

    name: str
    type: WireType
    description: str
    default: Any
    required: bool
    min: float | None
    max: float | None
    choices: list[str]
    order: int


def input_schema(descriptor: Descriptor) -> InputSchema:
    """Serialize an input; a type that the API does not define is written as `string`."""
    return {
        "name": descriptor.name,
        "type": cast("WireType", descriptor.type) if descriptor.type in _WIRE_TYPES else "string",
        "description": descriptor.description,
        "default": descriptor.default,
        "required": descriptor.required,
        "min": descriptor.min,
        "max": descriptor.max,
        "choices": list(descriptor.choices),
        "order": descriptor.order,
    }


# Documents up to this size in bytes are sent uncompressed.
_SMALL = 1024
# Pages above this size in bytes are compressed in a thread, to not block the event loop.
_LARGE = 256 * 1024
# Reduces pages to a fourth of their size in a fifth of the time of the default level.
_PAGE_LEVEL = 1
# The values of `Sec-Fetch-Site` for requests that no other site caused.
_OWN_SITES = frozenset({b"same-origin", b"none"})


class StaticJson:
    """A JSON document that never changes while the server runs, so that it is encoded and compressed once."""

    def __init__(self, content: Any) -> None:
        self._data = _encode(content)
        self._tag = hashlib.sha256(self._data).hexdigest()[:32]

    @functools.cached_property
    def _compressed(self) -> bytes:
        return gzip.compress(self._data, mtime=0) if len(self._data) > _SMALL else b""

    def response(self, request: Request) -> Response:
        """Return the document, compressed if the client accepts gzip, or 304 if its tag matches."""
        compressed = accepts_gzip(request.headers.get("accept-encoding", "")) and bool(self._compressed)
        tag = f'"{self._tag}-gzip"' if compressed else f'"{self._tag}"'
        headers = {"ETag": tag, "Cache-Control": "public, no-cache", "Vary": "Accept-Encoding"}
        if self._is_known(request.headers.get("if-none-match")):
            return Response(None, 304, headers)
        if compressed:
            headers["Content-Encoding"] = "gzip"
        return Response(self._compressed if compressed else self._data, 200, headers, "application/json")

    def _is_known(self, header: str | None) -> bool:
        if header is None:
            return False
        tags = {part.strip().removeprefix("W/") for part in header.split(",")}
        return bool(tags & {"*", f'"{self._tag}"', f'"{self._tag}-gzip"'})


async def compress_page(headers: Mapping[bytes, bytes], response: Response) -> None:
    """Compress a page if the client that sent `headers` accepts it.

    The length of a compressed page can reveal its secrets to a site that causes many requests with its own
    text (BREACH). A request with a cookie is therefore answered with a compressed page only if the browser
    states that this site or the user caused it.
    """
    if response.media_type != "text/html" or response.status_code == 206:
        return
    response.headers["Vary"] = "Accept-Encoding, Cookie, Sec-Fetch-Site"
    body = bytes(response.body)
    is_own = b"cookie" not in headers or headers.get(b"sec-fetch-site") in _OWN_SITES
    accepted = headers.get(b"accept-encoding", b"").decode("latin-1")
    if len(body) < _SMALL or not is_own or not accepts_gzip(accepted):
        return
    compress = functools.partial(gzip.compress, body, _PAGE_LEVEL, mtime=0)
    response.body = await asyncio.to_thread(compress) if len(body) > _LARGE else compress()
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))


def accepts_gzip(header: str) -> bool:
    """Return whether an `Accept-Encoding` header accepts gzip."""
    for part in header.lower().split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
