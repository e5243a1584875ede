"""Requests and answers without a framework's objects, for the few routes that are asked all the time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sixfold.web import bodies

JSON = (b"content-type", b"application/json")
LINE = "sixfold.line"  # of a scope: its connection, where that has a short way out
Header = tuple[bytes, bytes]


class RawRequest:
    """One request as it came in; of a header that came twice, `headers` has the first."""

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
        """The id that the answer carries in `X-Request-Id`."""
        return self.scope["sixfold.request_id"]

    def header(self, name: bytes) -> str | None:
        """A header's text, or None."""
        value = self.headers.get(name)
        return value.decode("latin-1") if value is not None else None

    async def body(self) -> bytes:
        """All of it; raises `TooLarge` and `ClientDisconnect`."""
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > self._max_bytes:
                raise bodies.too_large(self._max_bytes)
            if not message.get("more_body"):
                return b"".join(pieces)

    def request(self) -> Request:
        """The same for those who want Starlette's; its body may have been read."""
        return Request(self.scope, self._receive)


class RawRoute(Protocol):
    """A connection that may send a whole answer in one piece."""

    def at_once(self, scope: Scope, answer: RawResponse) -> bool:
        """Send it; False, and nothing is sent, where it has to go the long way."""
        ...


class RawResponse:
    """A whole answer."""

    __slots__ = ("body", "raw_headers", "status_code")

    def __init__(self, body: bytes, headers: list[Header], status_code: int = 200) -> None:
        self.body = body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), JSON, *headers]
        self.status_code = status_code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        line: RawRoute | None = scope.get(LINE)
        if line is not None and scope["method"] != "HEAD" and line.at_once(scope, self):
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})

    def response(self) -> Response:
        """The same for those who want Starlette's."""
        response = Response(self.body, self.status_code)
        response.raw_headers = self.raw_headers
        return response


class RawHandler:
    """A handler that takes a `RawRequest`."""

    __slots__ = ("answer",)

    def __init__(self, answer: Callable[[RawRequest], Awaitable[RawResponse | Response]]) -> None:
        self.answer = answer


def call_of(request: Request) -> RawRequest:
    """A request whose body was read already, as a plain one."""
    return RawRequest(request.scope, request.receive, dict(reversed(request.scope["headers"])), 0)
