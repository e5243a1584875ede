"""The MCP server: a table of methods that features register, and the handling of messages."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from sixfold import __version__
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Access
from sixfold.mcp import jsonrpc
from sixfold.mcp.jsonrpc import JsonObject, RpcError, RpcMessage

_ASK_SECONDS = 300
_CACHEABLE = frozenset(
    {"server/discover", "tools/list", "resources/list", "resources/templates/list", "resources/read"}
    | {"prompts/list"}
)
# The latest revision removed these methods together with the handshake.
_REMOVED = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
INFO: Mapping[str, str] = {"name": "sixfold", "title": "Sixfold", "version": __version__}


class ClientChannel:
    """Messages to the client before the response: notifications and requests."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[JsonObject] = asyncio.Queue()
        self.open = True

    def send(self, message: JsonObject) -> None:
        """Queue a message, which is ignored after the client has disconnected."""
        if self.open:
            self.queue.put_nowait(message)


class ToolInvocation(msgspec.Struct):
    """A request in progress: the caller, and the channel for messages before the response.

    `version` is the protocol revision of the request, or empty. Without a `channel`, only the response can be
    sent. With an `idempotency_id`, the request may be a repetition.
    """

    principal: Principal
    request_id: str
    version: str = ""
    idempotency_id: str | None = None
    progress_token: str | int | None = None
    channel: ClientChannel | None = None
    pending_requests: dict[tuple[str, str], asyncio.Future[Any]] = {}

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, if there is a channel."""
        if self.channel is not None:
            self.channel.send({"jsonrpc": "2.0", "method": method, "params": params})

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress, if the client has requested it."""
        if self.progress_token is not None:
            params: JsonObject = {"progressToken": self.progress_token, "progress": done}
            params |= {"total": total} if total is not None else {}
            params |= {"message": message} if message else {}
            self.notify("notifications/progress", params)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request to the client and return its response; raises `RpcError` if that is not possible."""
        if self.channel is None or self.version == jsonrpc.LATEST:
            raise RpcError(
                jsonrpc.INVALID_REQUEST,
                "This client does not accept requests, because it did not open an event stream",
            )
        key = (self.principal.account_id, f"ask_{secrets.token_urlsafe(16)}")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.pending_requests[key] = future
        self.channel.send({"jsonrpc": "2.0", "id": key[1], "method": method, "params": params})
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                return await future
        except TimeoutError as error:
            raise RpcError(jsonrpc.INTERNAL, f"The client did not respond within {_ASK_SECONDS} s") from error
        finally:
            del self.pending_requests[key]


Method = Callable[[JsonObject, ToolInvocation], Awaitable[Mapping[str, Any]]]


class ServerFeature(msgspec.Struct, frozen=True):
    """Methods of the server, with the capabilities that announce them.

    `streams` returns whether a request may send messages before its response, and `takes_media` whether files
    may be inlined in it. `access` is the access that callers need, and must be set.
    """

    capabilities: Mapping[str, Any]
    methods: Mapping[str, Method]
    streams: Callable[[RpcMessage], bool] = lambda _message: False
    access: Access | None = None
    takes_media: Callable[[RpcMessage], bool] = lambda _message: False


class McpServer:
    """Handles messages; between messages, only the server's pending requests are stored."""

    def __init__(self, features: Sequence[ServerFeature], instructions: str) -> None:
        self._features = tuple(features)
        self._instructions = instructions
        self._capabilities: JsonObject = {}
        self._methods: dict[str, Method] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": _empty_result,
            "logging/setLevel": _empty_result,
        }
        self._access = dict.fromkeys(self._methods, rights.ANY)
        for feature in features:
            if feature.access is None:
                raise ValueError(f"The methods {', '.join(feature.methods)} must declare an access")
            self._access |= dict.fromkeys(feature.methods, feature.access)
            self._capabilities |= feature.capabilities
            self._methods |= feature.methods
        self.pending_requests: dict[tuple[str, str], asyncio.Future[Any]] = {}

    def streams(self, message: RpcMessage) -> bool:
        """Return whether a request may send messages before its response."""
        return any(feature.streams(message) for feature in self._features)

    def takes_media(self, message: RpcMessage) -> bool:
        """Return whether files may be inlined in a request."""
        return any(feature.takes_media(message) for feature in self._features)

    async def answer(self, message: RpcMessage, call: ToolInvocation) -> JsonObject:
        """Return the result of a request; raises `RpcError` or the errors of its method."""
        method = self._methods.get(message.method)
        if method is None or (call.version == jsonrpc.LATEST and message.method in _REMOVED):
            raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"The method {message.method[:100]} was not found")
        call.principal.require(self._access[message.method])
        token = jsonrpc.fields(message.params.get("_meta")).get("progressToken")
        if isinstance(token, str | int) and not isinstance(token, bool):
            call.progress_token = token
        call.pending_requests = self.pending_requests
        result = await method(message.params, call)
        return _latest_result(message.method, result) if call.version == jsonrpc.LATEST else dict(result)

    def settle(self, message: RpcMessage, principal: Principal) -> None:
        """Handle the client's response to a request of this server; unexpected responses are ignored."""
        future = self.pending_requests.get((principal.account_id, str(message.id)))
        if future is not None and not future.done():
            future.set_result(message.result)

    async def _initialize(self, params: JsonObject, call: ToolInvocation) -> JsonObject:
        del call
        version = params.get("protocolVersion")
        if not isinstance(version, str):
            raise RpcError(jsonrpc.INVALID_PARAMS, "protocolVersion must be a string")
        return {
            "protocolVersion": version if version in jsonrpc.HANDSHAKE else jsonrpc.HANDSHAKE[-1],
            "capabilities": {**self._capabilities, "logging": {}},
            "serverInfo": INFO,
            "instructions": self._instructions,
        }

    async def _discover(self, params: JsonObject, call: ToolInvocation) -> JsonObject:
        del params, call
        return {
            "supportedVersions": list(jsonrpc.VERSIONS),
            "capabilities": self._capabilities,
            "instructions": self._instructions,
        }


async def _empty_result(params: JsonObject, call: ToolInvocation) -> JsonObject:
    del params, call
    return {}


def _latest_result(method: str, result: Mapping[str, Any]) -> JsonObject:
    """Return a result in the format of `LATEST`, the protocol revision without a handshake."""
    cache = {"ttlMs": 0, "cacheScope": "private"} if method in _CACHEABLE else {}
    return {"resultType": "complete", **cache, "_meta": {jsonrpc.SERVER_META: INFO}, **result}
