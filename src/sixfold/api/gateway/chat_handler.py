"""What every `/v1` face that talks with models shares: whose key it is, one answer, a stream of events."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import limits
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.chat import ChatRequest, ChatResponse, Event
from sixfold.core.gateway.gateway import Gateway, GatewayReply
from sixfold.core.gateway.ports import GatewayRequest
from sixfold.core.gateway.response_stream import ResponseStream
from sixfold.web import auth
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.raw_asgi import Header, RawRequest
from sixfold.web.raw_asgi import RawResponse as Whole
from sixfold.web.responses import LongResponse
from sixfold.web.routing import ErrorFormat
from sixfold.web.services import WebServices

KEEP_ALIVE = b": keep-alive\n\n"
_KEY_SECONDS = 0.25  # that a key which was just seen is believed; revoking one takes no longer
_MAX_SEEN = 4096
SERVICES = ("chat", "vision", "text-llm")


class ResponseRecorder(Protocol):
    """Keeps one answer before it is told; `server` is the target whose own words it has, or empty."""

    async def whole(self, body: bytes, server: str) -> None:
        """Keep a whole answer."""
        ...

    def watch(self, blocks: AsyncGenerator[bytes], server: str) -> AsyncGenerator[bytes]:
        """The same blocks; the answer is kept before the one with its end."""
        ...


class ChatCall(msgspec.Struct, frozen=True):
    """A request as its face read it; `parse` reads the rest where another dialect must be asked.

    `tools` has what its face calls some tools, by the names that a server of another dialect is told; `echo`
    has the fields that are told back with the answer. `recalled` is about how many tokens of input a server
    that speaks its dialect adds, from what was said before.
    """

    model: str
    stream: bool
    max_tokens: int | None
    parse: Callable[[], ChatRequest]
    keep_usage: bool = True
    tools: Callable[[], Mapping[str, Any]] = dict
    echo: Callable[[], Mapping[str, Any]] = dict
    keeper: ResponseRecorder | None = None
    recalled: int = 0


@dataclass(frozen=True, slots=True)
class ResponseDialect:
    """A dialect's way to say an answer, its events and an error within them."""

    wire: str
    dialect: ErrorFormat
    whole: Callable[[ChatResponse, ChatCall, str], bytes]
    stream: Callable[[AsyncIterator[Event], ChatCall, str], AsyncGenerator[bytes]]
    failed: Callable[[errors.SixfoldError, str], bytes]


class CachedKeyAuth:
    """Keys of `/v1`, by `Authorization` or `x-api-key`; one seen a moment ago is not looked up again."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._seen: dict[tuple[bytes | None, bytes | None], tuple[float, Principal]] = {}

    async def enter(self, request: Request) -> Principal:
        """Who asks; raises what `admit` raises."""
        return await self.admit(dict(reversed(request.headers.raw)))

    async def admit(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Who asks; raises `Unauthenticated`, `Forbidden` and `TooManyRequests`."""
        shown = headers.get(b"authorization"), headers.get(b"x-api-key")
        moment = time.monotonic()
        seen = self._seen.get(shown)
        if seen is not None and moment - seen[0] < _KEY_SECONDS:
            principal = await self._services.authenticator.admit(seen[1])
        else:
            bearer, plain = (value.decode("latin-1") if value is not None else None for value in shown)
            principal = await self._services.authenticator.key(auth.token_of(bearer) or plain)
            if len(self._seen) >= _MAX_SEEN:
                self._seen.clear()
            self._seen[shown] = (moment, principal)
        return principal


class ChatHandler:
    """Asks the relay on behalf of a request, and answers in a dialect."""

    def __init__(self, services: WebServices, relay: Gateway, tongue: ResponseDialect) -> None:
        self._services = services
        self._relay = relay
        self._tongue = tongue

    async def answer(
        self,
        call: RawRequest,
        principal: Principal,
        wanted: ChatCall,
        raw: bytes,
        services: tuple[str, ...] = SERVICES,
    ) -> Response | Whole:
        """The whole answer, or its stream; a key that is limited to one of `services` may ask for it."""
        ask = self._ask(call, principal, wanted, raw, services)
        payer = limits.payer_of(principal)
        repeated = b"idempotency-key" in call.headers
        if wanted.stream:
            if repeated:
                raise errors.BadRequest("A stream cannot be replayed: leave Idempotency-Key out")
            self._services.admission.chat_streams.hold(call.scope, principal.account_id)
            return await self._streamed(ask, wanted, payer)
        if not repeated:
            return await self._whole(ask, wanted, payer)

        async def work(scope: str | None) -> Response:
            paid = None if scope is None else await self._relay.paid_before(scope, ask.request_id)
            if paid is None:
                return (await self._whole(ask, wanted, payer)).response()
            again = msgspec.structs.replace(ask, prepaid_hold=0)
            return (await self._whole(again, wanted, None, paid)).response()

        once = IdempotentRequest(principal.replays, raw, self._tongue.dialect)
        return await self._services.idempotency.run(call.request(), once, work)

    def _ask(
        self, call: RawRequest, principal: Principal, wanted: ChatCall, raw: bytes, services: tuple[str, ...]
    ) -> GatewayRequest:
        wire = self._tongue.wire
        return GatewayRequest(
            account_id=principal.account_id,
            request_id=call.request_id,
            endpoint=wire,
            wire=wire,
            model=wanted.model,
            body=raw,
            parse=wanted.parse,
            stream=wanted.stream,
            max_tokens=wanted.max_tokens,
            keep_usage=wanted.keep_usage,
            stored_tokens=wanted.recalled,
            services=services,
            allowed_services=principal.scope.services,
            below_zero=principal.below_zero,
            tpm=principal.scope.tpm,
            key_id=principal.key_id,
            credential_id=principal.credential_id,
            headers=passed_on(call.headers) if wire == "messages" else {},
        )

    async def _whole(
        self, ask: GatewayRequest, wanted: ChatCall, payer: limits.Payer | None, paid: int | None = None
    ) -> Whole:
        reply = await self._relay.complete(ask, payer)
        if paid is not None:
            reply = msgspec.structs.replace(reply, cost=paid)
        if reply.answer is None:
            body = reply.raw or b""
        else:
            body = self._tongue.whole(reply.answer, wanted, ask.request_id)
        if wanted.keeper is not None:
            await wanted.keeper.whole(body, reply.target if reply.answer is None else "")
        return Whole(body, [*headers_of(reply), *self._named(ask)])

    async def _streamed(self, ask: GatewayRequest, wanted: ChatCall, payer: limits.Payer | None) -> Response:
        """Wait a little for the first byte, so that an error has its status; then keep the line alive."""
        opening = asyncio.ensure_future(self._relay.stream(ask, payer))
        try:
            await asyncio.wait({opening}, timeout=self._relay.policy.keep_alive_seconds)
            if opening.done():
                opening.result()
        except asyncio.CancelledError:
            await _abandon(opening)
            raise
        answer = EventStreamResponse(self._source(opening, ask, wanted))
        answer.raw_headers += self._named(ask)
        return answer

    def _named(self, ask: GatewayRequest) -> list[Header]:
        """The request's id where the clients of a dialect look for it."""
        return [(b"request-id", ask.request_id.encode())] if self._tongue.wire == "messages" else []

    async def _source(
        self, opening: asyncio.Future[ResponseStream], ask: GatewayRequest, wanted: ChatCall
    ) -> AsyncGenerator[bytes]:
        begun = False
        try:
            while not opening.done():
                yield KEEP_ALIVE
                await asyncio.wait({opening}, timeout=self._relay.policy.keep_alive_seconds)
            flow = opening.result()
            begun = True
            blocks = flow.blocks() if flow.raw else self._translated(flow, ask, wanted)
            if wanted.keeper is not None:
                blocks = wanted.keeper.watch(blocks, flow.target if flow.raw else "")
            async with contextlib.aclosing(blocks):
                async for block in blocks:
                    yield block
        except errors.SixfoldError as error:
            yield self._tongue.failed(error, ask.request_id)
        finally:
            if not begun:
                await _abandon(opening)

    async def _translated(
        self, flow: ResponseStream, ask: GatewayRequest, wanted: ChatCall
    ) -> AsyncGenerator[bytes]:
        async with (
            contextlib.aclosing(flow.events()) as events,
            contextlib.aclosing(self._tongue.stream(events, wanted, ask.request_id)) as said,
        ):
            async for block in said:
                yield block


class EventStreamResponse(LongResponse):
    """Sends blocks as they come. When the caller leaves, the source is closed at once."""

    def __init__(
        self,
        source: AsyncGenerator[bytes],
        kind: str = "text/event-stream",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        plain = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(None, 200, {**plain, **(headers or {})}, kind)
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream."""
        watching = asyncio.ensure_future(_watch(receive, asyncio.current_task()))
        left = False
        try:
            async with contextlib.aclosing(self._source) as source:
                await send(
                    {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                )
                async for block in source:
                    await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            left = watching.done() and not watching.cancelled()
            task = asyncio.current_task()
            if not left or task is None or task.uncancel() > 0:
                raise
        finally:
            watching.cancel()


async def _watch(receive: Receive, task: asyncio.Task[Any] | None) -> None:
    """Cancel `task` as soon as the caller is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if task is not None:
        task.cancel()


async def _abandon(opening: asyncio.Future[ResponseStream]) -> None:
    """Nobody waits for this any more."""
    if not opening.done():
        opening.cancel()
    with contextlib.suppress(asyncio.CancelledError, errors.SixfoldError):
        flow = await opening
        await flow.abandon()


def passed_on(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """The headers that a server of Anthropic's dialect is told, too."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in headers.items()
        if name.startswith(b"anthropic-")
    }


def headers_of(reply: GatewayReply) -> list[Header]:
    """What an answer says of who gave it, and for how much."""
    headers = [
        (b"x-sixfold-engine", reply.target.encode("ascii", "replace")),
        (b"x-sixfold-quality", b"full"),
        (b"x-sixfold-cost", money.format_usd(reply.cost).encode()),
        (b"cache-control", b"no-store"),
    ]
    if reply.list_price is not None:
        headers.append((b"x-sixfold-list-price", money.format_usd(reply.list_price).encode()))
    return [*headers, (b"x-sixfold-cache", b"hit")] if reply.cached else headers
