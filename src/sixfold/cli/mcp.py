"""An MCP server on standard input and output that forwards messages to a server's POST /mcp.

Each message is one line; standard output contains only messages. Requests run concurrently. While a server
that has responded before restarts, requests that it cannot have received are retried; the response to a
request that it may have started is an error.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import select
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any
from urllib.parse import urlsplit

from sixfold.cli.client import EventTooLarge, ServerClient, event_data
from sixfold.cli.terminal import CommandError

_MAX_CONCURRENT = 16
# The timeout is longer than a tool may wait for a run.
_TIMEOUT_SECONDS = 660
# Seconds to wait for a server that restarts, and for a server that has never responded.
_RETRY_SECONDS, _FIRST_SECONDS = 30.0, 2.0
_CONNECT_SECONDS = 2.0
_KEEP_ALIVE_SECONDS = 4.0
# A message of the agent or of the server.
_MAX_MESSAGE_BYTES = 64 * 2**20
_UNREACHABLE = -32000
_NAME_PARAMS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_VERSION_META = "io.modelcontextprotocol/protocolVersion"
Document = dict[str, Any]


def proxy(arguments: argparse.Namespace) -> int:
    """Run `mcp`: forward messages until standard input ends."""
    client = ServerClient.of(arguments)
    sys.stderr.write(f"sixfold mcp: forwarding messages to {client.origin}/mcp\n")
    StdioProxy(client, sys.stdin.buffer, sys.stdout.buffer).serve()
    return 0


class _ServerUnavailable(Exception):
    """Raised if the server does not respond; `sent` states whether it may have read the request."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class StdioProxy:
    """A proxy between a pair of streams and a server."""

    def __init__(self, client: ServerClient, source: IO[bytes], target: IO[bytes]) -> None:
        self._client = client
        self._source = source
        self._target = target
        self._writing = threading.Lock()
        self._version = ""
        self._canceled: set[str] = set()
        self._local = threading.local()
        self._has_connected = False

    def serve(self) -> None:
        """Forward lines until the source ends, then wait for pending requests."""
        with ThreadPoolExecutor(_MAX_CONCURRENT, "mcp") as pool:
            for line in iter(lambda: self._source.readline(_MAX_MESSAGE_BYTES), b""):
                if not line.strip():
                    continue
                message = self._read(line)
                if message is None:
                    continue
                if message.get("method") == "initialize":
                    # Later requests send the protocol version that this one negotiates.
                    self._forward(message)
                else:
                    pool.submit(self._forward, message)

    def _read(self, line: bytes) -> Any:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._fail(None, "This line is not JSON", code=-32700)
            return None
        if isinstance(message, dict):
            if message.get("method") == "notifications/cancelled":
                params = message.get("params")
                self._canceled.add(json.dumps(params.get("requestId") if isinstance(params, dict) else None))
            return message
        if isinstance(message, list):
            return {"batch": message}
        self._fail(None, "A message must be a JSON object", code=-32600)
        return None

    # -- to the server -------------------------------------------------------------------------------

    def _forward(self, message: Document) -> None:
        expects_response = "id" in message and "method" in message
        try:
            for response in self._responses(message):
                self._store_version(message, response)
                if not expects_response:
                    self._write(response)
                elif json.dumps(message["id"]) not in self._canceled:
                    self._write(_with_id(message["id"], response))
        except (_ServerUnavailable, CommandError) as error:
            if expects_response:
                self._fail(message["id"], str(error))
            else:
                sys.stderr.write(f"sixfold mcp: {error}\n")

    def _store_version(self, message: Document, response: Any) -> None:
        """Store the protocol version negotiated in a handshake."""
        if message.get("method") == "initialize" and isinstance(response, dict):
            result = response.get("result")
            if isinstance(result, dict):
                self._version = str(result.get("protocolVersion", ""))

    def _responses(self, message: Document) -> Iterator[Any]:
        body = json.dumps(message.get("batch", message), ensure_ascii=False).encode("utf-8", "surrogatepass")
        headers = self._headers(message)
        began = time.monotonic()
        pause = 0.1
        while True:
            try:
                yield from self._exchange(body, headers)
            except _ServerUnavailable as unavailable:
                limit = _RETRY_SECONDS if self._has_connected else _FIRST_SECONDS
                if unavailable.sent or time.monotonic() + pause > began + limit:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 2.0)
            else:
                return

    def _headers(self, message: Document) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self._client.api_key:
            headers["Authorization"] = f"Bearer {self._client.api_key}"
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        version = meta.get(_VERSION_META) if isinstance(meta, dict) else None
        if isinstance(version, str):
            headers |= {"Mcp-Method": str(message.get("method"))} | _name_of(message)
        elif message.get("method") != "initialize":
            version = self._version
        if version:
            headers["MCP-Protocol-Version"] = str(version)
        return headers

    def _exchange(self, body: bytes, headers: dict[str, str]) -> Iterator[Any]:
        """Send one POST and yield its response, or every message of its event stream."""
        connection = self._connection()
        is_sent = False
        try:
            is_new = connection.sock is None
            if is_new:
                connection.connect()
                connection.sock.settimeout(_TIMEOUT_SECONDS)
            self._has_connected = is_sent = True
            connection.request("POST", urlsplit(self._client.origin).path + "/mcp", body, headers)
            yield from self._read_response(connection.getresponse())
            self._local.used = time.monotonic()
        except (OSError, http.client.HTTPException) as error:
            self._forget()
            reason = f"No server responds at {self._client.origin}: start it and call again"
            if is_sent:
                lost = f"{self._client.origin} closed the connection"
                reason = f"{lost}: check whether the call had an effect before you repeat it"
            raise _ServerUnavailable(reason, sent=is_sent) from error

    def _connection(self) -> http.client.HTTPConnection:
        """Return this thread's connection; open a new one if the server has closed it or soon will."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is not None and connection.sock is not None:
            old = time.monotonic() - getattr(self._local, "used", 0.0) > _KEEP_ALIVE_SECONDS
            # An idle connection is readable only if the server has closed it.
            if old or select.select([connection.sock], [], [], 0)[0]:
                self._forget()
        if getattr(self._local, "connection", None) is None:
            self._local.connection = self._connect()
        return self._local.connection

    def _connect(self) -> http.client.HTTPConnection:
        return self._client.connection(_CONNECT_SECONDS)

    def _forget(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
        self._local.connection = None

    def _read_response(self, response: http.client.HTTPResponse) -> Iterator[Any]:
        if response.status == http.client.UNAUTHORIZED:
            self._forget()
            problem = "does not accept this key" if self._client.api_key else "requires a key"
            raise CommandError(f"{self._client.origin} {problem}: set SIXFOLD_API_KEY")
        if response.getheader("Content-Type", "").startswith("text/event-stream"):
            try:
                yield from self._events(response)
            finally:
                self._forget()
            return
        text = response.read(_MAX_MESSAGE_BYTES + 1)
        if len(text) > _MAX_MESSAGE_BYTES:
            self._forget()
            raise self._too_large()
        if response.status == http.client.ACCEPTED or not text:
            return
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict | list):
            raise CommandError(f"{self._client.origin}/mcp returned {response.status} without a message")
        yield message

    def _events(self, response: http.client.HTTPResponse) -> Iterator[Any]:
        """Yield the messages of an event stream; raises `CommandError` if one is too large or not JSON."""
        try:
            for data in event_data(response, _MAX_MESSAGE_BYTES):
                yield self._message(data)
        except EventTooLarge:
            raise self._too_large() from None

    def _message(self, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CommandError(f"{self._client.origin}/mcp sent an event that is not JSON") from error

    def _too_large(self) -> CommandError:
        most = _MAX_MESSAGE_BYTES // 2**20
        return CommandError(f"{self._client.origin}/mcp returned a message of more than {most} MiB")

    # -- to the agent --------------------------------------------------------------------------------

    def _write(self, message: Any) -> None:
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        with self._writing:
            self._target.write(line.encode("utf-8", "surrogatepass") + b"\n")
            self._target.flush()

    def _fail(self, message_id: Any, reason: str, code: int = _UNREACHABLE) -> None:
        self._write({"jsonrpc": "2.0", "id": message_id, "error": {"code": code, "message": reason}})


def _with_id(message_id: Any, response: Any) -> Any:
    """Return a response with the ID of its request, which is null if the server could not parse it."""
    unparsed = isinstance(response, dict) and "error" in response and response.get("id") is None
    return {**response, "id": message_id} if unparsed else response


def _name_of(message: Document) -> dict[str, str]:
    """Return the `Mcp-Name` header, which protocol revisions without a handshake require."""
    params = message.get("params")
    name = params.get(_NAME_PARAMS.get(str(message.get("method")), "")) if isinstance(params, dict) else None
    if not isinstance(name, str):
        return {}
    if name.isascii() and name.isprintable() and name == name.strip():
        return {"Mcp-Name": name}
    return {"Mcp-Name": f"=?base64?{base64.b64encode(name.encode('utf-8', 'replace')).decode()}?="}
