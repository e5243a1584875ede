"""Requests and responses without the objects of a framework, for the most frequent routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sixfold.web import bodies

JSON = (b"content-type", b"application/json")
# The scope key of a connection that can send a whole response in one write.
CONNECTION = "sixfold.connection"
Header = tuple[bytes, bytes]
# Returns further headers of the current request's response, also of an error; called when it is complete.
late_headers: ContextVar[Callable[[], Awaitable[list[Header]]] | None] = ContextVar(
    "late_headers", default=None
)


class RawRequest:
    """A request; `headers` has the first value of a repeated header."""

    __slots__ = ("_max_bytes", "_receive", "headers", "scope")

    def __init__(
        self, scope: Scope, receive: Receive, headers: Mapping[bytes, bytes], max_bytes: int
    ) -> None:
        self.scope = scope
        self.headers = headers
        self._receive = receive
        self._max_bytes = max_bytes

    @property
    def request_id(self) -> str:
        """The id that the response carries in `X-Request-Id`."""
        return self.scope["sixfold.request_id"]

    def header(self, name: bytes) -> str | None:
        """Return the text of a header, or None."""
        value = self.headers.get(name)
        return value.decode("latin-1") if value is not None else None

    async def body(self) -> bytes:
        """Return the whole body; raises `TooLarge` or `ClientDisconnect`."""
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self._max_bytes:
                raise bodies.too_large(self._max_bytes)
            if not message.get("more_body"):
                return b"".join(chunks)

    def request(self) -> Request:
        """Return Starlette's object of this request; its body may have been read."""
        return Request(self.scope, self._receive)


class RawConnection(Protocol):
    """A connection that may send a whole response in one write.

    `on_disconnect` is called when the client disconnects.
    """

    on_disconnect: Callable[[], object] | None

    def send_response(self, scope: Scope, response: RawResponse) -> bool:
        """Send a response and return True, or return False if it must be sent by ASGI messages."""
        ...


class RawResponse:
    """A complete JSON response."""

    __slots__ = ("body", "raw_headers", "status_code")

    def __init__(self, body: bytes, headers: list[Header], status_code: int = 200) -> None:
        self.body = body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), JSON, *headers]
        self.status_code = status_code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: RawConnection | None = scope.get(CONNECTION)
        if connection is not None and scope["method"] != "HEAD" and connection.send_response(scope, self):
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})

    def response(self) -> Response:
        """Return Starlette's object of this response."""
        response = Response(self.body, self.status_code)
        response.raw_headers = self.raw_headers
        return response


def abort(scope: Scope) -> bool:
    """Close the connection of a request whose response is left incomplete.

    Returns False if the connection is not known, as in tests without a socket.
    """
    connection: Any = scope.get(CONNECTION)
    if connection is None:
        return False
    if connection.cycle.scope is scope:
        # Otherwise, uvicorn logs an error about the incomplete response.
        connection.cycle.disconnected = True
    connection.transport.abort()
    return True


class RawHandler:
    __slots__ = ("handle",)

    def __init__(self, handle: Callable[[RawRequest], Awaitable[RawResponse | Response]]) -> None:
        self.handle = handle


def raw_request(request: Request) -> RawRequest:
    """Convert a Starlette request, whose body has already been read, to a raw request."""
    return RawRequest(request.scope, request.receive, dict(reversed(request.scope["headers"])), 0)
