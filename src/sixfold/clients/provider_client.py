"""Calls to providers: retries where safe, error messages in one sentence.

Requests that may be repeated:

- a GET, a PUT that cancels and a DELETE after a lost connection and after 408, 429 and 5xx;

- a POST only if it was certainly not accepted: the connection was never established, or the response says so
(429, 503, and other statuses that the provider documents). fal, Replicate and OpenAI do not support
idempotency keys, so a POST whose connection was lost is not repeated: it may be running, and would be charged
twice.

`Retry-After` is honored; without it, the pauses double, with jitter. The sum of all pauses is limited, and
every attempt has its own timeout. A provider that cannot be reached is not tried for longer than a client
would wait.
"""

from __future__ import annotations

import asyncio
import io
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from sixfold import __version__, errors, import_string
from sixfold.core.catalog.engines import EngineError, UnusableInput
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.input_limits import json_decoding, json_limits
from sixfold.net import limited_responses
from sixfold.net.response_memory import ResponseMemory
from sixfold.providers import ProviderSpec

Kind = Literal["key", "credit", "policy", "input", "absent", "busy", "broken"]

_RETRYABLE = frozenset({408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})
_NEVER_ACCEPTED = frozenset({429, 503})
_MAX_TEXT_CHARS = 200
# Characters of a text that are searched for keys, whose time grows with the square of the length.
_MAX_SEARCHED_CHARS = 1_000
_MAX_FIELD_CHARS = 100
# Characters of an error or a log that are read.
_MAX_VALUE_CHARS = 100_000
# A shorter key could occur in other words.
_MIN_KEY_CHARS = 8
# Larger JSON would block the event loop.
_MAX_INLINE_BYTES = 256 * 1024
# The results of a transcription, whose rows are read on the event loop.
_LIMITS = json_limits.RESPONSE._replace(containers=100_000, members=400_000, values=500_000)
_SECRETS = re.compile(r"\b(?:Key|Bearer)\s+\S+|\b(?:sk|r8|key)[-_]\S+|https?://\S+|\b[\w.-]*[0-9a-f]{24,}\S*")


class ProviderLimits(msgspec.Struct, frozen=True):
    """Limits of time and bytes for a provider. `whole_seconds` limits a task with all its calls.

    A call that cannot connect ends within `unreachable_seconds`.
    """

    connect_seconds: float = 5.0
    unreachable_seconds: float = 15.0
    call_seconds: float = 60.0
    whole_seconds: float = 600.0
    attempts: int = 5
    pause_seconds: float = 0.5
    longest_pause_seconds: float = 8.0
    waiting_seconds: float = 60.0
    poll_seconds: float = 0.1
    longest_poll_seconds: float = 2.0
    # Timeout of a cancellation at the provider when a run ends early.
    grace_seconds: float = 10.0
    answer_bytes: int = 64 * 2**20
    file_bytes: int = 64 * 2**20


class ProviderJob(Protocol):
    """A request in a provider's queue; `state` is `queued`, `running` or final, `lines` is the log so far."""

    @property
    def state(self) -> str: ...
    @property
    def ended(self) -> bool: ...
    @property
    def lines(self) -> Sequence[str]: ...


J = TypeVar("J", bound=ProviderJob)


class ProviderQueue(Protocol[J]):
    """A provider that queues requests; `poll` returns the job with its current state."""

    async def poll(self, job: J, /) -> J: ...
    async def cancel(self, job: J, /) -> None: ...


class ProviderRefusal(msgspec.Struct, frozen=True):
    """The meaning of an error response; `field` is the provider's name of the invalid input."""

    kind: Kind
    field: str = ""
    message: str = ""


class ProviderEndpoint(msgspec.Struct, frozen=True):
    """A provider, and the response statuses after which calls may be repeated."""

    spec: ProviderSpec
    # Further response statuses after which a POST may be repeated.
    also_repeated: frozenset[int] = frozenset()

    def refusal(self, status: int, document: Any) -> ProviderRefusal:
        """Parse an error response with the function that the provider's row names."""
        return import_string.load(self.spec.refusal)(status, document)


class RequestBody(msgspec.Struct, frozen=True):
    """The body of a POST: a JSON document, or the fields and files of a form."""

    document: Any = None
    fields: Mapping[str, str | list[str]] = {}
    files: tuple[tuple[str, tuple[str, bytes, str]], ...] = ()

    def arguments(self) -> dict[str, Any]:
        if self.files:
            return {"data": dict(self.fields), "files": list(self.files)}
        return {} if self.document is None else {"json": self.document}


class ProviderResponse(msgspec.Struct, frozen=True):
    """A successful response: headers in lower case, and the JSON document or the bytes of the body."""

    status: int
    headers: Mapping[str, str]
    document: Any
    content: bytes = b""


class UpstreamError(EngineError):
    """Raised if a provider rejects a call or fails; `refusal` is the parsed error."""

    def __init__(self, text: str, refusal: ProviderRefusal) -> None:
        super().__init__(text)
        self.refusal = refusal


class PolicyRefusal(UnusableInput):
    """Raised if a provider's content policy rejects the inputs."""


class _ProviderRequest(msgspec.Struct, frozen=True):
    method: str
    path: str
    arguments: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    seconds: float | None = None
    once: bool = False
    # Whether the response is a file instead of JSON.
    file: bool = False


class _CallFailed(msgspec.Struct, frozen=True):
    """A failed attempt; `repeat` states whether to retry, after `after_seconds` if the provider sent it."""

    refusal: ProviderRefusal
    repeat: bool
    after_seconds: float | None = None
    # The connection could not be established.
    unreachable: bool = False


class ProviderClient:
    """Calls to one provider with one key. `names` maps the provider's fields to the catalog's input names.

    Large responses wait for their share of `memory`; raises `TooManyRequests`.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        provider: ProviderEndpoint,
        key: str,
        *,
        base_url: str = "",
        limits: ProviderLimits | None = None,
        memory: ResponseMemory,
    ) -> None:
        self.provider = provider
        self.base_url = (base_url or provider.spec.base_url).rstrip("/")
        self.limits = limits or ProviderLimits()
        self._client = client
        self._key = key
        self.names: Mapping[str, str] = {}
        self.memory = memory
        if not key and not base_url:
            text = (
                f"Key for {provider.spec.title} not found: an operator can set one, "
                f"`sixfold provider set {provider.spec.name}`."
            )
            raise UpstreamError(text, ProviderRefusal("key"))
        # HTTP headers cannot contain other characters.
        if not key.isascii() or not key.isprintable():
            raise self.failed(ProviderRefusal("key"))

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, *, once: bool = False
    ) -> ProviderResponse:
        """GET a path, or a URL that the provider returned; `once` disables retries."""
        return await self._send_with_retries(
            _ProviderRequest("GET", path, {"params": params} if params else {}, once=once)
        )

    async def post(
        self,
        path: str,
        body: RequestBody,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float | None = None,
    ) -> ProviderResponse:
        """POST a body; not repeated once the provider may have accepted it."""
        return await self._send_with_retries(
            _ProviderRequest("POST", path, body.arguments(), headers or {}, seconds)
        )

    async def post_for_file(
        self, path: str, body: RequestBody, *, seconds: float | None = None
    ) -> ProviderResponse:
        """POST a body; the `content` of the response is a file."""
        accept = {"Accept": "*/*"}
        return await self._send_with_retries(
            _ProviderRequest("POST", path, body.arguments(), accept, seconds, file=True)
        )

    async def put(self, path: str) -> ProviderResponse:
        """PUT without a body."""
        return await self._send_with_retries(_ProviderRequest("PUT", path))

    async def delete(self, path: str) -> ProviderResponse:
        return await self._send_with_retries(_ProviderRequest("DELETE", path))

    def failed(self, refusal: ProviderRefusal) -> EngineError:
        """Return the exception for a failure that a response states."""
        return explained(self.provider, refusal, self.names)

    async def _send_with_retries(self, request: _ProviderRequest) -> ProviderResponse:
        total_pause, started_at = 0.0, monotonic()
        for attempt in range(1, self.limits.attempts + 1):
            result = await self._attempt(request)
            if isinstance(result, ProviderResponse):
                return result
            pause = self._pause(attempt, result)
            is_last = attempt == self.limits.attempts or total_pause + pause > self.limits.waiting_seconds
            if result.unreachable:
                seconds = monotonic() - started_at + pause + self.limits.connect_seconds
                is_last = is_last or seconds > self.limits.unreachable_seconds
            if request.once or is_last or not result.repeat:
                raise self.failed(result.refusal)
            total_pause += pause
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, attempt: int, failed: _CallFailed) -> float:
        if failed.after_seconds is not None:
            return failed.after_seconds
        max_pause = min(self.limits.longest_pause_seconds, self.limits.pause_seconds * 2 ** (attempt - 1))
        return max_pause * random.uniform(0.5, 1)  # noqa: S311 - so that many callers do not return at once

    async def _attempt(self, request: _ProviderRequest) -> ProviderResponse | _CallFailed:
        repeatable = request.method != "POST"
        try:
            async with asyncio.timeout(request.seconds or self.limits.call_seconds):
                return await self._exchange(request)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
            refusal = ProviderRefusal("broken", message="could not be reached")
            return _CallFailed(refusal, repeat=True, unreachable=True)
        except (TimeoutError, httpx.TimeoutException):
            return _CallFailed(
                ProviderRefusal("broken", message="did not respond in time"), repeat=repeatable
            )
        except httpx.RequestError:
            return _CallFailed(ProviderRefusal("broken", message="closed the connection"), repeat=repeatable)

    async def _exchange(self, request: _ProviderRequest) -> ProviderResponse | _CallFailed:
        headers = {
            "Accept": "application/json",
            **limited_responses.IDENTITY,
            "User-Agent": f"Sixfold/{__version__}",
            "X-Sixfold-Hop": "1",
        }
        connect_seconds = self.limits.connect_seconds
        async with self._client.stream(
            request.method,
            self.url(request.path),
            headers={**headers, **self.provider.spec.key_headers(self._key), **request.headers},
            timeout=httpx.Timeout(None, connect=connect_seconds, pool=connect_seconds),
            follow_redirects=False,
            **request.arguments,
        ) as response:
            body = await self._read(response)
        if request.file and response.is_success and body:
            return ProviderResponse(response.status_code, response.headers, None, body)
        key = self._key.encode()
        if body and len(key) >= _MIN_KEY_CHARS and key in body:
            # A provider may repeat the key in an error message, which clients see.
            body = body.replace(key, b"")
        if body is None or len(body) <= _MAX_INLINE_BYTES:
            document = _document(body)
        else:
            document = await PARSER.run(_document, body)
        return self._classify(request.method, response, body, document)

    async def _read(self, response: httpx.Response) -> bytes | None:
        """Return the body, or None as soon as it exceeds the limit."""
        # Its value is not a second copy.
        body = io.BytesIO()
        async for chunk in limited_responses.chunks(response):
            body.write(chunk)
            if body.tell() > self.limits.answer_bytes:
                return None
            await self.memory.resize(body.tell())
        return body.getvalue()

    def url(self, path: str) -> str:
        """Return the URL of a path, or of the path of a URL, so the key is only sent to the provider."""
        if not path.startswith(("http://", "https://")):
            return f"{self.base_url}/{path.lstrip('/')}"
        parts, base = urlsplit(path), urlsplit(self.base_url)
        if (parts.scheme, parts.netloc) == (base.scheme, base.netloc):
            return path
        query = f"?{parts.query}" if parts.query else ""
        return f"{base.scheme}://{base.netloc}{parts.path}{query}"

    def _classify(
        self, method: str, response: httpx.Response, body: bytes | None, document: Any
    ) -> ProviderResponse | _CallFailed:
        status = response.status_code
        headers = {name.lower(): value for name, value in response.headers.items()}
        if 200 <= status < 300:
            if body is None:
                message = f"returned a response of more than {self.limits.answer_bytes:,} bytes"
                return _CallFailed(ProviderRefusal("broken", message=message), repeat=False)
            if body.strip() and document is None:
                # The body is truncated or not JSON. Only a GET is safe to repeat.
                message = "returned a response that cannot be parsed"
                return _CallFailed(ProviderRefusal("broken", message=message), repeat=method == "GET")
            return ProviderResponse(status, headers, document)
        refusal = self.provider.refusal(status, document)
        if method == "POST":
            repeat = status in _NEVER_ACCEPTED | self.provider.also_repeated
        else:
            repeat = status in _RETRYABLE
        is_final = refusal.kind in {"credit", "key", "policy"}
        return _CallFailed(refusal, repeat and not is_final, non_negative(headers.get("retry-after", "")))


def _document(body: bytes | None) -> Any:
    if not body:
        return None
    try:
        _LIMITS.check(body)
        return json_decoding.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, errors.InputTooLarge):
        return None


def non_negative(text: str) -> float | None:
    """Return the number in a header, or None; a date in `Retry-After` is ignored, as clocks differ."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a JSON list, or an empty list for any other value."""
    return [mapping(item) for item in value] if isinstance(value, list) else []


def count(value: Any) -> int:
    """Return a token count; 0 for any other value."""
    return value if isinstance(value, int) and value > 0 else 0


def explained(
    provider: ProviderEndpoint, refusal: ProviderRefusal, names: Mapping[str, str] | None = None
) -> EngineError:
    """Return the exception for a rejection; its message does not contain keys, URLs or internals."""
    title = provider.spec.title
    match refusal.kind:
        case "key":
            remedy = f"`sixfold provider set {provider.spec.name}`"
            text = f"The {title} key was refused: an operator can set another, {remedy}."
        case "credit":
            text = f"The operator's account at {title} has no credit left."
        case "policy":
            return PolicyRefusal(f"{title} refused these inputs because of its content policy: change them.")
        case "input":
            text = _input_sentence(title, refusal, names or {})
        case "absent":
            text = f"{title} does not have this model, or the key may not use it."
        case "busy":
            text = f"{title} is limiting this server's requests: try again later."
        case "broken":
            text = f"{title} {refusal.message or 'failed'}: try again later."
    return UpstreamError(text, refusal)


def _input_sentence(title: str, refusal: ProviderRefusal, names: Mapping[str, str]) -> str:
    field_name = names.get(refusal.field, refusal.field)[:_MAX_FIELD_CHARS]
    reason = presentable(refusal.message)
    inputs = f"the input {field_name}" if field_name else "these inputs"
    return f"{title} refused {inputs}: {reason}." if reason else f"{title} refused {inputs}."


def presentable(text: str) -> str:
    """Return a provider's text as one line without URLs, keys and long ids; empty if little is left."""
    # The last word of a part may be part of a key.
    words = text[:_MAX_SEARCHED_CHARS].split()[: -1 if len(text) > _MAX_SEARCHED_CHARS else None]
    line = _SECRETS.sub("", " ".join(words))
    line = " ".join(line.split()).strip(" .:;,-")
    return line if len(line) <= _MAX_TEXT_CHARS else line[:_MAX_TEXT_CHARS].rsplit(" ", 1)[0] + "…"


def text_of(value: Any) -> str:
    """Return the first characters of a string, or an empty string for any other value."""
    return value[:_MAX_VALUE_CHARS] if isinstance(value, str) else ""


def by_status(status: int, message: str = "", input_field: str = "") -> ProviderRefusal:
    """Return the meaning of a status, for a response whose body is not more specific."""
    if status in {401, 403}:
        return ProviderRefusal("key")
    if status == 402:
        return ProviderRefusal("credit")
    if status == 404:
        return ProviderRefusal("absent")
    if status == 429:
        return ProviderRefusal("busy")
    if status in {400, 413, 415, 422}:
        return ProviderRefusal("input", input_field, message)
    return ProviderRefusal("broken", message=f"failed with status {status}")


async def run_queued(
    queue: ProviderQueue[J], start: Awaitable[J], limits: ProviderLimits, report: Callable[[J], None]
) -> J:
    """Submit a job, poll it with growing pauses, and return it when it has ended.

    `report` is called with the job after each response. The job is canceled if this task is canceled or fails
    first.
    """
    job = await _submit_with_cancel(start, queue.cancel, limits.grace_seconds)
    pause = limits.poll_seconds
    try:
        report(job)
        while not job.ended:
            await asyncio.sleep(pause)
            pause = min(limits.longest_poll_seconds, pause * 1.25)
            job = await queue.poll(job)
            report(job)
        return job
    finally:
        if not job.ended:
            await cancel_quietly(queue.cancel(job), limits.grace_seconds)


async def _submit_with_cancel(
    start: Awaitable[J], undo: Callable[[J], Awaitable[object]], grace_seconds: float
) -> J:
    """Submit a job; if this task is canceled meanwhile, wait for the submission and cancel the job."""
    starting = asyncio.ensure_future(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        try:
            async with asyncio.timeout(grace_seconds):
                await undo(await starting)
        except (EngineError, TimeoutError):
            starting.cancel()
        raise


async def cancel_quietly(undo: Awaitable[object], grace_seconds: float) -> None:
    """Cancel at a provider while an error is being raised; failures are ignored."""
    try:
        async with asyncio.timeout(grace_seconds):
            await undo
    except (EngineError, TimeoutError):
        return
