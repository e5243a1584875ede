"""Reasoning parameters for each generation of Anthropic's models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sixfold.clients.chat.messages import Messages
from sixfold.core.gateway.chat import ChatMessage, ChatRequest, TextPart

BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 4096}}
EFFORT = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}


def request_body(model: str, effort: str = "") -> dict[str, Any]:
    request = ChatRequest(
        (ChatMessage("user", (TextPart("Hello"),)),), max_tokens=100, temperature=0.5, effort=effort
    )
    return json.loads(Messages().build_request(request, model, stream=False))


@pytest.mark.parametrize(
    ("model", "fields", "chance"),
    [
        ("claude-3-7-sonnet-latest", BUDGET, True),
        ("claude-opus-4-20250514", BUDGET, True),
        ("claude-sonnet-4-5-20250929", BUDGET, True),
        ("claude-haiku-4-5", BUDGET, True),
        ("glm-5", BUDGET, True),
        ("claude-sonnet-4-6", EFFORT, True),
        ("claude-opus-4.6", EFFORT, True),
        ("claude-opus-4-7", EFFORT, False),
        ("anthropic.claude-opus-4-8-v1:0", EFFORT, False),
        ("claude-opus-4-10", EFFORT, False),
        ("claude-sonnet-5", EFFORT, False),
        ("claude-fable-5-1", EFFORT, False),
    ],
)
def test_reasoning_and_temperature_fit_each_model_generation(
    model: str, fields: dict[str, Any], chance: bool
) -> None:
    thoughtful = request_body(model, "medium")
    assert {name: thoughtful.get(name) for name in fields} == fields
    assert ("output_config" in thoughtful) is ("output_config" in fields)
    assert "temperature" not in thoughtful
    assert thoughtful["max_tokens"] == 100 + 4096
    plain = request_body(model)
    assert plain.get("temperature") == (0.5 if chance else None)
    assert (plain["max_tokens"], "thinking" in plain, "output_config" in plain) == (100, False, False)


@pytest.mark.parametrize(
    ("effort", "message"),
    [("minimal", "low"), ("low", "low"), ("high", "high"), ("xhigh", "high"), ("max", "max")],
)
def test_unsupported_effort_becomes_the_nearest_supported(effort: str, message: str) -> None:
    assert request_body("claude-sonnet-5", effort)["output_config"] == {"effort": message}


@pytest.mark.parametrize("effort", ["", "none"])
def test_effort_none_requests_no_reasoning(effort: str) -> None:
    assert not {"thinking", "output_config"} & request_body("claude-sonnet-5", effort).keys()
