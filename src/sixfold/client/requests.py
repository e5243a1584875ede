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


class EventParser:
    """Parses the lines of a stream of server-sent events."""

    def __init__(self) -> None:
        self._name, self._lines = "message", list[str]()
        self.last_id = ""

    def feed(self, line: str) -> Iterator[tuple[str, Any]]:
        """Add a line; yield the event that it completes, if any, as its name and JSON."""
        if not line:
            if self._lines:
                text = "\n".join(self._lines)
                yield self._name, json.loads(text) if text[:1] in '{["' else text
            self._name, self._lines = "message", []
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._lines.append(value)
        elif name == "id":
            self.last_id = value


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value
