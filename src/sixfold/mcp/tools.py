"""Tools as the protocol lists and calls them. A refusal is an answer: one sentence, and a way on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Access
from sixfold.mcp import jsonrpc
from sixfold.mcp.jsonrpc import Plain, RpcError, RpcMessage
from sixfold.mcp.server import ServerFeature, ToolInvocation

PAGE = 100
BUDGET = 250_000  # characters of one answer: more does not fit into any context
_encode = msgspec.json.Encoder(enc_hook=str).encode
_HINTS: Mapping[str, str] = {
    "conflict": "Read it first; then send if_version, or overwrite: true, or use edit.",
    "precondition_failed": "Somebody changed it meanwhile: read it again and merge.",
    "forbidden": "Ask the person for another key if this is needed.",
    "insufficient_credits": "Ask the person to add credit.",
    "rate_limited": "Wait a little and try again.",
    "queue_full": "Wait a little and try again.",
    "in_progress": "Wait a little and try again.",
    "shutting_down": "Try again in a minute.",
    "storage_unavailable": "Try again in a minute.",
    "invalid_input": "Mend the arguments and call it again.",
    "too_large": "Send less: split the text into several pages.",
}


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a tool gives: plain values, and content beside them (pictures, links, a text as it stands).

    `shown` is what the text has of `values` where not all of it: the rest stands in `content`.
    """

    values: Mapping[str, Any]
    content: Sequence[Mapping[str, Any]] = ()
    shown: Mapping[str, Any] | None = None


Run = Callable[[ToolInvocation, Plain], Awaitable[ToolOutcome]]


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool: what an agent reads of it, its arguments as JSON Schema, what it does, what it needs.

    `lost` tells an agent how to find what it named and what is not there.
    """

    name: str
    title: str
    description: str
    schema: Mapping[str, Any]
    run: Run
    lost: str = ""
    hints: Mapping[str, bool] = field(default_factory=dict[str, bool])
    access: Access | None = None
    streams: bool = False

    def is_for(self, principal: Principal) -> bool:
        """Whether a principal may call it."""
        return self.access is not None and principal.has(self.access.right)

    def plain(self) -> Plain:
        """The tool as `tools/list` gives it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": {"title": self.title, **self.hints},
        }


class Toolbox:
    """Every tool of a server; a key sees those that are for it."""

    def __init__(self, tools: Sequence[McpTool], page: int = PAGE) -> None:
        for tool in tools:
            if tool.access is None:
                raise ValueError(f"The tool {tool.name} declares no access: set one, such as ANY")
        self._tools = {tool.name: tool for tool in tools}
        self._listed = {tool.name: msgspec.Raw(_encode(tool.plain())) for tool in tools}  # they never change
        self._page = page

    def feature(self) -> ServerFeature:
        """The methods of the tools."""
        return ServerFeature(
            {"tools": {"listChanged": False}},
            {"tools/list": self._list, "tools/call": self._call},
            self._streams,
            access=rights.ANY,
        )

    def _streams(self, message: RpcMessage) -> bool:
        tool = self._tools.get(str(message.params.get("name"))) if message.method == "tools/call" else None
        return tool is not None and tool.streams

    async def _list(self, params: Plain, call: ToolInvocation) -> Plain:
        seen = [self._listed[tool.name] for tool in self._tools.values() if tool.is_for(call.principal)]
        return paged("tools", seen, params.get("cursor"), self._page)

    async def _call(self, params: Plain, call: ToolInvocation) -> Plain:
        name, arguments = params.get("name"), jsonrpc.member(params, "arguments")
        if not isinstance(name, str):
            raise RpcError(jsonrpc.INVALID_PARAMS, "name must be a text: the name of a tool")
        tool = self._tools.get(name)
        if tool is None or tool.access is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"There is no tool {name[:100]}")
        call.principal.require(tool.access)
        try:
            _check_names(tool, arguments)
            return _told(await tool.run(call, arguments))
        except errors.SixfoldError as error:
            return _refused(error, tool)


def _check_names(tool: McpTool, given: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for an argument that the tool does not have: it would be lost without a word."""
    known: Mapping[str, Any] = tool.schema.get("properties", {})
    unknown = [name for name in given if name not in known]
    if unknown:
        names = ", ".join(str(name)[:60] for name in unknown[:5])
        raise errors.InvalidInput(
            [errors.Problem(unknown[0], f"{tool.name} has no argument {names}; it has {', '.join(known)}")]
        )


def paged(noun: str, rows: Sequence[object], cursor: object, size: int) -> Plain:
    """One page of a complete list; raises `RpcError` for a cursor that this server did not give."""
    start = 0
    if cursor is not None:
        text = cursor if isinstance(cursor, str) else ""
        if not (text.isascii() and text.isdigit() and len(text) < 9):
            raise RpcError(jsonrpc.INVALID_PARAMS, "Invalid cursor")
        start = int(text)
    found: Plain = {noun: list(rows[start : start + size])}
    return found | ({"nextCursor": str(start + size)} if start + size < len(rows) else {})


def _told(outcome: ToolOutcome) -> Plain:
    """An outcome as the protocol gives it: a text for every client, the values for those that take them."""
    text = _encode(outcome.values if outcome.shown is None else outcome.shown).decode()
    if len(text) > BUDGET:
        raise errors.TooLarge(
            f"The answer would have {len(text)} characters: ask for less, with limit or max_chars"
        )
    content = [*outcome.content, {"type": "text", "text": text}]
    return {"content": content, "structuredContent": outcome.values, "isError": False}


def _refused(error: errors.SixfoldError, tool: McpTool) -> Plain:
    """A refusal as the tool's answer: what is wrong, and what to do next."""
    said = error.message if error.message.endswith((".", "!", "?")) else f"{error.message}."
    hint = tool.lost if isinstance(error, errors.NotFound) else _HINTS.get(error.code, "")
    text = f"{said} {hint}".strip() if hint and hint not in said else said
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": {"error": error.message, "code": error.code, "status": error.status},
        "isError": True,
    }
