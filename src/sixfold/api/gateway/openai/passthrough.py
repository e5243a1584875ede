"""Pictures, sound and vectors that a model server makes: asked and answered as they are, on the relay."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.chat_handler import EventStreamResponse, headers_of
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import media_jobs
from sixfold.core.accounts import limits
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.ports import GatewayRequest
from sixfold.core.gateway.response_stream import ResponseStream
from sixfold.core.gateway.usage import TokenUsage
from sixfold.web import requests
from sixfold.web.bodies import FormPart

OWN = frozenset({*media_jobs.OURS, "default", "style-transfer", "inpaint-cleaner"})
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class ForwardedCall:
    """A request that goes on: its protocol, our service of that kind, its body, and what it may use.

    `kind` is the content type of the answer; `stream` says that it is passed on as it comes.
    """

    wire: str
    service: str
    model: str
    body: bytes
    most: TokenUsage
    kind: str = "application/json"
    stream: bool = False
    content_type: str = ""


class UpstreamPassthrough:
    """What is not made here; `images` are the text-to-image models that are."""

    def __init__(self, relay: Gateway, images: Collection[str] = ()) -> None:
        self._relay = relay
        self._own = OWN.union(images)

    def makes(self, wire: str, model: Any) -> bool:
        """Whether a model server is asked for a model of this name; our own names are ours."""
        if not isinstance(model, str) or model in self._own or model.startswith("custom:"):
            return False
        return self._relay.router.accepts_protocol(model, wire)

    def is_local(self, model: str) -> bool:
        """Whether a model server on this machine or in its network may be asked for this model."""
        return any(target.upstream.local for target in self._relay.router.resolve(model))

    def local_embeddings(self) -> str:
        """The name of an embedding model that a local server has, or an empty string."""
        return self._relay.router.local_embeddings()

    async def answer(
        self, request: Request, principal: Principal, passed: ForwardedCall, scope: str | None
    ) -> Response:
        """The server's answer, whole or as it comes; with an `Idempotency-Key` always whole."""
        payer, ask = limits.payer_of(principal), _ask(request, principal, passed)
        if passed.stream and scope is None:
            flow = await self._relay.stream(msgspec.structs.replace(ask, stream=True), payer)
            headers = {"X-Sixfold-Engine": flow.target, "X-Sixfold-Quality": "full"}
            return EventStreamResponse(_blocks(flow, passed, ask.request_id), passed.kind, headers)
        if passed.kind == EVENTS:
            raise errors.BadRequest("A stream cannot be replayed: leave Idempotency-Key out")
        paid = None if scope is None else await self._relay.paid_before(scope, ask.request_id)
        if paid is None:
            reply = await self._relay.complete(ask, payer)
        else:
            reply = await self._relay.complete(msgspec.structs.replace(ask, prepaid_hold=0))
            reply = msgspec.structs.replace(reply, cost=paid)
        response = Response(reply.raw or b"", 200, media_type=passed.kind)
        response.raw_headers += headers_of(reply)
        return response


def _ask(request: Request, principal: Principal, passed: ForwardedCall) -> GatewayRequest:
    return GatewayRequest(
        account_id=principal.account_id,
        request_id=requests.request_id(request),
        endpoint=passed.wire,
        wire=passed.wire,
        model=passed.model,
        body=passed.body,
        parse=lambda: ChatRequest(()),
        expected_usage=passed.most,
        services=(passed.service,),
        allowed_services=principal.scope.services,
        below_zero=principal.below_zero,
        tpm=principal.scope.tpm,
        key_id=principal.key_id,
        credential_id=principal.credential_id,
        headers={"Content-Type": passed.content_type} if passed.content_type else {},
    )


async def _blocks(flow: ResponseStream, passed: ForwardedCall, request_id: str) -> AsyncGenerator[bytes]:
    """What comes; an error in the middle is an event where there are events, else the sound breaks off."""
    try:
        async with contextlib.aclosing(flow.blocks()) as blocks:
            async for block in blocks:
                yield block
    except errors.SixfoldError as error:
        if passed.kind != EVENTS:
            raise
        yield openai_errors.event(error, request_id)


def is_stream(values: Mapping[str, Any]) -> bool:
    """Whether a request asks for events, in JSON or in a form."""
    return values.get("stream") in (True, "true", "True", "1")


def form(parts: Sequence[FormPart]) -> tuple[bytes, str]:
    """A form made anew without its `model`, and its content type; equal forms give equal bytes."""
    kept = [(_head(part), part.data) for part in parts if part.name != "model"]
    border = _border(kept)
    pieces = [b"--%s\r\n%s\r\n\r\n%s\r\n" % (border, head, data) for head, data in kept]
    return b"".join([*pieces, b"--%s--\r\n" % border]), f"multipart/form-data; boundary={border.decode()}"


def _head(part: FormPart) -> bytes:
    head = f'Content-Disposition: form-data; name="{_quoted(part.name)}"'
    if part.filename:
        head += f'; filename="{_quoted(part.filename)}"\r\nContent-Type: {_quoted(part.kind)}'
    return head.encode()


def _border(kept: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A line that is in no part, as nothing holds its own hash."""
    found = hashlib.sha256()
    for head, data in kept:
        found.update(b"%d %d " % (len(head), len(data)) + head)
        found.update(data)
    return b"sixfold-" + found.hexdigest()[:40].encode()


def _quoted(text: str) -> str:
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
