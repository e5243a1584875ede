"""Items of MCP tools as calls of functions, in the order that model servers require."""

from __future__ import annotations

from typing import Any

import pytest

from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.responses import mcp_items
from sixfold.api.gateway.openai.responses.dialect import parse
from sixfold.core.gateway.chat import TextPart, ToolCall, ToolResult


def called(name: str, **fields: Any) -> dict[str, Any]:
    row = {"type": "mcp_call", "id": f"mcp_{name}", "server_label": "files", "name": name, "arguments": "{}"}
    return {**row, **fields}


def shown(*items: dict[str, Any]) -> list[str]:
    """Return the parts of the chat that the items become."""
    words: list[str] = []
    for message in parse(parsing.encode({"model": "m", "input": items})).messages:
        for part in message.parts:
            match part:
                case ToolCall():
                    words.append(f"call {part.name}")
                case ToolResult():
                    words.append("".join(each.text for each in part.parts if isinstance(each, TextPart)))
                case TextPart():
                    words.append(f"{message.role}: {part.text}")
                case _:
                    pass
    return words


def test_outputs_follow_all_calls_that_were_made_at_once() -> None:
    function = {"type": "function_call", "call_id": "c1", "name": "sing", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "la"}
    items = (function, called("read", output="A"), called("write", output="B"), output)
    assert shown(*items) == ["call sing", "call files_read", "call files_write", "A", "B", "la"]
    message = {"role": "assistant", "content": "Next"}
    assert shown(called("read", output="A"), message, called("read")) == [
        *("call files_read", "A", "assistant: Next", "call files_read", "[no output]"),
    ]


@pytest.mark.parametrize(
    "error",
    [
        "broken",
        {"type": "http_error", "code": 1, "message": "broken"},
        {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "broken"}]},
    ],
)
def test_error_of_a_call_is_its_output(error: Any) -> None:
    assert shown(called("read", output=None, error=error)) == ["call files_read", "broken"]


def test_refused_and_unanswered_calls() -> None:
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "files", "name": "read"}
    refusal = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False}
    listing = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "files", "tools": []}
    question = {"role": "user", "content": "And?"}
    assert shown(listing, request, refusal) == ["call files_read", "The user did not approve this call."]
    assert shown(listing, request, question) == ["user: And?"]
    assert mcp_items.listed_servers([listing, request]) == {"files"}


def test_approved_call_is_made_once() -> None:
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "files", "name": "read"}
    approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    (call,) = mcp_items.approved_calls([request, approval, approval])
    assert (call.index, call.server, call.name, call.arguments) == (1, "files", "read", "{}")
    done = called("read", approval_request_id="mcpr_1", output="A")
    assert mcp_items.approved_calls([request, approval, done]) == ()
    items = mcp_items.with_calls([request, approval], {1: done})
    chat = parse(parsing.encode({"model": "m", "input": items}))
    assert [type(part) for message in chat.messages for part in message.parts] == [ToolCall, ToolResult]
