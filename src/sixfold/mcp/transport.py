"""The HTTP transport at POST /mcp: a message or a batch in, JSON or an event stream out.

A plain POST needs only its key: no handshake, no session, no `Accept`. A client that accepts
`text/event-stream` gets a stream only for a request that sends messages before its response, and never with
an `Idempotency-Key`, under which complete responses are stored.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.core.accounts.idempotency import NOT_STORED
from sixfold.mcp import jsonrpc
from sixfold.mcp.jsonrpc import Plain, RpcError, RpcMessage
from sixfold.mcp.server import ClientChannel, McpServer, ToolInvocation
from sixfold.web import bodies, requests, responses
from sixfold.web.idempotency import IdempotentRequest, UncachedResponse
from sixfold.web.routing import ErrorFormat
from sixfold.web.services import WebServices

_LOG = logging.getLogger("sixfold.mcp")
_MAX_BATCH = 50
# A stream without messages sends a comment at this interval.
PING_SECONDS = 15.0
_STREAM = "text/event-stream"
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_STATUS = {jsonrpc.METHOD_NOT_FOUND: 404, jsonrpc.INTERNAL: 200, jsonrpc.RESOURCE_NOT_FOUND: 200}
_HEADERS = {"Cache-Control": "no-store"}
_encode = msgspec.json.Encoder(enc_hook=str).encode


class McpEndpoint:
    """The endpoint for agents."""

    def __init__(self, services: WebServices, server: McpServer, ping_seconds: float = PING_SECONDS) -> None:
        self._services = services
        self._server = server
        self._ping_seconds = ping_seconds
        self._dialect = dialect(services.settings.base_url)

    async def post(self, request: Request) -> Response:
        """Handle the messages of a body."""
        self._check_origin(request)
        principal = await self._services.authenticator.bearer(request)
        raw = await request.body()
        version = request.headers.get("mcp-protocol-version", "")

        async def work(idempotency_id: str | None) -> Response:
            return await self._read(
                request, raw, ToolInvocation(principal, requests.request_id(request), version, idempotency_id)
            )

        once = IdempotentRequest(principal.replays, raw, self._dialect)
        return await self._services.idempotency.run(request, once, work)

    async def _read(self, request: Request, raw: bytes, call: ToolInvocation) -> Response:
        try:
            document = await bodies.parse(bodies.parse_json, raw)
        except errors.InputTooLarge as error:
            return _failed(None, RpcError(jsonrpc.PARSE_ERROR, error.message), 400)
        except errors.BadRequest:
            return _failed(None, RpcError(jsonrpc.PARSE_ERROR, "The body is not JSON"), 400)
        version = call.version
        if version and version not in jsonrpc.VERSIONS:
            data = {"supported": list(jsonrpc.VERSIONS), "requested": version[:100]}
            failure = RpcError(jsonrpc.UNSUPPORTED_VERSION, "Unsupported protocol version", data)
            return _failed(jsonrpc.id_of(document), failure, 400)
        if isinstance(document, list) and version != jsonrpc.LATEST:
            return await self._batch(cast("list[Any]", document), call)
        return await self._single(document, request, call)

    async def get(self, request: Request) -> Response:
        """Raise `MethodNotAllowed`: the server has no sessions to listen to."""
        del request
        raise errors.MethodNotAllowed("This endpoint takes POST only: it keeps no session to listen to")

    def _check_origin(self, request: Request) -> None:
        """Reject pages of other origins, as a foreign name may resolve to this server."""
        if "origin" in request.headers and not self._services.trusted_hosts.trusts(request):
            raise errors.Forbidden("This page may not call the tools of this server")

    async def _single(self, document: Any, request: Request, call: ToolInvocation) -> Response:
        try:
            message = jsonrpc.read(document)
            if call.version == jsonrpc.LATEST:
                _check_envelope(message, request)
        except RpcError as failure:
            return _failed(jsonrpc.id_of(document), failure, 400)
        if not message.has_id or not message.method:
            if message.has_id:
                self._server.settle(message, call.principal)
            return Response(status_code=202, headers=_HEADERS)
        takes_stream = _STREAM in request.headers.get("accept", "") and call.idempotency_id is None
        if takes_stream and self._server.streams(message):
            self._services.admission.event_stream(request, call.principal.account_id)
            return await self._streamed(message, call)
        answer = await self._answer(message, call)
        status = 200
        if call.version == jsonrpc.LATEST and "error" in answer:
            status = _STATUS.get(answer["error"]["code"], 400)
        return _whole(answer, [answer], status)

    async def _batch(self, documents: list[Any], call: ToolInvocation) -> Response:
        """Handle several messages in their order.

        Each message after the first counts as a request of its own, the POST as the first.
        """
        if not 0 < len(documents) <= _MAX_BATCH:
            text = f"A batch has 1 to {_MAX_BATCH} messages, not {len(documents):,}: send several batches"
            failure = RpcError(jsonrpc.INVALID_REQUEST, text)
            return _failed(None, failure, 400)
        found: list[Plain] = []
        for number, document in enumerate(documents):
            if number:
                # Most methods never suspend; let other requests run.
                await asyncio.sleep(0)
            try:
                message = jsonrpc.read(document)
            except RpcError as failure:
                found.append(jsonrpc.error(jsonrpc.id_of(document), failure))
                continue
            if not message.method:
                self._server.settle(message, call.principal)
            elif message.has_id:
                # Under the batch's idempotency id, all messages would share one run.
                part = replace(call, idempotency_id=None)
                found.append(await self._answer(message, part, counted=not number))
        if not found:
            return Response(status_code=202, headers=_HEADERS)
        return _whole(found, found)

    async def _answer(self, message: RpcMessage, call: ToolInvocation, *, counted: bool = True) -> Plain:
        try:
            if not counted:
                await self._services.authenticator.count_request(call.principal)
            return jsonrpc.result(message.id, await self._server.answer(message, call))
        except RpcError as failure:
            return jsonrpc.error(message.id, failure)
        except errors.SixfoldError as error:
            data = {"code": error.code, "status": error.status}
            return jsonrpc.error(message.id, RpcError(jsonrpc.INVALID_PARAMS, error.message, data))
        except Exception:  # noqa: BLE001 - the outermost loop of a message: the caller gets an error, the log why
            _LOG.exception("a tool failed in a way that it should not", extra={"request_id": call.request_id})
            return jsonrpc.error(
                message.id, RpcError(jsonrpc.INTERNAL, "Something went wrong inside the server")
            )

    async def _streamed(self, message: RpcMessage, call: ToolInvocation) -> Response:
        """Return JSON if the response comes first, else a stream that begins with the first message."""
        channel = call.channel = ClientChannel()
        answer = asyncio.create_task(self._answer(message, call))
        first = asyncio.create_task(channel.queue.get())
        await asyncio.wait({answer, first}, timeout=self._ping_seconds, return_when=asyncio.FIRST_COMPLETED)
        if answer.done() and not first.done():
            first.cancel()
            return Response(_encode(answer.result()), 200, _HEADERS, "application/json")
        events = self._events(first, channel, answer)
        return StreamingResponse(events, 200, _STREAM_HEADERS, _STREAM)

    async def _events(
        self, following: asyncio.Task[Plain], channel: ClientChannel, answer: asyncio.Task[Plain]
    ) -> AsyncIterator[bytes]:
        """Yield the messages and then the response; if the client disconnects, the request is canceled.

        Comments keep idle streams alive, so that proxies do not close them.
        """
        try:
            while not answer.done() or following.done():
                if following.done():
                    yield _event(following.result())
                    following = asyncio.create_task(channel.queue.get())
                    # Queued messages come before the response.
                    await asyncio.sleep(0)
                    continue
                done, _ = await asyncio.wait(
                    {following, answer}, timeout=self._ping_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    yield b": still at work\n\n"
            yield _event(answer.result())
        finally:
            channel.open = False
            following.cancel()
            answer.cancel()


def _event(message: Plain) -> bytes:
    return b"event: message\ndata: " + _encode(message) + b"\n\n"


def _whole(document: Any, told: Sequence[Plain], status: int = 200) -> Response:
    """Return a JSON response, which is not stored for its Idempotency-Key if it has a temporary error."""
    kind = UncachedResponse if any(map(_may_pass, told)) else Response
    return kind(_encode(document), status, _HEADERS, "application/json")


def _may_pass(answer: Plain) -> bool:
    result = jsonrpc.fields(answer.get("result"))
    if "error" not in answer and not result.get("isError"):
        return False
    refusal = jsonrpc.fields(result.get("structuredContent") or answer.get("error", {}).get("data"))
    return refusal.get("status", 400) in NOT_STORED


def _failed(message_id: jsonrpc.MessageId, failure: RpcError, status: int) -> Response:
    return Response(_encode(jsonrpc.error(message_id, failure)), status, _HEADERS, "application/json")


def dialect(base_url: str) -> ErrorFormat:
    """Return the error format: a JSON-RPC error with the HTTP status.

    A client without a key is told where to get one (RFC 9728).
    """
    door = f'Bearer resource_metadata="{base_url}/.well-known/oauth-protected-resource/mcp"'

    def told(error: errors.SixfoldError, request_id: str) -> Response:
        response = _told(error, request_id)
        if isinstance(error, errors.Unauthenticated):
            response.headers["WWW-Authenticate"] = door
        return response

    return told


def _told(error: errors.SixfoldError, request_id: str) -> Response:
    data = {"code": error.code, "status": error.status, "request_id": request_id}
    document = jsonrpc.error(None, RpcError(-32000 if error.status != 400 else -32600, error.message, data))
    headers = responses.error_headers(error) | _HEADERS
    if isinstance(error, errors.MethodNotAllowed):
        headers["Allow"] = "POST"
    return Response(_encode(document), error.status, headers, "application/json")


def _check_envelope(message: RpcMessage, request: Request) -> None:
    """Check what the revision without a handshake requires; raises `RpcError`."""
    if not message.has_id or not message.method:
        return
    meta: Any = message.params.get("_meta")
    envelope = jsonrpc.fields(meta)
    for name in (jsonrpc.VERSION_META, jsonrpc.CAPABILITIES_META):
        if name not in envelope:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"params._meta has no {name}")
    if envelope[jsonrpc.VERSION_META] != jsonrpc.LATEST:
        raise RpcError(jsonrpc.HEADER_MISMATCH, "MCP-Protocol-Version is not what params._meta says")
    if request.headers.get("mcp-method") != message.method:
        raise RpcError(jsonrpc.HEADER_MISMATCH, "Mcp-Method is not the method of the body")
    named = _NAMED.get(message.method)
    name = message.params.get(named) if named is not None else None
    if name is not None and _plain(request.headers.get("mcp-name")) != name:
        raise RpcError(jsonrpc.HEADER_MISMATCH, f"Mcp-Name is not the {named} of the body")


def _plain(header: str | None) -> str | None:
    """Decode a header, which is `=?base64?…?=` if it is not ASCII."""
    if header is None or not (header.startswith("=?base64?") and header.endswith("?=")):
        return header
    try:
        return base64.b64decode(header[9:-2], validate=True).decode()
    except ValueError:
        return None
