"""An HTTP client for a running server that uses only the standard library, for a fast start of commands."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import mimetypes
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated, Any, cast
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

import msgspec

from sixfold import settings
from sixfold.cli import server_lock
from sixfold.cli.terminal import CommandError, CountedProgress, Spinner
from sixfold.disk_space import SpaceLimitedFile

_TIMEOUT_SECONDS = 60
# A list of the server has at most 4 MiB, and a page 1 MiB; files are downloaded to disk.
_MAX_RESPONSE_BYTES = 64 * 2**20
_POLL_SECONDS = 0.25
# More parts than a list of this API has.
_MAX_LISTS = 20_000
# The same name as in web/connections/local_socket.py, which is slow to import.
SOCKET = "sixfold.sock"
KEY_FILE = "local.key"
TERMINAL = frozenset({"succeeded", "failed", "canceled", "expired"})
_SPACE = re.compile(r"[\x00-\x20\x7f]")
_UNFINISHED = ("queued", "starting", "running")
Document = dict[str, Any]


def write_key(path: Path, api_key: str) -> None:
    """Write the operator's key to a new file that only the owner can read."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{api_key}\n")
        file.flush()
        os.fsync(file.fileno())


def read_key(data_dir: Path) -> str | None:
    """Return the operator's key that the first start stored, or None."""
    try:
        return (data_dir / KEY_FILE).read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


class KeyRefused(CommandError):
    """Raised when the server responds with 401."""


class NotFoundError(CommandError):
    """Raised when the server responds with 404."""


class CliResponse(msgspec.Struct, frozen=True):
    """An HTTP response: its status, its headers by lower-case name, its body."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def document(self) -> Any:
        """The body parsed as JSON, or None if it is not JSON."""
        return _parse(self.data)


class _LocalConnection(http.client.HTTPConnection):
    """A connection to the local socket in a data folder."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect through the folder's descriptor, as its path may be too long for a socket address."""
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)


class ServerClient:
    """A client for one server with one key, or without it through the operator's local socket."""

    def __init__(self, origin: str, api_key: str | None, local_socket: Path | None = None) -> None:
        _split(origin)
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise CommandError("The API key must have only printable ASCII characters: check SIXFOLD_API_KEY")
        self.origin = origin.rstrip("/")
        self._api_key = api_key
        self._local_socket = local_socket
        self.timeout_seconds = _TIMEOUT_SECONDS

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> ServerClient:
        """Return a client for `--api-url` or the server of the data folder, with its key."""
        server_settings = settings.load(with_keys=False, data_dir=arguments.data_dir)
        api_key = settings.api_key()
        if arguments.api_url:
            host = _split(arguments.api_url).hostname
            # The local key is never sent to another machine.
            if api_key is None and host in settings.LOOPBACK_HOSTS:
                api_key = read_key(server_settings.data_dir)
            return cls(arguments.api_url, api_key)
        running = server_lock.running(server_settings.data_dir)
        origin = running.url if running is not None and running.url else server_settings.base_url
        api_key = api_key or read_key(server_settings.data_dir)
        path = server_settings.data_dir / SOCKET
        return cls(origin, api_key, path if api_key is None and path.is_socket() else None)

    @property
    def api_key(self) -> str | None:
        """The API key of the requests, if any."""
        return self._api_key

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._local_socket is not None:
            return _LocalConnection(self._local_socket, timeout)
        parts = urlsplit(self.origin)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=timeout)

    # -- requests --------------------------------------------------------------------------------

    def get(self, path: str) -> Document:
        """Send a GET request and return the JSON response."""
        return self._json("GET", path)

    def lists(self, path: str) -> Iterator[Document]:
        """Yield the responses with the parts of a list; raises `CommandError` for a list without an end."""
        cursor = ""
        for _ in range(_MAX_LISTS):
            query = f"{'&' if '?' in path else '?'}{urlencode({'cursor': cursor}, errors='replace')}"
            page = self.get(f"{path}{query}" if cursor else path)
            yield page
            previous, cursor = cursor, page.get("next_cursor")
            if not cursor:
                return
            if cursor == previous:
                break
        raise CommandError(f"The list of {self.origin} at {path} does not end: is it a Sixfold server?")

    def post(self, path: str, document: Mapping[str, Any] | None = None) -> Document:
        """Send a POST request with a JSON body and return the JSON response."""
        body = json.dumps(document or {}).encode()
        return self._json("POST", path, body, {"Content-Type": "application/json"})

    def patch(self, path: str, document: Mapping[str, Any]) -> Document:
        """Send a PATCH request with a JSON body and return the JSON response."""
        return self._json("PATCH", path, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def delete(self, path: str) -> None:
        response = self.ask("DELETE", path)
        if response.status != http.client.NO_CONTENT:
            raise CommandError(self.reason(response, path))

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> CliResponse:
        """Send a request and return the response of any status but 401, which raises `KeyRefused`."""
        response = self._open(method, path, body, headers or {})
        try:
            data = self._read(response, path)
        except (OSError, http.client.HTTPException) as error:
            raise CommandError(
                f"{self.origin} closed the connection during its response ({error})"
            ) from error
        finally:
            response.close()
        headers_by_name = {name.lower(): value for name, value in response.getheaders()}
        result = CliResponse(response.status, headers_by_name, data)
        if response.status == http.client.UNAUTHORIZED:
            raise KeyRefused(self.reason(result, path))
        return result

    def reason(self, response: CliResponse, path: str) -> str:
        """Return the reason for an error response, as one sentence."""
        return self._reason(response.status, path, response.document)

    def upload(self, path: Path) -> str:
        """Upload a file and return its URL on the server."""
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        try:
            total = path.stat().st_size
            with path.open("rb") as file, Spinner(path.name, total) as waiting:
                headers = {"Content-Type": kind, "Content-Length": str(total)}
                body = cast("IO[bytes]", CountedProgress(file, waiting))
                return str(self._json("POST", "/api/uploads", body, headers)["url"])
        except IsADirectoryError:
            raise CommandError(f"{path} must be a file, not a folder") from None

    def download(self, url: str, target: Path) -> int:
        """Download a URL of the server to a file, created when complete; return its size in bytes."""
        try:
            parts = urlsplit(urljoin(self.origin + "/", url))
        except ValueError:
            raise CommandError(f"The server returned the invalid URL {url[:200]!r}") from None
        response = self._open("GET", f"{parts.path}?{parts.query}" if parts.query else parts.path, None, {})
        if response.status != http.client.OK:
            raise CommandError(f"The server returned {response.status} for {url}")
        temporary = target.with_name(f".{target.name}.part")
        try:
            total = response.length or 0
            with temporary.open("wb") as out, Spinner(target.name, total) as waiting:
                limited = SpaceLimitedFile(out, temporary.parent)
                shutil.copyfileobj(CountedProgress(response, waiting), limited)
            if temporary.stat().st_size < total:
                raise CommandError(f"{self.origin} closed the connection during the download of {url}")
            temporary.replace(target)
        except http.client.HTTPException as error:
            raise CommandError(
                f"{self.origin} closed the connection during the download of {url} ({error})"
            ) from error
        except OSError as error:
            raise CommandError(f"{url} could not be downloaded ({error.strerror or error})") from error
        finally:
            temporary.unlink(missing_ok=True)
            response.close()
        return target.stat().st_size

    def document(self, response: CliResponse, path: str) -> Document:
        """Return the JSON object of a response; raises `CommandError` for an error or another response."""
        if response.status >= 400 or not isinstance(response.document, dict):
            raise CommandError(self.reason(response, path))
        return response.document

    def _json(
        self,
        method: str,
        path: str,
        body: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Document:
        response = self._open(method, path, body, headers or {})
        try:
            document = _parse(self._read(response, path))
        except (OSError, http.client.HTTPException):
            document = None
        finally:
            response.close()
        if response.status >= 400:
            error = NotFoundError if response.status == http.client.NOT_FOUND else CommandError
            raise error(self._reason(response.status, path, document))
        if not isinstance(document, dict):
            raise CommandError(f"{self.origin} did not return JSON for {path}: is it a Sixfold server?")
        return document

    def _read(self, response: http.client.HTTPResponse, path: str) -> bytes:
        """Return the body of a response; raises `CommandError` if it is too large to be one of this API."""
        data = response.read(_MAX_RESPONSE_BYTES + 1)
        if len(data) > _MAX_RESPONSE_BYTES:
            raise CommandError(
                f"{self.origin} returned more than {_MAX_RESPONSE_BYTES // 2**20} MiB for {path}: is it a "
                "Sixfold server?"
            )
        return data

    def _reason(self, status: int, path: str, document: Any) -> str:
        if status == http.client.UNAUTHORIZED:
            if self._api_key is None:
                return f"{self.origin} requires a key: set SIXFOLD_API_KEY or --data-dir"
            return f"{self.origin} does not accept this key: set SIXFOLD_API_KEY to one of its keys"
        message = document.get("error") if isinstance(document, dict) else None
        if isinstance(message, str):
            for request, command in _COMMANDS.items():
                message = re.sub(request, command, message)
            return message
        return f"{self.origin} returned {status} for {path}: is it a Sixfold server with this API?"

    def _open(
        self, method: str, path: str, body: bytes | IO[bytes] | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        parts = urlsplit(self.origin)
        connection = self.connection(self.timeout_seconds)
        bearer = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        try:
            connection.request(method, parts.path + path, body, {**bearer, **headers, "Connection": "close"})
            return connection.getresponse()
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise CommandError(
                    f"{self.origin} did not respond within {self.timeout_seconds} s"
                ) from error
            if isinstance(error, ConnectionRefusedError):
                raise CommandError(
                    f"No server responds at {self.origin}: start one with `sixfold serve`, "
                    "or specify another server with --api-url or with --data-dir, its data folder"
                ) from error
            raise CommandError(f"{self.origin} cannot be reached ({error})") from error

    # -- predictions -----------------------------------------------------------------------------

    def prediction(self, prediction_id: str) -> Document:
        return self.get(f"/api/containers/predictions/{prediction_id}")

    def follow(self, prediction: Document, watch: Callable[[Document], None]) -> Document:
        """Wait for the end of a prediction and return it; `watch` is called with every change."""
        current = ResponseObject(prediction)
        watch(current)
        while current.get("status") not in TERMINAL:
            for event in self.events(str(current["id"])):
                current |= {name: event[name] for name in _EVENT_FIELDS if event.get(name) is not None}
                watch(current)
                if current.get("status") in TERMINAL:
                    break
            # The event stream may have ended early.
            current |= self.prediction(str(current["id"]))
            watch(current)
            if (status := current["status"]) not in (*TERMINAL, *_UNFINISHED):
                raise CommandError(
                    f"The prediction has the unknown status {str(status)[:40]!r}: is it a Sixfold server?"
                )
            if status not in TERMINAL:
                time.sleep(_POLL_SECONDS)
        return current

    def events(self, prediction_id: str) -> Iterator[Document]:
        """Yield the server-sent events of a prediction until the stream ends or breaks."""
        path = f"/api/containers/predictions/{prediction_id}/events"
        response = self._open("GET", path, None, {"Accept": "text/event-stream"})
        try:
            if response.status != http.client.OK:
                return
            for data in event_data(response, _MAX_RESPONSE_BYTES):
                yield from _documents(data)
        except (OSError, http.client.HTTPException, EventTooLarge):
            return
        finally:
            response.close()


def _split(origin: str) -> SplitResult:
    """Return the parts of a URL; raises `CommandError` if requests cannot be sent to it."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(origin)
        is_valid = parts.scheme in {"http", "https"} and parts.hostname and not _SPACE.search(origin)
        # An invalid port raises a ValueError.
        if is_valid and parts.port != 0:
            return parts
    raise CommandError(f"{origin!r} is not a URL such as http://127.0.0.1:8600")


# Advice on requests in errors of the server, and the same advice for users of commands.
_COMMANDS = {
    "`GET /api/containers/templates` lists": "`sixfold run --list` lists",
    "`POST /api/uploads` stores a file and returns its URL": "NAME=@FILE sends a file",
    "upload it first with `POST /api/uploads`": "NAME=@FILE sends a file",
    "`POST /api/graph/spaces/(.*)/duplicate`": r"`sixfold workflow copy \1`",
    "send overwrite: true to replace it": "use --overwrite to replace it",
    r"^(Workflow .* not found)$": r"\1: `sixfold workflow list` lists the workflows",
}
_EVENT_FIELDS = ("status", "progress", "queue_position")


_Number = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
_Object, _Objects, _Texts = dict[str, Any], list[dict[str, Any]], list[str]
# The types of the fields that commands convert, iterate or index; the responses that they read agree on them.
_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(("added", "backlinks", "batches", "documents", "dropped", "errors"), _Objects),
    **dict.fromkeys(("inputs", "lines", "links", "orders", "pages", "predictions", "results"), _Objects),
    **dict.fromkeys(("ignored_inputs", "sentences", "services", "spaces", "superseded"), _Objects),
    **dict.fromkeys(("apiInputs", "receipt"), _Objects | None),
    **dict.fromkeys(("deleted", "left_out", "restored", "tags"), _Texts),
    **dict.fromkeys(("charge", "estimate", "metrics", "outputs"), _Object | None),
    **dict.fromkeys(("schema", "verification"), _Object),
    **dict.fromkeys(("eta_seconds", "score"), _Number),
    **dict.fromkeys(("ms", "predict_ms", "progress", "queue_ms", "vram_gb"), _Number | None),
    **dict.fromkeys(("batch", "context", "cost_usd", "created_at", "folder", "from", "id", "kind"), str),
    **dict.fromkeys(("model", "name", "origin", "service", "slug", "source", "state", "status"), str),
    **dict.fromkeys(("title", "to", "type", "updated_at"), str),
    **dict.fromkeys(("class_type", "next_cursor", "snippet"), str | None),
    "ignored": _Texts | None,
    "sources": list[_Object | int],
    "version": int | str,
}


class ResponseObject(dict[str, Any]):
    """A JSON object from a server.

    Reading a field raises `CommandError` if it is missing or has another type than in Sixfold's API.
    """

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise CommandError(f"The response of the server has no {name!r}: is it a Sixfold server?")
        value = super().__getitem__(name)
        if (kind := _FIELDS.get(name)) is not None:
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                raise _invalid(name, str(error)) from None
        return value

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - `get` would call itself


def local_time(document: Document, name: str) -> datetime:
    """Return a time of a response in the time zone of this machine; raises `CommandError`."""
    try:
        return datetime.fromisoformat(document[name]).astimezone()
    except (ValueError, OverflowError) as error:
        raise _invalid(name, str(error)) from None


def _invalid(name: str, reason: str) -> CommandError:
    return CommandError(
        f"The field {name!r} of the server's response is invalid ({reason}): is it a Sixfold server of this "
        "version?"
    )


def _parse(text: str | bytes) -> Any:
    """Return a JSON document, or None if the text is not JSON or nested too deeply."""
    try:
        return json.loads(text, object_hook=ResponseObject)
    except (ValueError, RecursionError):
        return None


class EventTooLarge(Exception):
    """A server-sent event has more bytes than its reader accepts."""


def event_data(response: http.client.HTTPResponse, max_bytes: int) -> Iterator[str]:
    """Yield the data of each server-sent event; raises `EventTooLarge`.

    Comments and other lines between two events count as part of the second.
    """
    data: list[str] = []
    rest = max_bytes
    while raw := response.readline(rest):
        rest -= len(raw)
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data.clear()
            rest = max_bytes
    if rest == 0:
        raise EventTooLarge


def _documents(text: str) -> Iterator[Document]:
    document = _parse(text)
    if isinstance(document, dict):
        yield document
