"""Requests and responses without I/O, shared by both clients."""

from __future__ import annotations

import json
import mimetypes
import random
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urljoin, urlsplit

import httpx
import msgspec

from sixfold.client.errors import ClientError, retry_after

DEFAULT_URL = "http://127.0.0.1:8600"
ENDED = frozenset({"succeeded", "failed", "canceled", "expired"})
# Timeout of a response in seconds, in addition to the time that the server may wait.
TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 600.0
# A list of the server has at most 4 MiB, and files are downloaded.
MAX_RESPONSE_BYTES = 64 * 2**20
# A small response could be decompressed to any size.
HEADERS = {"Accept-Encoding": "identity"}
_RETRIED = frozenset({409, 429, 502, 503, 504})
_LONGEST_PAUSE = 30.0

FileInput = Path | bytes | IO[bytes]


class ApiCall(msgspec.Struct, frozen=True):
    """One request to the server. The server may wait `seconds` before it responds."""

    method: str
    path: str
    query: Mapping[str, Any] = {}
    document: Mapping[str, Any] | None = None
    file: tuple[str, IO[bytes] | bytes, str] | None = None
    fields: Mapping[str, str] = {}
    idempotency_key: str | None = None
    seconds: float = 0.0

    def options(self) -> dict[str, Any]:
        """Return the arguments of httpx's `request`."""
        result: dict[str, Any] = {
            "params": {name: _text(value) for name, value in self.query.items() if value is not None},
            "timeout": httpx.Timeout(TIMEOUT_SECONDS, read=TIMEOUT_SECONDS + self.seconds),
        }
        if self.document is not None:
            result["json"] = {name: value for name, value in self.document.items() if value is not None}
        if self.file is not None:
            result["files"], result["data"] = {"file": self.file}, dict(self.fields)
        if self.idempotency_key is not None:
            result["headers"] = {"Idempotency-Key": self.idempotency_key}
        return result

    def rewind(self) -> bool:
        """Rewind the file in the body for a retry; return False if that is not possible."""
        if self.file is None or isinstance(self.file[1], bytes):
            return True
        if not self.file[1].seekable():
            return False
        self.file[1].seek(0)
        return True


def path(template: str, **parts: str) -> str:
    """Return a path with its parameters escaped, except for slashes."""
    for name, value in parts.items():
        if not value:
            raise ClientError(f"{name} is empty: pass the name or the id of an object")
        if {".", ".."} & set(value.split("/")):
            raise ClientError(f"{name} {value!r} must not have a segment . or ..")
    return template.format(**{name: quote(value, safe="/:@") for name, value in parts.items()})


def new_idempotency_key() -> str:
    """Return a random `Idempotency-Key`; repeated requests with it return the first response."""
    return uuid.uuid4().hex


def pause(response: httpx.Response | None, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt of a failed request, or None to stop."""
    if response is not None:
        if response.status_code not in _RETRIED or response.headers.get("x-should-retry") == "false":
            return None
        if response.status_code == 409 and "retry-after" not in response.headers:
            return None
        server_pause = retry_after(response)
        if server_pause is not None:
            return server_pause if server_pause <= _LONGEST_PAUSE else None
    return min(0.5 * 2**attempt, 8.0) * random.uniform(0.75, 1.0)  # noqa: S311 - spreads retries, guards nothing


def base_url(url: str) -> str:
    """Return the URL of a server without a trailing slash; raises `ClientError`."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ClientError(f"base_url {url!r} is not a URL such as {DEFAULT_URL}")
    return url.rstrip("/")


def is_own(url: str, server: str) -> bool:
    """Return whether a URL belongs to the server, so that the key may be sent to it."""
    one, other = urlsplit(urljoin(f"{server}/", url)), urlsplit(server)
    return (one.scheme, one.netloc) == (other.scheme, other.netloc)


def file_part(source: FileInput, name: str | None = None) -> tuple[str, IO[bytes] | bytes, str]:
    """Return the name, content and media type of a file to upload; the caller closes opened content."""
    file_name = name or Path(str(getattr(source, "name", ""))).name
    kind = mimetypes.guess_type(file_name)[0] or "application/octet-stream"
    return file_name or "file", source.open("rb") if isinstance(source, Path) else source, kind


def is_file(value: object) -> bool:
    """Return whether an input is a file to upload rather than JSON."""
    return isinstance(value, Path | bytes) or hasattr(value, "read")


def output_url(prediction: Mapping[str, Any]) -> str:
    """Return the URL of a prediction's output, or of the first one of several; raises `ClientError`."""
    output = prediction["output"]
    first = output[0] if isinstance(output, list) and output else output
    url = first.get("url") if isinstance(first, dict) else None
    if isinstance(url, str):
        return url
    raise ClientError(f"The output of {prediction['id']} is not a file: read prediction['output']")


class ResponseBody:
    """The body of a response as it arrives; raises `ClientError` if it is compressed or too large."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._data = bytearray()
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in {"", "identity"}:
            raise ClientError(f"{response.url} returned a compressed response: is it a Sixfold server?")

    def add(self, chunk: bytes) -> None:
        self._data += chunk
        _check_size(len(self._data), str(self._response.url))

    def response(self) -> httpx.Response:
        """Return the complete response."""
        incomplete = self._response
        return httpx.Response(
            incomplete.status_code,
            headers=incomplete.headers,
            content=bytes(self._data),
            request=incomplete.request,
        )


def document(response: httpx.Response) -> Any:
    """Return the parsed JSON of a response, or None if it is empty; raises `ClientError`."""
    return _parsed(response.content, str(response.url)) if response.content else None


class EventParser:
    """Parses a stream of server-sent events."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._name, self._lines = "message", list[str]()
        self._line = bytearray()
        # The bytes since the last event.
        self._size = 0
        self.last_id = ""

    def feed(self, chunk: bytes) -> Iterator[tuple[str, Any]]:
        """Add a part of the stream; yield the events that it completes, each as its name and JSON.

        Raises `ClientError` if an event is too large or not JSON.
        """
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._line += end
            self._size += len(end) + 1
            line, self._line = self._line.decode("utf-8", "replace").removesuffix("\r"), bytearray()
            yield from self._add(line)
        self._line += rest
        self._size += len(rest)
        _check_size(self._size, self._url)

    def _add(self, line: str) -> Iterator[tuple[str, Any]]:
        if not line:
            if self._lines:
                text = "\n".join(self._lines)
                yield self._name, _parsed(text, self._url) if text[:1] in '{["' else text
            self._name, self._lines, self._size = "message", [], 0
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._lines.append(value)
        elif name == "id":
            self.last_id = value


def _check_size(size: int, url: str) -> None:
    if size > MAX_RESPONSE_BYTES:
        most = MAX_RESPONSE_BYTES // 2**20
        raise ClientError(f"{url} returned more than {most} MiB: is it a Sixfold server?")


def _parsed(text: str | bytes, url: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ClientError(f"{url} did not return JSON: is it a Sixfold server?") from error


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value
