"""Client of MCP servers over streamable HTTP (https://modelcontextprotocol.io, revision 2025-06-18)."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sixfold import __version__, errors
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.chat import ToolSpec
from sixfold.core.gateway.tools.servers import ToolOutput, ToolServerFailed
from sixfold.core.input_limits import json_limits
from sixfold.net.fetch import Fetcher, FetchResponse

_PROTOCOL = "2025-06-18"
_MAX_BYTES = 2**20
# Limits on the tools and results that a model receives.
MAX_TOOLS, _SCHEMA_BYTES, _DESCRIPTION_CHARS, _NAME_CHARS, RESULT_CHARS = 64, 16 * 1024, 1000, 128, 20_000
_PAGES = 8
_encode = msgspec.json.Encoder().encode


class _ListedTool(msgspec.Struct):
    name: str
    description: str | None = None
    inputSchema: dict[str, Any] = {}  # noqa: N815 - the protocol's name


class _ToolPage(msgspec.Struct):
    tools: list[_ListedTool]
    nextCursor: str | None = None  # noqa: N815 - the protocol's name


class _ToolContent(msgspec.Struct):
    type: str = ""
    text: str | None = None
    resource: dict[str, Any] | None = None


class _CallResult(msgspec.Struct):
    content: list[_ToolContent] = []
    isError: bool = False  # noqa: N815 - the protocol's name


class _Message(msgspec.Struct):
    id: int | str | None = None
    result: Any = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class McpToolServer:
    """A server that the operator has configured; without `tools`, all of its tools are offered."""

    name: str
    url: str
    fetcher: Fetcher
    api_key: str = field(default="", repr=False)
    shared: bool = False
    tools: frozenset[str] = frozenset()
    timeout_seconds: float = 30.0

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncGenerator[McpToolSession]:
        """Open a session and end it after the block; raises `ToolServerFailed`."""
        session = McpToolSession(self)
        await session.begin()
        try:
            yield session
        finally:
            await session.end()


class McpToolSession:
    """A session with one server."""

    def __init__(self, server: McpToolServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if server.api_key:
            self._headers["authorization"] = f"Bearer {server.api_key}"

    async def begin(self) -> None:
        """Agree on the protocol's revision."""
        client = {"name": "sixfold", "version": __version__}
        params = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client}
        response, result = await self._request("initialize", params)
        if session_id := response.headers.get("mcp-session-id", ""):
            self._headers["mcp-session-id"] = session_id
        revision = result.get("protocolVersion") if isinstance(result, dict) else None
        self._headers["mcp-protocol-version"] = revision if isinstance(revision, str) else _PROTOCOL
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def end(self) -> None:
        """End the session on the server, if it has one."""
        if "mcp-session-id" in self._headers:
            with contextlib.suppress(errors.SixfoldError):
                await self._server.fetcher.send(
                    "DELETE", self._server.url, headers=self._headers, timeout_seconds=3, max_bytes=0
                )

    async def tools(self) -> Sequence[ToolSpec]:
        """Return the tools; raises `ToolServerFailed`."""
        specs: list[ToolSpec] = []
        params: dict[str, Any] = {}
        for _ in range(_PAGES):
            _, result = await self._request("tools/list", params)
            page = self._convert(result, _ToolPage)
            specs += [_spec(tool) for tool in page.tools if self._is_offered(tool)]
            if not page.nextCursor or len(specs) >= MAX_TOOLS:
                break
            params = {"cursor": page.nextCursor}
        return specs[:MAX_TOOLS]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """Call a tool; raises `ToolServerFailed`."""
        _, result = await self._request("tools/call", {"name": name, "arguments": arguments})
        output = self._convert(result, _CallResult)
        text = "\n\n".join(_text(content) for content in output.content)
        if len(text) > RESULT_CHARS:
            text = f"{text[:RESULT_CHARS]}\n[cut: the result has {len(text):,} characters]"
        return ToolOutput(text or "[no output]", output.isError)

    def _is_offered(self, tool: _ListedTool) -> bool:
        allowed = self._server.tools
        fits = len(tool.name) <= _NAME_CHARS and len(_encode(tool.inputSchema)) <= _SCHEMA_BYTES
        return fits and (not allowed or tool.name in allowed)

    async def _request(self, method: str, params: Mapping[str, Any]) -> tuple[FetchResponse, Any]:
        number = next(self._numbers)
        response = await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        if response.status != 200:
            raise self._failed(f"it returned status {response.status}")
        try:
            message = await PARSER.run_large(len(response.body), _response_to, response, number)
        except errors.InputTooLarge as error:
            raise self._failed("it returned too many values") from error
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise self._failed("it did not return a JSON-RPC message") from error
        if message is None:
            raise self._failed(f"it did not respond to {method}")
        if message.error is not None:
            raise self._failed(str(message.error.get("message") or "an error without a message")[:500])
        return response, message.result

    async def _send(self, message: Mapping[str, Any]) -> FetchResponse:
        server = self._server
        try:
            return await server.fetcher.send(
                "POST",
                server.url,
                headers=self._headers,
                content=_encode(message),
                timeout_seconds=server.timeout_seconds,
                max_bytes=_MAX_BYTES,
            )
        except errors.SixfoldError as error:
            raise self._failed(error.message.partition(": ")[2] or error.message) from error

    def _convert(self, result: Any, kind: type[Any]) -> Any:
        try:
            return msgspec.convert(result, kind)
        except msgspec.ValidationError as error:
            raise self._failed(f"its result is malformed ({error})") from error

    def _failed(self, reason: str) -> ToolServerFailed:
        return ToolServerFailed(f"The tool server {self._server.name} failed: {reason.rstrip('.')}")


def _spec(tool: _ListedTool) -> ToolSpec:
    schema = tool.inputSchema if tool.inputSchema.get("type") == "object" else {"type": "object"}
    return ToolSpec(tool.name, (tool.description or tool.name)[:_DESCRIPTION_CHARS], schema)


def _text(content: _ToolContent) -> str:
    if content.text is not None:
        return content.text
    text = (content.resource or {}).get("text")
    return text if isinstance(text, str) else f"[{content.type or 'content'} omitted]"


def _response_to(response: FetchResponse, number: int) -> _Message | None:
    """Return the response to a request by its number, from a JSON body or an event stream.

    Raises `InputTooLarge` for too many values.
    """
    json_limits.DEFAULT.check(response.body)
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    bodies = _events(response.body.decode()) if kind == "text/event-stream" else [response.body]
    messages = (msgspec.json.decode(body, type=_Message) for body in bodies)
    return next((message for message in messages if message.id == number), None)


def _events(text: str) -> Iterator[str]:
    """Yield the data of each event of a stream."""
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
        if any(lines):
            yield "\n".join(lines)
