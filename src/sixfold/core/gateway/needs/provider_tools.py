"""Tools that providers run themselves and charge for by use: web search, file search, code containers.

The number of uses is limited in the request, so that the hold covers them; a caller may set a lower limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.core.gateway.usage import Units

MAX_USES = 10
_WEB_SEARCH = "web_search"
# OpenAI asks more for a container with more memory.
_PRICED_MEMORY = (None, "1g")
_encode = msgspec.json.Encoder().encode


class _Tool(msgspec.Struct, omit_defaults=True):
    type: Any = None
    max_uses: Any = None
    container: Any = None

    def is_kind(self, prefix: str) -> bool:
        return isinstance(self.type, str) and self.type.startswith(prefix)


class _Request(msgspec.Struct):
    tools: list[msgspec.Raw] | None = None
    max_tool_calls: Any = None


_request = msgspec.json.Decoder(_Request).decode
_tool = msgspec.json.Decoder(_Tool).decode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def most_units(wire: str, body: bytes) -> Units | None:
    """Return the largest number of uses that a request allows, or None if it has no such tool."""
    count = _COUNTS.get(wire)
    if count is None:
        return None
    tools, max_calls = _tools_of(body)
    units = count(tools, max_calls)
    return units if any(msgspec.structs.astuple(units)) else None


def unpriced(wire: str, body: bytes) -> errors.SixfoldError | None:
    """Return the error for a tool whose price is not known, or None."""
    if wire != "responses":
        return None
    for index, tool in enumerate(_tools_of(body)[0]):
        if tool.is_kind("image_generation"):
            return errors.InvalidInput.of(
                f"tools[{index}]",
                "tools of type image_generation have no price: use POST /v1/images/generations",
            )
        if _memory(tool.container) not in _PRICED_MEMORY:
            return errors.InvalidInput.of(f"tools[{index}]", "container.memory_limit must be 1g")
    return None


def _memory(container: Any) -> Any:
    return cast("dict[str, Any]", container).get("memory_limit") if isinstance(container, dict) else None


def _tools_of(body: bytes) -> tuple[list[_Tool], Any]:
    # Escape sequences may write the name in another way.
    if b'"tools"' not in body and b"\\u" not in body:
        return [], None
    try:
        request = _request(body)
        return [_tool(raw) for raw in request.tools or ()], request.max_tool_calls
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return [], None


def _responses(tools: list[_Tool], max_calls: Any) -> Units:
    uses = _limit(max_calls)
    return Units(
        web_searches=uses * any(tool.is_kind(_WEB_SEARCH) for tool in tools),
        file_searches=uses * any(tool.is_kind("file_search") for tool in tools),
        code_containers=sum(tool.is_kind("code_interpreter") for tool in tools),
    )


def _messages(tools: list[_Tool], _max_calls: Any) -> Units:
    return Units(web_searches=sum(_limit(tool.max_uses) for tool in tools if tool.is_kind(_WEB_SEARCH)))


def _limit(value: Any) -> int:
    """Return the caller's limit if it is valid; the provider rejects others."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value <= 1000 else MAX_USES


_COUNTS: Mapping[str, Callable[[list[_Tool], Any], Units]] = {
    "responses": _responses,
    "messages": _messages,
}


def limit_responses(fields: dict[str, msgspec.Raw]) -> None:
    """Set `max_tool_calls` in a request with a tool that is charged for by use, unless it has a limit."""
    if "tools" not in fields or bytes(fields.get("max_tool_calls", b"null")) != b"null":
        return
    if most_units("responses", _encode({"tools": fields["tools"]})) is not None:
        fields["max_tool_calls"] = msgspec.Raw(_encode(MAX_USES))


def limit_messages(fields: dict[str, msgspec.Raw]) -> None:
    """Set `max_uses` of each web search tool that has no limit."""
    if "tools" not in fields or most_units("messages", _encode({"tools": fields["tools"]})) is None:
        return
    tools = msgspec.json.decode(fields["tools"], type=list[msgspec.Raw])
    for index, raw in enumerate(tools):
        tool = _tool(raw)
        if tool.is_kind(_WEB_SEARCH) and tool.max_uses is None:
            tools[index] = msgspec.Raw(_encode({**_raws(raw), "max_uses": MAX_USES}))
    fields["tools"] = msgspec.Raw(_encode(tools))
