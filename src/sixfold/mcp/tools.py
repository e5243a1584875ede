"""The methods tools/list and tools/call. Errors of a tool are results with a hint about what to do next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import pagination
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Access
from sixfold.mcp import jsonrpc
from sixfold.mcp.jsonrpc import JsonObject, RpcError, RpcMessage
from sixfold.mcp.server import ServerFeature, ToolInvocation
from sixfold.web import responses

PAGE = 100
# Maximum characters of a result; longer ones may not fit into a model's context.
BUDGET = 250_000
_encode = msgspec.json.Encoder(enc_hook=str).encode
_HINTS: Mapping[str, str] = {
    "conflict": "Read it first; then send if_version, or overwrite: true, or use edit.",
    "precondition_failed": "It was changed in the meantime: read it again and merge.",
    "forbidden": "Ask the person for another key if this is needed.",
    "insufficient_credits": "Ask the person to add credit.",
    "rate_limited": "Wait a little and try again.",
    "queue_full": "Wait a little and try again.",
    "in_progress": "Wait a little and try again.",
    "shutting_down": "Try again in a minute.",
    "storage_unavailable": "Try again in a minute.",
    "invalid_input": "Correct the arguments and call it again.",
    "too_large": "Send less: split the text into several pages.",
}


class ToolOutcome(msgspec.Struct, frozen=True):
    """The result of a tool: its values, and further content (images, links, plain text).

    `text_values` are the values of the text part, if some of `values` are in `content` instead.
    """

    values: Mapping[str, Any]
    content: Sequence[Mapping[str, Any]] = ()
    text_values: Mapping[str, Any] | None = None


Run = Callable[[ToolInvocation, JsonObject], Awaitable[ToolOutcome]]


class McpTool(msgspec.Struct, frozen=True):
    """A tool: its description, its arguments as JSON Schema, its function and the required access.

    A tool is listed and can be called while `is_available` returns true.
    `lost` is a hint for agents on how to find a valid name after a `NotFound` error.
    """

    name: str
    title: str
    description: str
    schema: Mapping[str, Any]
    run: Run
    lost: str = ""
    hints: Mapping[str, bool] = {}
    access: Access | None = None
    streams: bool = False
    takes_media: bool = False
    is_available: Callable[[], bool] = lambda: True

    def allows(self, principal: Principal) -> bool:
        return self.access is not None and principal.has(self.access.right) and self.is_available()

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": {"title": self.title, **self.hints},
        }


class Toolbox:
    """The tools of a server; a key lists only those that it may call."""

    def __init__(self, tools: Sequence[McpTool], page: int = PAGE) -> None:
        for tool in tools:
            if tool.access is None:
                raise ValueError(
                    f"The tool {tool.name} does not declare its access: set `access`, for example to ANY"
                )
        self._tools = {tool.name: tool for tool in tools}
        # Encoded once, as tools never change.
        self._listed = {tool.name: msgspec.Raw(_encode(tool.to_json())) for tool in tools}
        self._page = page

    def feature(self) -> ServerFeature:
        return ServerFeature(
            {"tools": {"listChanged": False}},
            {"tools/list": self._list, "tools/call": self._call},
            self._streams,
            access=rights.ANY,
            takes_media=self._takes_media,
        )

    def _streams(self, message: RpcMessage) -> bool:
        tool = self._tool_of(message)
        return tool is not None and tool.streams

    def _takes_media(self, message: RpcMessage) -> bool:
        tool = self._tool_of(message)
        return tool is not None and tool.takes_media

    def _tool_of(self, message: RpcMessage) -> McpTool | None:
        is_call = message.method == "tools/call"
        return self._tools.get(str(message.params.get("name"))) if is_call else None

    async def _list(self, params: JsonObject, call: ToolInvocation) -> JsonObject:
        visible = [self._listed[tool.name] for tool in self._tools.values() if tool.allows(call.principal)]
        return paginate("tools", visible, params.get("cursor"), self._page)

    async def _call(self, params: JsonObject, call: ToolInvocation) -> JsonObject:
        name, arguments = params.get("name"), jsonrpc.member(params, "arguments")
        if not isinstance(name, str):
            raise RpcError(jsonrpc.INVALID_PARAMS, "name must be a string: the name of a tool")
        tool = self._tools.get(name)
        if tool is None or tool.access is None or not tool.is_available():
            raise RpcError(jsonrpc.INVALID_PARAMS, f"The tool {name[:100]} was not found")
        call.principal.require(tool.access)
        try:
            _check_names(tool, arguments)
            return _result(await tool.run(call, arguments))
        except errors.SixfoldError as error:
            return _error_result(error, tool)


def _check_names(tool: McpTool, arguments: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for an unknown argument, which would otherwise be ignored."""
    properties: Mapping[str, Any] = tool.schema.get("properties", {})
    unknown = [name for name in arguments if name not in properties]
    if unknown:
        names = ", ".join(str(name)[:60] for name in unknown[:5])
        raise errors.InvalidInput(
            [
                errors.Problem(
                    unknown[0], f"{tool.name} does not have the argument {names}: use {', '.join(properties)}"
                )
            ]
        )


def paginate(noun: str, rows: Sequence[object], cursor: object, size: int) -> JsonObject:
    """Return one page of a list; raises `RpcError` for an invalid cursor."""
    start = 0
    if cursor is not None:
        text = cursor if isinstance(cursor, str) else ""
        if not (text.isascii() and text.isdigit() and len(text) < 9):
            raise RpcError(jsonrpc.INVALID_PARAMS, pagination.INVALID_CURSOR)
        start = int(text)
    page: JsonObject = {noun: list(rows[start : start + size])}
    return page | ({"nextCursor": str(start + size)} if start + size < len(rows) else {})


def _result(outcome: ToolOutcome) -> JsonObject:
    """Return a result of the protocol: text for all clients, and the values as structured content."""
    text = _encode(outcome.values if outcome.text_values is None else outcome.text_values).decode()
    if len(text) > BUDGET:
        raise errors.TooLarge(
            f"The result has {len(text)} characters, but at most {BUDGET} are allowed: use limit or max_chars"
        )
    content = [*outcome.content, {"type": "text", "text": text}]
    return {"content": content, "structuredContent": outcome.values, "isError": False}


def _error_result(error: errors.SixfoldError, tool: McpTool) -> JsonObject:
    """Return an error as the tool's result, with a hint about what to do next."""
    message = error.message if error.message.endswith((".", "!", "?")) else f"{error.message}."
    hint = tool.lost if isinstance(error, errors.NotFound) else _HINTS.get(error.code, "")
    text = f"{message} {hint}".strip() if hint and hint not in message else message
    values: JsonObject = {"error": error.message, "code": error.code, "status": error.status}
    if isinstance(error, errors.InvalidInput):
        values["errors"] = responses.problems(error)
    return {"content": [{"type": "text", "text": text}], "structuredContent": values, "isError": True}
