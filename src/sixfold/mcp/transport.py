"""The HTTP transport at POST /mcp: messages or batches, answered with JSON or an event stream.

A POST requires only a key; a handshake, a session and `Accept` are optional. A client that accepts
`text/event-stream` receives a stream only for a request that sends messages before its response, and never
with an `Idempotency-Key`, under which complete responses are stored.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.core.accounts.idempotency import NOT_STORED
from sixfold.core.pagination import PAGE_BYTES
from sixfold.mcp import jsonrpc
from sixfold.mcp.jsonrpc import JsonObject, RpcError, RpcMessage
from sixfold.mcp.server import ClientChannel, McpServer, ToolInvocation
from sixfold.web import bodies, requests, responses
from sixfold.web.idempotency import IdempotentRequest, UncachedResponse
from sixfold.web.routing import ErrorFormat
from sixfold.web.services import WebServices

_LOG = logging.getLogger("sixfold.mcp")
_MAX_BATCH = 50
# Maximum bytes of a message besides its arguments.
_ENVELOPE_BYTES = 64 * 1024
# A stream without messages sends a comment at this interval.
PING_SECONDS = 15.0
_STREAM = "text/event-stream"
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_NAME_FIELDS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_TOO_LARGE = {"code": errors.TooLarge.code, "status": errors.TooLarge.status}
_STATUS = {jsonrpc.METHOD_NOT_FOUND: 404, jsonrpc.INTERNAL: 200, jsonrpc.RESOURCE_NOT_FOUND: 200}
_HEADERS = {"Cache-Control": "no-store"}
_encode = msgspec.json.Encoder(enc_hook=str).encode


class McpEndpoint:
    """The endpoint `/mcp` for agents."""

    def __init__(self, services: WebServices, server: McpServer, ping_seconds: float = PING_SECONDS) -> None:
        self._services = services
        self._server = server
        self._ping_seconds = ping_seconds
        self._dialect = dialect(services.settings.base_url)
        small, page = services.settings.json_body_bytes, services.settings.memory_page_bytes
        # Escaping may double the size of a page, as in the HTTP API.
        self._max_bytes = _ENVELOPE_BYTES + (small if page <= small else page * 2)
        self._too_large = (
            f"The body is larger than {self._max_bytes:,} bytes, which only tools that take files allow: "
            "send less text"
        )

    async def post(self, request: Request) -> Response:
        """Handle the messages of a body."""
        self._check_origin(request)
        principal = await self._services.authenticator.memory(request)
        raw = await request.body()
        version = request.headers.get("mcp-protocol-version", "")

        async def work(idempotency_id: str | None) -> Response:
            return await self._read(
                request, raw, ToolInvocation(principal, requests.request_id(request), version, idempotency_id)
            )

        idempotent_request = IdempotentRequest(principal.replays, raw, self._dialect)
        return await self._services.idempotency.run(request, idempotent_request, work)

    async def _read(self, request: Request, raw: bytes, call: ToolInvocation) -> Response:
        try:
            document = await bodies.parse(bodies.parse_json, raw)
        except errors.InputTooLarge as error:
            return _error_response(None, RpcError(jsonrpc.PARSE_ERROR, error.message), 400)
        except errors.BadRequest:
            return _error_response(None, RpcError(jsonrpc.PARSE_ERROR, "The body is not JSON"), 400)
        if len(raw) > self._max_bytes and not self._takes_media(document):
            return _error_response(None, RpcError(jsonrpc.INVALID_REQUEST, self._too_large, _TOO_LARGE), 413)
        version = call.version
        if version and version not in jsonrpc.VERSIONS:
            data = {"supported": list(jsonrpc.VERSIONS), "requested": version[:100]}
            failure = RpcError(jsonrpc.UNSUPPORTED_VERSION, "Unsupported protocol version", data)
            return _error_response(jsonrpc.id_of(document), failure, 400)
        if isinstance(document, list) and version != jsonrpc.LATEST:
            return await self._batch(cast("list[Any]", document), call)
        return await self._single(document, request, call)

    def _takes_media(self, document: Any) -> bool:
        """Return whether files may be inlined in every message of a body."""
        messages = cast("list[Any]", document) if isinstance(document, list) else [document]
        try:
            return all(self._server.takes_media(jsonrpc.read(each)) for each in messages)
        except RpcError:
            return False

    async def get(self, request: Request) -> Response:
        """Raise `MethodNotAllowed`, as the server does not support sessions with a stream."""
        del request
        raise errors.MethodNotAllowed("This endpoint supports only POST: it does not have event streams")

    def _check_origin(self, request: Request) -> None:
        """Reject requests from web pages of other origins, as DNS rebinding can reach this server."""
        if "origin" in request.headers and not self._services.trusted_hosts.trusts(request):
            raise errors.Forbidden(
                "Requests from this origin are not allowed: set SIXFOLD_PUBLIC_URL to this server's URL"
            )

    async def _single(self, document: Any, request: Request, call: ToolInvocation) -> Response:
        try:
            message = jsonrpc.read(document)
            if call.version == jsonrpc.LATEST:
                _check_envelope(message, request)
        except RpcError as failure:
            return _error_response(jsonrpc.id_of(document), failure, 400)
        if not message.has_id or not message.method:
            if message.has_id:
                self._server.settle(message, call.principal)
            return Response(status_code=202, headers=_HEADERS)
        takes_stream = _STREAM in request.headers.get("accept", "") and call.idempotency_id is None
        if takes_stream and self._server.streams(message):
            self._services.admission.event_stream(request, call.principal.account_id)
            return await self._stream(message, call)
        response = await self._answer(message, call)
        status = 200
        if call.version == jsonrpc.LATEST and "error" in response:
            status = _STATUS.get(response["error"]["code"], 400)
        return _json_response(_encode(response), status, is_temporary=_is_temporary(response))

    async def _batch(self, documents: list[Any], call: ToolInvocation) -> Response:
        """Handle several messages in their order.

        Each message counts as a request; the first one is counted with the POST. After `PAGE_BYTES` of
        responses, the other requests are not executed.
        """
        if not 0 < len(documents) <= _MAX_BATCH:
            text = f"A batch must have 1 to {_MAX_BATCH} messages (got {len(documents):,}): split it"
            failure = RpcError(jsonrpc.INVALID_REQUEST, text)
            return _error_response(None, failure, 400)
        # Each response is encoded alone, so that other requests are served between two of them.
        replies: list[msgspec.Raw] = []
        size, is_temporary = 0, False
        for number, document in enumerate(documents):
            if number:
                # Most methods never suspend, so the event loop needs a chance to run other requests.
                await asyncio.sleep(0)
            # With the batch's idempotency id, all messages would share one run.
            single_call = replace(call, idempotency_id=None)
            reply = await self._batched(document, single_call, size, counted=not number)
            if reply is not None:
                encoded = _encode(reply)
                replies.append(msgspec.Raw(encoded))
                size += len(encoded)
                is_temporary |= _is_temporary(reply)
        if not replies:
            return Response(status_code=202, headers=_HEADERS)
        return _json_response(_encode(replies), is_temporary=is_temporary)

    async def _batched(
        self, document: Any, call: ToolInvocation, size: int, *, counted: bool
    ) -> JsonObject | None:
        """Return the response to a message of a batch, after `size` bytes of responses, or None."""
        try:
            message = jsonrpc.read(document)
        except RpcError as failure:
            return jsonrpc.error(jsonrpc.id_of(document), failure)
        if not message.method:
            self._server.settle(message, call.principal)
        if not message.method or not message.has_id:
            return None
        if size > PAGE_BYTES:
            text = (
                f"The responses of a batch must have at most {PAGE_BYTES:,} bytes (got {size:,}): "
                "send this request in another batch"
            )
            return jsonrpc.error(message.id, RpcError(jsonrpc.INVALID_REQUEST, text, _TOO_LARGE))
        return await self._answer(message, call, counted=counted)

    async def _answer(self, message: RpcMessage, call: ToolInvocation, *, counted: bool = True) -> JsonObject:
        try:
            if not counted:
                # Earlier messages of the batch may have waited for minutes.
                call = replace(call, principal=await self._services.authenticator.again(call.principal))
            return jsonrpc.result(message.id, await self._server.answer(message, call))
        except RpcError as failure:
            return jsonrpc.error(message.id, failure)
        except errors.SixfoldError as error:
            data = {"code": error.code, "status": error.status}
            return jsonrpc.error(message.id, RpcError(jsonrpc.INVALID_PARAMS, error.message, data))
        except Exception:  # noqa: BLE001 - the outermost loop of a message: the caller gets an error, the log why
            _LOG.exception("a tool raised an unexpected error", extra={"request_id": call.request_id})
            return jsonrpc.error(message.id, RpcError(jsonrpc.INTERNAL, "Internal server error"))

    async def _stream(self, message: RpcMessage, call: ToolInvocation) -> Response:
        """Return JSON if the response comes first, or else a stream that begins with the first message."""
        channel = call.channel = ClientChannel()
        response = asyncio.create_task(self._answer(message, call))
        first = asyncio.create_task(channel.queue.get())
        await asyncio.wait({response, first}, timeout=self._ping_seconds, return_when=asyncio.FIRST_COMPLETED)
        if response.done() and not first.done():
            first.cancel()
            return Response(_encode(response.result()), 200, _HEADERS, "application/json")
        events = self._events(first, channel, response)
        return StreamingResponse(events, 200, _STREAM_HEADERS, _STREAM)

    async def _events(
        self,
        next_message: asyncio.Task[JsonObject],
        channel: ClientChannel,
        response: asyncio.Task[JsonObject],
    ) -> AsyncIterator[bytes]:
        """Yield the messages and then the response; if the client disconnects, the request is canceled.

        Comments on idle streams prevent proxies from closing them.
        """
        try:
            while not response.done() or next_message.done():
                if next_message.done():
                    yield _event(next_message.result())
                    next_message = asyncio.create_task(channel.queue.get())
                    # Queued messages come before the response.
                    await asyncio.sleep(0)
                    continue
                done, _ = await asyncio.wait(
                    {next_message, response}, timeout=self._ping_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    yield b": still at work\n\n"
            yield _event(response.result())
        finally:
            channel.open = False
            next_message.cancel()
            response.cancel()


def _event(message: JsonObject) -> bytes:
    return b"event: message\ndata: " + _encode(message) + b"\n\n"


def _json_response(body: bytes, status: int = 200, *, is_temporary: bool) -> Response:
    """Return a JSON response; if an error is temporary, it is not stored for its Idempotency-Key."""
    kind = UncachedResponse if is_temporary else Response
    return kind(body, status, _HEADERS, "application/json")


def _is_temporary(reply: JsonObject) -> bool:
    result = jsonrpc.fields(reply.get("result"))
    if "error" not in reply and not result.get("isError"):
        return False
    problem = jsonrpc.fields(result.get("structuredContent") or reply.get("error", {}).get("data"))
    return problem.get("status", 400) in NOT_STORED


def _error_response(message_id: jsonrpc.MessageId, failure: RpcError, status: int) -> Response:
    return Response(_encode(jsonrpc.error(message_id, failure)), status, _HEADERS, "application/json")


def dialect(base_url: str) -> ErrorFormat:
    """Return the error format: a JSON-RPC error with the HTTP status.

    For a client without a key, it contains the URL of the resource metadata (RFC 9728).
    """
    challenge = f'Bearer resource_metadata="{base_url}/.well-known/oauth-protected-resource/mcp"'

    def render(error: errors.SixfoldError, request_id: str) -> Response:
        response = _http_error(error, request_id)
        if isinstance(error, errors.Unauthenticated):
            response.headers["WWW-Authenticate"] = challenge
        return response

    return render


def _http_error(error: errors.SixfoldError, request_id: str) -> Response:
    data = {"code": error.code, "status": error.status, "request_id": request_id}
    document = jsonrpc.error(None, RpcError(-32000 if error.status != 400 else -32600, error.message, data))
    headers = responses.error_headers(error) | _HEADERS
    if isinstance(error, errors.MethodNotAllowed):
        headers["Allow"] = "POST"
    return Response(_encode(document), error.status, headers, "application/json")


def _check_envelope(message: RpcMessage, request: Request) -> None:
    """Check the fields that the revision without a handshake requires; raises `RpcError`."""
    if not message.has_id or not message.method:
        return
    meta: Any = message.params.get("_meta")
    envelope = jsonrpc.fields(meta)
    for name in (jsonrpc.VERSION_META, jsonrpc.CAPABILITIES_META):
        if name not in envelope:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"params._meta.{name} is required")
    if envelope[jsonrpc.VERSION_META] != jsonrpc.LATEST:
        raise RpcError(jsonrpc.HEADER_MISMATCH, "MCP-Protocol-Version must equal the version in params._meta")
    if request.headers.get("mcp-method") != message.method:
        raise RpcError(jsonrpc.HEADER_MISMATCH, "Mcp-Method must equal the method of the body")
    field = _NAME_FIELDS.get(message.method)
    name = message.params.get(field) if field is not None else None
    if name is not None and _decode_header(request.headers.get("mcp-name")) != name:
        raise RpcError(jsonrpc.HEADER_MISMATCH, f"Mcp-Name must equal the {field} of the body")


def _decode_header(header: str | None) -> str | None:
    """Decode a header, which is `=?base64?…?=` if it is not ASCII."""
    if header is None or not (header.startswith("=?base64?") and header.endswith("?=")):
        return header
    try:
        return base64.b64decode(header[9:-2], validate=True).decode()
    except ValueError:
        return None
