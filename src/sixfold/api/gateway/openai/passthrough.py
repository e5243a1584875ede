"""Forwards image, audio and embedding requests to model servers unchanged."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway import provider_objects, tags
from sixfold.api.gateway.chat_handler import EventStreamResponse, check_replay, engine_headers, reply_headers
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import media_jobs
from sixfold.api.gateway.provider_objects import ObjectGuard
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.limits import budgets
from sixfold.core.gateway import idempotency as gateway_idempotency
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.ports import GatewayReply, GatewayRequest
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.core.gateway.response_stream import ResponseStream
from sixfold.core.gateway.routing import is_routing_field
from sixfold.web import requests
from sixfold.web.bodies import FormPart
from sixfold.web.services import WebServices

LOCAL_NAMES = frozenset({*media_jobs.MODEL_ALIASES, "default", "style-transfer", "inpaint-cleaner"})
EVENTS = "text/event-stream"


class ForwardedCall(msgspec.Struct, frozen=True):
    """A request to forward: its protocol, the matching service of this server, its body, its expected usage.

    `max_usage` is held if it is higher than the expected usage.
    `kind` is the content type of the response; with `stream`, it is forwarded as it arrives.
    """

    wire: str
    service: str
    model: str
    body: bytes
    expected_usage: TokenUsage
    kind: str = "application/json"
    stream: bool = False
    content_type: str = ""
    dimensions: int | None = None
    max_usage: TokenUsage | None = None


class UpstreamPassthrough:
    """Forwards requests for models that are not served here; `is_image` names local text-to-image models."""

    def __init__(
        self, services: WebServices, is_image: Callable[[object], bool] = lambda _name: False
    ) -> None:
        self._gateway = services.gateway
        self._database = services.database
        self._objects = ObjectGuard(services.responses, services.gateway.router)
        self._is_image = is_image

    def serves(self, wire: str, model: Any) -> bool:
        """Return whether a model server serves a model; names of this server's models are never forwarded."""
        if not isinstance(model, str) or model in LOCAL_NAMES or model.startswith("custom:"):
            return False
        if self._is_image(model):
            return False
        return self._gateway.router.accepts_protocol(model, wire)

    def is_local(self, model: str) -> bool:
        """Return whether a local model server may serve this model."""
        return any(target.upstream.local for target in self._gateway.router.resolve(model))

    def local_embeddings(self) -> str:
        """Return the name of an embedding model on a local server, or an empty string."""
        return self._gateway.router.local_embeddings()

    def first_model(self, capability: str) -> str:
        """Return the first model of a server with a capability, or an empty string."""
        return self._gateway.router.first_model(capability)

    async def complete(
        self, request: Request, principal: Principal, call: ForwardedCall, scope: str | None
    ) -> GatewayReply:
        """Return the server's complete response, which is paid once for an `Idempotency-Key`."""
        await self._check_objects(principal, call)
        payer, gateway_request = budgets.payer_of(principal), _gateway_request(request, principal, call)
        if scope is None:
            return await self._gateway.complete(gateway_request, payer)
        once = await gateway_idempotency.once_id(scope, call.body)
        paid_cost = await self._gateway.paid_before(once, gateway_request.request_id)
        async with gateway_idempotency.settled_on_error(self._database, once):
            if paid_cost is None:
                return await self._gateway.complete(gateway_request, payer)
            reply = await self._gateway.complete(msgspec.structs.replace(gateway_request, prepaid_hold=0))
        return msgspec.structs.replace(reply, cost=paid_cost)

    async def respond(
        self, request: Request, principal: Principal, call: ForwardedCall, scope: str | None
    ) -> Response:
        """Return the server's response; with an `Idempotency-Key` it is never streamed."""
        if call.stream and scope is None:
            await self._check_objects(principal, call)
            gateway_request = msgspec.structs.replace(_gateway_request(request, principal, call), stream=True)
            stream = await self._gateway.stream(gateway_request, budgets.payer_of(principal))
            events = EventStreamResponse(_blocks(stream, call, gateway_request.request_id), call.kind)
            events.raw_headers += engine_headers(stream.target)
            return events
        check_replay(stream=call.kind == EVENTS, has_key=scope is not None)
        reply = await self.complete(request, principal, call, scope)
        response = Response(reply.raw or b"", 200, media_type=call.kind)
        response.raw_headers += reply_headers(reply)
        return response

    async def _check_objects(self, principal: Principal, call: ForwardedCall) -> None:
        # A form, which has a content type, was checked when it was rebuilt.
        if not call.content_type:
            await self._objects.check(principal, call.model, call.body, call.wire)


def _gateway_request(request: Request, principal: Principal, call: ForwardedCall) -> GatewayRequest:
    return GatewayRequest(
        caller=principal,
        request_id=requests.request_id(request),
        endpoint=call.wire,
        wire=call.wire,
        model=call.model,
        body=call.body,
        parse=lambda: ChatRequest(()),
        expected_usage=call.expected_usage,
        max_usage=call.max_usage,
        dimensions=call.dimensions,
        services=(call.service,),
        headers={"Content-Type": call.content_type} if call.content_type else {},
        tag=tags.of(dict(request.headers.raw)),
    )


async def _blocks(stream: ResponseStream, call: ForwardedCall, request_id: str) -> AsyncGenerator[bytes]:
    """Yield the stream; an error becomes an event, or ends an audio stream early."""
    try:
        async with contextlib.aclosing(stream.blocks()) as blocks:
            async for block in blocks:
                yield block
                del block  # it would stay in memory until the next one
    except errors.SixfoldError as error:
        if call.kind != EVENTS:
            raise
        yield openai_errors.event(error, request_id)


def is_stream(values: Mapping[str, Any]) -> bool:
    """Return whether a request, in JSON or as a form, requests a stream of events."""
    return values.get("stream") in (True, "true", "True", "1")


def form(parts: Sequence[FormPart]) -> tuple[bytes, str]:
    """Return the bytes and content type of a form without `model` and the routing fields.

    Of a field that occurs several times, only the last is sent, by which the request was priced; lists have
    names that end with `[]`. Equal forms have equal bytes. Raises `InvalidRequest` for a part with the id of
    a provider's object.
    """
    provider_objects.check_form(part.name for part in parts)
    last = {part.name: index for index, part in enumerate(parts) if _is_single(part)}
    fields = [
        (_head(part), part.data)
        for index, part in enumerate(parts)
        if part.name != "model"
        and not is_routing_field(part.name)
        and (not _is_single(part) or last[part.name] == index)
    ]
    boundary = _boundary(fields)
    # The data is copied once.
    pieces = [
        piece for head, data in fields for piece in (b"--%s\r\n%s\r\n\r\n" % (boundary, head), data, b"\r\n")
    ]
    return b"".join([*pieces, b"--%s--\r\n" % boundary]), f"multipart/form-data; boundary={boundary.decode()}"


def _is_single(part: FormPart) -> bool:
    """Return whether a part is a text field that is not an item of a list."""
    return not part.filename and not part.name.endswith("[]")


def _head(part: FormPart) -> bytes:
    head = f'Content-Disposition: form-data; name="{_quoted(part.name)}"'
    if part.filename:
        head += f'; filename="{_quoted(part.filename)}"\r\nContent-Type: {_quoted(part.kind)}'
    return head.encode()


def _boundary(fields: Sequence[tuple[bytes, bytes | memoryview]]) -> bytes:
    """Return a boundary that no part contains: a hash of all parts."""
    digest = hashlib.sha256()
    for head, data in fields:
        digest.update(b"%d %d " % (len(head), len(data)) + head)
        digest.update(data)
    return b"sixfold-" + digest.hexdigest()[:40].encode()


def _quoted(text: str) -> str:
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
