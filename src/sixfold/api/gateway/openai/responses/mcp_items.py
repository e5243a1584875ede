"""Items of MCP tools in the input of a response: earlier calls, and approvals of calls."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.gateway.tools.servers import model_name

_LIST, _CALL = "mcp_list_tools", "mcp_call"
_REQUEST, _RESPONSE = "mcp_approval_request", "mcp_approval_response"
_TYPES = frozenset({_LIST, _CALL, _REQUEST, _RESPONSE})
# Calls without an output in between were made at once.
_CALL_TYPES = frozenset({_CALL, "function_call", "custom_tool_call"})
_NO_OUTPUT = "[no output]"
_MAX_REASON = 2_000
_Fields = Mapping[str, Any]


class ApprovedCall(msgspec.Struct, frozen=True):
    """A call that the caller has approved and that has not been made yet.

    `index` is the place of the approval in the input.
    """

    index: int
    request_id: str
    server: str
    name: str
    arguments: str


def expanded(items: Sequence[Any]) -> Iterable[tuple[int, Any]]:
    """Return the items with their indexes, with calls of MCP tools as calls of functions and their outputs.

    The outputs follow all calls that were made at once, as model servers require. A refused call has an
    output that says so. Lists of tools and unanswered approval requests are left out.
    """
    if not any(_type(item) in _TYPES for item in items):
        return enumerate(items)
    return _expanded(items)


def _expanded(items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    requests: dict[str, _Fields] = {}
    outputs: list[tuple[int, Any]] = []
    for index, item in enumerate(items):
        kind = _type(item)
        if kind not in _TYPES:
            if kind not in _CALL_TYPES:
                yield from outputs
                outputs = []
            yield index, item
            continue
        if kind == _REQUEST:
            requests[_text(item, "id")] = item
        call, output = _called(item, requests)
        if call is not None:
            call_id = _call_id(call)
            yield index, _function_call(call, call_id)
            outputs.append((index, {"type": "function_call_output", "call_id": call_id, "output": output}))
    yield from outputs


def _called(item: _Fields, requests: Mapping[str, _Fields]) -> tuple[_Fields | None, str]:
    """Return the call that an item contains or refuses, and its output."""
    if item["type"] == _CALL:
        return item, _text(item, "output") or _error_text(item.get("error")) or _NO_OUTPUT
    if item["type"] == _RESPONSE and item.get("approve") is not True:
        reason = _text(item, "reason")[:_MAX_REASON]
        refusal = f"The user did not approve this call{f': {reason}' if reason else '.'}"
        return requests.get(_text(item, "approval_request_id")), refusal
    return None, ""


def _function_call(call: _Fields, call_id: str) -> _Fields:
    name = model_name(_text(call, "server_label"), _text(call, "name"))
    arguments = _text(call, "arguments") or "{}"
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _call_id(call: _Fields) -> str:
    """Return an id for model servers, some of which accept only 40 characters."""
    return f"call_{hashlib.sha256(_text(call, 'id').encode()).hexdigest()[:24]}"


def _error_text(error: Any) -> str:
    """Return the text of a call's error, which is a text or an object."""
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return ""
    fields = cast("dict[str, Any]", error)
    content = fields.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [_text(cast("_Fields", part), "text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if text) or _text(fields, "message")


def approval_ids(items: Any) -> tuple[str, ...]:
    """Return the ids of the approval requests that items respond to."""
    rows = cast("list[Any]", items) if isinstance(items, list) else []
    return tuple(_text(row, "approval_request_id") for row in rows if _type(row) == _RESPONSE)


def listed_servers(items: Sequence[Any]) -> frozenset[str]:
    """Return the servers whose tools an earlier response has listed."""
    return frozenset(_text(item, "server_label") for item in items if _type(item) == _LIST)


def approved_calls(items: Sequence[Any]) -> tuple[ApprovedCall, ...]:
    """Return the approved calls that have not been made yet; raises `InvalidRequest`."""
    answered_ids = {_text(item, "approval_request_id") for item in items if _type(item) == _CALL}
    requests: dict[str, _Fields] = {}
    calls: dict[str, ApprovedCall] = {}
    for index, item in enumerate(items):
        if _type(item) == _REQUEST:
            requests[_text(item, "id")] = item
        if _type(item) != _RESPONSE:
            continue
        request_id = _text(item, "approval_request_id")
        if request_id in answered_ids:
            continue
        if (request := requests.get(request_id)) is None:
            path = f"input[{index}].approval_request_id"
            raise InvalidRequest(
                f"{path} must be the id of an mcp_approval_request in the input or an earlier response",
                param=path,
            )
        if item.get("approve") is True:
            server, name = _text(request, "server_label"), _text(request, "name")
            arguments = _text(request, "arguments") or "{}"
            # A call is made once, even if it is approved twice.
            calls.setdefault(request_id, ApprovedCall(index, request_id, server, name, arguments))
    return tuple(calls.values())


def with_calls(items: Sequence[Any], calls: Mapping[int, _Fields]) -> list[Any]:
    """Return the items with those of calls after their approvals, which have these indexes."""
    changed: list[Any] = []
    for index, item in enumerate(items):
        changed.append(item)
        if index in calls:
            changed.append(calls[index])
    return changed


def _type(item: Any) -> str:
    return _text(cast("_Fields", item), "type") if isinstance(item, dict) else ""


def _text(item: _Fields, name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""
