"""Handling of chat requests that all `/v1` APIs share: authentication, complete responses, event streams."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sixfold import errors
from sixfold.api.gateway import tags
from sixfold.core import money
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.limits import budgets
from sixfold.core.concurrency import loaded_objects
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway import idempotency as gateway_idempotency
from sixfold.core.gateway.chat import ChatRequest, ChatResponse, Event
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.ports import GatewayReply, GatewayRequest
from sixfold.core.gateway.request_log import refunded_on_failure
from sixfold.core.gateway.response_stream import ResponseStream
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.raw_asgi import CONNECTION, Header, RawConnection, RawRequest
from sixfold.web.raw_asgi import RawResponse as Whole
from sixfold.web.responses import LongResponse
from sixfold.web.routing import ErrorFormat
from sixfold.web.services import WebServices

KEEP_ALIVE = b": keep-alive\n\n"
# With `false`, the call is not logged.
_STORE_HEADER = b"x-sixfold-store"
# Larger blocks are sent in pieces, so that little is buffered for a client that does not read.
_SEND_BYTES = 256 * 1024
SERVICES = ("chat", "vision", "text-llm")


class ResponseRecorder(Protocol):
    """Stores a response before the caller receives its end.

    `server` is the model server that also stores the response, or an empty string.
    """

    async def record(self, body: bytes, server: str) -> bytes:
        """Store a complete response and return the body to send."""
        ...

    def record_stream(self, blocks: AsyncGenerator[bytes], server: str) -> AsyncGenerator[bytes]:
        """Yield the blocks to send; the response is stored before its last block is sent."""
        ...


class SearchOutput(Protocol):
    """A web search that this server ran before the model's answer."""

    @property
    def kind(self) -> str:
        """The type of the search's item in a response, such as `file_search_call`."""
        ...

    @property
    def prefix(self) -> str:
        """The prefix of the id of the search's item."""
        ...

    def item(self) -> dict[str, Any]: ...

    def annotations(self, text: str) -> list[dict[str, Any]]:
        """Return the citations in the model's text."""
        ...


class OpenResponse(Protocol):
    """A streamed response that has begun.

    `target` names the model and its server. `server` is the same if the server speaks the protocol of the
    request, so that its bytes are forwarded, otherwise it is empty.
    """

    target: str
    server: str

    def blocks(self) -> AsyncGenerator[bytes]:
        """Yield the bytes to send."""
        ...

    async def abandon(self) -> None:
        """Close a response that was not read."""
        ...


class ChatCall(msgspec.Struct, frozen=True):
    """The top-level fields of a request; `parse` parses the rest if the server speaks another protocol.

    `tools` maps the tool names sent to servers of another protocol to the caller's tools; `echo` returns the
    fields that the response repeats. `stored_tokens` estimates the input tokens that the server adds from
    previous responses.
    """

    model: str
    stream: bool
    max_tokens: int | None
    parse: Callable[[], ChatRequest]
    answers: int = 1
    # If False, neither the request nor its response may be stored.
    store: bool | None = None
    # The tag of the request, and the user named in it.
    metadata: msgspec.Raw = tags.NONE
    user: msgspec.Raw = tags.NONE
    # Parses another body instead of `ResponseDialect.parse`; `expand` adds items that a server stores.
    reparse: Callable[[bytes], ChatRequest] | None = None
    expand: Callable[[bytes], bytes] | None = None
    keep_usage: bool = True
    tools: Callable[[], Mapping[str, Any]] = dict
    echo: Callable[[], Mapping[str, Any]] = dict
    # The types of the tools that are not sent to servers of another protocol.
    ignored_tools: Callable[[], Sequence[str]] = tuple
    recorder: ResponseRecorder | None = None
    searches: tuple[SearchOutput, ...] = ()
    stored_tokens: int = 0
    # The time of `time.perf_counter` when the request was parsed.
    started_at: float = msgspec.field(default_factory=time.perf_counter)


class ResponseDialect(msgspec.Struct, frozen=True):
    """The functions of an API that parse requests and render responses, events, errors and keep-alives."""

    wire: str
    dialect: ErrorFormat
    parse: Callable[[bytes], ChatRequest]
    render: Callable[[ChatResponse, ChatCall, str], bytes]
    render_stream: Callable[[AsyncIterator[Event], ChatCall, str], AsyncGenerator[bytes]]
    render_error: Callable[[errors.SixfoldError, str], bytes]
    render_keep_alive: Callable[[ChatCall], bytes] = lambda _call: KEEP_ALIVE
    stream_type: str = "text/event-stream"


class ChatHandler:
    """Passes requests to the gateway and renders the response in the caller's API."""

    def __init__(self, services: WebServices, gateway: Gateway, dialect: ResponseDialect) -> None:
        self._services = services
        self._gateway = gateway
        self._dialect = dialect
        self.parse = dialect.parse

    async def answer(
        self,
        call: RawRequest,
        principal: Principal,
        chat_call: ChatCall,
        raw: bytes,
        services: tuple[str, ...] = SERVICES,
        sent: bytes | None = None,
    ) -> Response | Whole:
        """Return the complete response or a stream; keys limited to services need one of `services`.

        `sent` is the body as the caller sent it, if `raw` differs from it; it identifies a repeated request.
        """
        gateway_request = self._gateway_request(call, principal, chat_call, raw, services)
        payer = budgets.payer_of(principal)
        has_key = b"idempotency-key" in call.headers
        if chat_call.stream:
            check_replay(stream=True, has_key=has_key)
            self._services.admission.chat_streams.hold(call.scope, principal.account_id)
            return await self._stream_response(gateway_request, chat_call, payer)
        if not has_key:
            return await self._complete_response(gateway_request, chat_call, payer)

        content = raw if sent is None else sent

        async def work(scope: str | None) -> Response:
            assert scope is not None  # noqa: S101 - without a key, requests of all accounts would have one id
            once = await gateway_idempotency.once_id(scope, content)
            paid = await self._gateway.paid_before(once, gateway_request.request_id)
            request = msgspec.structs.replace(gateway_request, once=once)
            async with gateway_idempotency.settled_on_error(self._services.database, once):
                if paid is None:
                    return (await self._complete_response(request, chat_call, payer)).response()
                prepaid = msgspec.structs.replace(request, prepaid_hold=0)
                return (await self._complete_response(prepaid, chat_call, None, paid)).response()

        idempotent_request = IdempotentRequest(principal.replays, content, self._dialect.dialect)
        return await self._services.idempotency.run(call.request(), idempotent_request, work)

    def check(self, call: RawRequest, principal: Principal, chat_call: ChatCall, raw: bytes) -> None:
        """Raise `UnknownModel`, `UnpricedModel` or `Forbidden` if the request cannot use its model."""
        self._gateway.check(self._gateway_request(call, principal, chat_call, raw, SERVICES))

    def _gateway_request(
        self,
        call: RawRequest,
        principal: Principal,
        chat_call: ChatCall,
        raw: bytes,
        services: tuple[str, ...],
    ) -> GatewayRequest:
        wire = self._dialect.wire
        return GatewayRequest(
            caller=principal,
            request_id=call.request_id,
            endpoint=wire,
            wire=wire,
            model=chat_call.model,
            body=raw,
            parse=chat_call.parse,
            stream=chat_call.stream,
            max_tokens=chat_call.max_tokens,
            answers=chat_call.answers,
            keep_usage=chat_call.keep_usage,
            stored_tokens=chat_call.stored_tokens,
            services=services,
            headers=anthropic_headers(call.headers) if wire == "messages" else {},
            tag=tags.of(call.headers, chat_call.metadata, chat_call.user),
            content_days=_content_days(call, principal, chat_call) if principal.content_days else 0,
            reparse=chat_call.reparse or self._dialect.parse,
        )

    async def generate(
        self, request: GatewayRequest, chat_call: ChatCall, payer: budgets.Payer | None
    ) -> tuple[GatewayReply, bytes]:
        """Return the reply of a model server, and the response in the caller's API."""
        reply = await self._gateway.complete(request, payer)
        if reply.answer is None:
            return reply, reply.raw or b""
        prepared = await prepared_call(chat_call, len(request.body))
        render, answer = self._dialect.render, reply.answer
        size = chats.ResponseSize.of(answer).bytes
        async with refunded_on_failure(self._services.database, request.request_id):
            return reply, await PARSER.run_large(size, render, answer, prepared, request.request_id)

    async def open(
        self, request: GatewayRequest, chat_call: ChatCall, payer: budgets.Payer | None
    ) -> OpenResponse:
        """Return a streamed response whose first bytes have arrived."""
        stream = await self._gateway.stream(request, payer)
        loaded_objects.release_sent()
        return _RenderedStream(stream, self._dialect, request, chat_call)

    async def _complete_response(
        self,
        gateway_request: GatewayRequest,
        chat_call: ChatCall,
        payer: budgets.Payer | None,
        paid_cost: int | None = None,
    ) -> Whole:
        reply, body = await self.generate(gateway_request, chat_call, payer)
        if paid_cost is not None:
            reply = msgspec.structs.replace(reply, cost=paid_cost + reply.cost)
        is_forwarded = reply.answer is None
        if chat_call.recorder is not None:
            try:
                body = await chat_call.recorder.record(body, reply.target if is_forwarded else "")
            except errors.SixfoldError as error:
                # A repetition with the same Idempotency-Key is free.
                if not gateway_request.once:
                    await self._gateway.refund([gateway_request.request_id, *reply.rounds], error.message)
                raise
        headers = [*reply_headers(reply), *self._request_id_header(gateway_request)]
        if not is_forwarded:
            headers += await _ignored_tools_header(chat_call, len(gateway_request.body))
        return Whole(body, headers)

    async def _stream_response(
        self, gateway_request: GatewayRequest, chat_call: ChatCall, payer: budgets.Payer | None
    ) -> Response:
        """Wait briefly for the first byte, so that an error has its status; then send keep-alive comments."""
        opening = asyncio.ensure_future(self.open(gateway_request, chat_call, payer))
        headers = self._request_id_header(gateway_request)
        try:
            await asyncio.wait({opening}, timeout=self._gateway.policy.keep_alive_seconds)
            if opening.done():
                opened = opening.result()
                headers += engine_headers(opened.target)
                if not opened.server:
                    headers += await _ignored_tools_header(chat_call, len(gateway_request.body))
        except asyncio.CancelledError:
            await abandon(opening)
            raise
        source = self._source(opening, gateway_request, chat_call)
        # A generator that has not started would not close the response if the caller disconnects now.
        await anext(source)
        response = EventStreamResponse(source, self._dialect.stream_type)
        response.raw_headers += headers
        revoked = errors.Unauthenticated("This credential was revoked")
        response.revocation = self._dialect.render_error(revoked, gateway_request.request_id)
        return response

    def _request_id_header(self, gateway_request: GatewayRequest) -> list[Header]:
        return (
            [(b"request-id", gateway_request.request_id.encode())] if self._dialect.wire == "messages" else []
        )

    async def _source(
        self, opening: asyncio.Future[OpenResponse], gateway_request: GatewayRequest, chat_call: ChatCall
    ) -> AsyncGenerator[bytes]:
        started = False
        try:
            yield b""
            while not opening.done():
                yield self._dialect.render_keep_alive(chat_call)
                await asyncio.wait({opening}, timeout=self._gateway.policy.keep_alive_seconds)
            opened = opening.result()
            started = True
            blocks = opened.blocks()
            if chat_call.recorder is not None:
                blocks = chat_call.recorder.record_stream(blocks, opened.server)
            async with contextlib.aclosing(blocks):
                async for block in blocks:
                    yield block
                    del block  # it would stay in memory until the next one
        except errors.SixfoldError as error:
            yield self._dialect.render_error(error, gateway_request.request_id)
        finally:
            if not started:
                await abandon(opening)


class _RenderedStream:
    """A stream of a model server in the caller's API."""

    def __init__(
        self, stream: ResponseStream, dialect: ResponseDialect, request: GatewayRequest, chat_call: ChatCall
    ) -> None:
        self.target = stream.target
        self.server = stream.target if stream.raw else ""
        self._stream = stream
        self._dialect = dialect
        self._request = request
        self._chat_call = chat_call

    def blocks(self) -> AsyncGenerator[bytes]:
        """Yield the server's bytes, or the events in the caller's API."""
        return self._stream.blocks() if self._stream.raw else self._rendered()

    async def abandon(self) -> None:
        await self._stream.abandon()

    async def _rendered(self) -> AsyncGenerator[bytes]:
        async with contextlib.aclosing(self._stream.events()) as events:
            prepared = await prepared_call(self._chat_call, len(self._request.body))
            rendered = self._dialect.render_stream(events, prepared, self._request.request_id)
            async with contextlib.aclosing(rendered) as blocks:
                async for block in blocks:
                    yield block


async def prepared_call(chat_call: ChatCall, size: int) -> ChatCall:
    """Return a call with `tools` and `echo` evaluated, in another thread for a large request."""
    tools = await PARSER.run_large(size, chat_call.tools)
    echo = await PARSER.run_large(size, chat_call.echo)
    return msgspec.structs.replace(chat_call, tools=lambda: tools, echo=lambda: echo)


async def _ignored_tools_header(chat_call: ChatCall, size: int) -> list[Header]:
    """Return the header that lists the types of the tools that were not sent, or nothing."""
    kinds = await PARSER.run_large(size, chat_call.ignored_tools)
    return [(b"x-sixfold-ignored-tools", ", ".join(kinds).encode())] if kinds else []


class EventStreamResponse(LongResponse):
    """Sends blocks as they arrive; closes the source as soon as the caller disconnects."""

    def __init__(
        self,
        source: AsyncGenerator[bytes],
        kind: str = "text/event-stream",
    ) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}, kind)
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]
        self._source = source
        # Called once when the stream has ended or the caller has disconnected.
        self.on_close: Callable[[], Awaitable[None]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        disconnected = False
        task = asyncio.current_task()

        def disconnect() -> None:
            nonlocal disconnected
            disconnected = True
            if task is not None:
                task.cancel()

        connection: RawConnection | None = scope.get(CONNECTION)
        watcher: asyncio.Task[None] | None = None
        if connection is None:
            watcher = asyncio.create_task(_watch(receive, disconnect))
        else:
            connection.on_disconnect = disconnect
        try:
            async with contextlib.aclosing(self._source) as source:
                await send(
                    {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                )
                async for block in source:
                    await _send_in_pieces(send, block)
                    del block
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not disconnected or task is None or task.uncancel() > 0:
                raise
        finally:
            if watcher is not None:
                watcher.cancel()
            if connection is not None:
                connection.on_disconnect = None
            if self.on_close is not None:
                await self.on_close()


async def _send_in_pieces(send: Send, block: bytes) -> None:
    for start in range(0, len(block) or 1, _SEND_BYTES):
        # The slice of a small block is the block.
        piece = block[start : start + _SEND_BYTES]
        await send({"type": "http.response.body", "body": piece, "more_body": True})


def check_replay(*, stream: bool, has_key: bool) -> None:
    """Raise `BadRequest` for a stream with an `Idempotency-Key`."""
    if stream and has_key:
        raise errors.BadRequest("A streamed response cannot be replayed: omit Idempotency-Key")


async def _watch(receive: Receive, disconnect: Callable[[], None]) -> None:
    """Call `disconnect` when the caller disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    disconnect()


async def abandon(opening: asyncio.Future[OpenResponse]) -> None:
    """Close a stream whose caller has disconnected."""
    if not opening.done():
        opening.cancel()
    with contextlib.suppress(asyncio.CancelledError, errors.SixfoldError):
        stream = await opening
        await stream.abandon()


def _content_days(call: RawRequest, principal: Principal, chat_call: ChatCall) -> int:
    """Return the number of days for which a call is logged: 0 if logging is disabled or no key was sent."""
    if principal.keyless or chat_call.store is False or call.headers.get(_STORE_HEADER) == b"false":
        return 0
    return principal.content_days


def anthropic_headers(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the request headers to forward to a server that speaks Anthropic's protocol."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in headers.items()
        if name.startswith(b"anthropic-")
    }


def engine_headers(target: str) -> list[Header]:
    """Return the headers that name the target."""
    return [(b"x-sixfold-engine", target.encode("ascii", "replace")), (b"x-sixfold-quality", b"full")]


def reply_headers(reply: GatewayReply) -> list[Header]:
    """Return the headers that name the target, the cost and the cache."""
    headers = [
        *engine_headers(reply.target),
        (b"x-sixfold-cost", money.format_usd(reply.cost).encode()),
        (b"cache-control", b"no-store"),
    ]
    if reply.list_price is not None:
        headers.append((b"x-sixfold-list-price", money.format_usd(reply.list_price).encode()))
    return [*headers, (b"x-sixfold-cache", b"hit")] if reply.cached else headers


def text_headers(reply: GatewayReply) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reply_headers(reply)}
