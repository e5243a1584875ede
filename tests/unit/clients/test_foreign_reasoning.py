"""Reasoning from another protocol's server is not sent to Anthropic's, which would reject it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sixfold.clients.chat.messages import Messages

QUESTION: dict[str, Any] = {"role": "user", "content": "hi"}
CALL: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "n", "input": {"thinking": 1}}
TOOL_RESULT: dict[str, Any] = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}
TEXT: dict[str, Any] = {"type": "text", "text": "so"}


def thought(seal: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", "signature": seal}


def assistant_message(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def pass_on(*messages: Any) -> dict[str, Any]:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    body = json.dumps({"model": "both", "thinking": thinking, "messages": messages})
    return json.loads(Messages().rewrite_request(body.encode(), "small"))


@pytest.mark.parametrize("seal", ["", "reasoning", "reasoning_content"])
def test_foreign_reasoning_is_removed_and_own_is_kept(seal: str) -> None:
    result = pass_on(QUESTION, assistant_message(thought(seal), thought("EqRk"), TEXT), QUESTION)
    assert result["messages"] == [QUESTION, assistant_message(thought("EqRk"), TEXT), QUESTION]
    assert (result["model"], result["thinking"]["type"]) == ("small", "enabled")


def test_turn_with_only_foreign_reasoning_is_removed() -> None:
    assert pass_on(QUESTION, assistant_message(thought("")), QUESTION)["messages"] == [QUESTION, QUESTION]


def test_tool_turn_keeps_thinking_only_with_its_own_reasoning() -> None:
    result = pass_on(QUESTION, assistant_message(thought("reasoning"), CALL), TOOL_RESULT)
    assert result["messages"] == [QUESTION, assistant_message(CALL), TOOL_RESULT]
    assert "thinking" not in result
    assert "thinking" in pass_on(QUESTION, assistant_message(thought("EqRk"), thought(""), CALL), TOOL_RESULT)
    assert "thinking" in pass_on(
        QUESTION, assistant_message(thought(""), CALL), TOOL_RESULT, assistant_message(TEXT), QUESTION
    )


def test_reasoning_of_the_same_provider_is_unchanged() -> None:
    block = b'{"signature":"Eq\\u0052k", "type":"thinking","thinking":"\\u00e9"}'
    foreign = b'{"type":"thinking","thinking":"","signature":""}'
    body = b'{"model":"m","messages":[{"role": "assistant",  "content": [%s]}]}'
    assert body[13:] % block in Messages().rewrite_request(body % block, "small")
    mixed = Messages().rewrite_request(body % (block + b" , " + foreign), "small")
    assert block in mixed
    assert foreign not in mixed


def test_malformed_messages_are_forwarded_unchanged() -> None:
    odd = [{"role": "assistant", "content": [{"type": "thinking", "thinking": 5}]}, 7]
    assert pass_on(*odd)["messages"] == odd
