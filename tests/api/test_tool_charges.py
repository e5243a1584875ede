"""Charges for what a provider does besides answering: searches of a chat, and code that a message ran."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.gateway import Gateway, running_gateway

RUN = {"type": "code_execution_20250825", "name": "code_execution"}
USER = {"role": "user", "content": "say 2 words"}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path) as found:
        yield found


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
    gateway.anth.stored = {"container": {"id": "container_1", "expires_at": "2027-01-01T00:00:00Z"}}
    body: dict[str, Any] = {"model": "anth/small", "max_tokens": 20, "messages": [USER], "stream": stream}
    for tools in ([], [RUN]):
        answer = await gateway.app.client.post(
            "/v1/messages", json={**body, "tools": tools}, headers=gateway.headers
        )
        assert answer.status_code == 200
    after = (await gateway.settled(2))[0]
    assert "code_executions" in str(after["charge"])
    assert await gateway.app.faults() == ()


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"tools": [{"type": "builtin_function", "function": {"name": "$web"}}]}),
        ("/v1/chat/completions", {"search_parameters": {"mode": "on"}}),
        ("/v1/messages", {"max_tokens": 9, "speed": "fast"}),
    ],
)
async def test_what_has_no_price_is_refused(gateway: Gateway, path: str, fields: dict[str, Any]) -> None:
    model, server = ("acme/small", gateway.acme) if "chat" in path else ("anth/small", gateway.anth)
    body = {"model": model, "messages": [USER], **fields}
    answer = await gateway.app.client.post(path, json=body, headers=gateway.headers)
    assert (answer.status_code, server.seen) == (400, [])
    assert "no price" in answer.json()["error"]["message"]
