"""Charges for a provider's tools: web searches in chats, and code execution in messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import bearer
from tests.api.gateway import Gateway, running_gateway

RUN = {"type": "code_execution_20250825", "name": "code_execution"}
USER = {"role": "user", "content": "say 2 words"}


@pytest.mark.parametrize("stream", [False, True])
async def test_search_of_a_chat_is_charged(gateway: Gateway, stream: bool) -> None:
    plain = await gateway.chat("say 2 words", max_tokens=20)
    searched = await gateway.chat("say 2 words", max_tokens=20, web_search_options={}, stream=stream)
    assert (plain.status_code, searched.status_code) == (200, 200)
    after, before = [call["cost_usd"] for call in (await gateway.settled(2))[:2]]
    assert round(float(after) - float(before), 6) == 0.025
    assert await gateway.app.faults() == ()


@pytest.mark.parametrize("stream", [False, True])
async def test_code_of_a_message_is_charged(gateway: Gateway, stream: bool) -> None:
    gateway.anth.stored_fields = {"container": {"id": "container_1", "expires_at": "2027-01-01T00:00:00Z"}}
    body: dict[str, Any] = {"model": "anth/small", "max_tokens": 20, "messages": [USER], "stream": stream}
    for tools in ([], [RUN]):
        response = await gateway.app.client.post(
            "/v1/messages", json={**body, "tools": tools}, headers=gateway.headers
        )
        assert response.status_code == 200
    after = (await gateway.settled(2))[0]
    assert "code_executions" in str(after["charge"])
    assert await gateway.app.faults() == ()


async def test_output_without_a_limit_is_held_or_limited(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as first:
        row = {"kind": "openai", "api_key": "k", "base_url": first.acme.url, "models": ["gpt-5-mini"]}
        prices = {"far/gpt-5-mini": {"input_per_million_usd": "1", "output_per_million_usd": "2"}}
        async with running_gateway(tmp_path / "b", upstreams={"far": row}, prices=prices) as gateway:
            assert (await gateway.chat(model="far/gpt-5-mini")).status_code == 200
            assert "max_completion_tokens" not in first.acme.requests[-1].document
            assert float((await gateway.settled())[0]["held_usd"]) > 128_000 * 2 / 1_000_000
            # What 4,096 tokens cost, which the budget still has.
            poor = bearer(await gateway.app.limited_key(KeyLimits(budget_day=10_000)))
            body = {"model": "far/gpt-5-mini", "messages": [USER]}
            response = await gateway.app.client.post("/v1/chat/completions", json=body, headers=poor)
            assert response.status_code == 200
            assert first.acme.requests[-1].document["max_completion_tokens"] == 4096
            assert await gateway.app.faults() == ()


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"tools": [{"type": "builtin_function", "function": {"name": "$web"}}]}),
        ("/v1/chat/completions", {"search_parameters": {"mode": "on"}}),
        ("/v1/messages", {"max_tokens": 9, "speed": "fast"}),
    ],
)
async def test_provider_tool_without_a_price_is_rejected(
    gateway: Gateway, path: str, fields: dict[str, Any]
) -> None:
    model, server = ("acme/small", gateway.acme) if "chat" in path else ("anth/small", gateway.anth)
    body = {"model": model, "messages": [USER], **fields}
    response = await gateway.app.client.post(path, json=body, headers=gateway.headers)
    assert (response.status_code, server.requests) == (400, [])
    assert "no price" in response.json()["error"]["message"]
