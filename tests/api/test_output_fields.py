"""Responses that cost more than is held: limits under other names, and callers that disconnect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.gateway import Gateway, listening, running_gateway

# Fields by which servers give longer answers than those that are held.
HIDDEN: dict[str, Any] = {
    "Max_Tokens": 9000,
    "MAX_COMPLETION_TOKENS": 9000,
    "max_to\u212aens": 9000,
    "N": 50,
    "n_predict": 9000,
    "n_cmpl": 50,
    "Service_Tier": "priority",
}


@pytest.mark.parametrize("path", ["chat/completions", "completions", "messages", "responses"])
async def test_limits_under_other_names_are_not_passed_on(tmp_path: Path, path: str) -> None:
    messages = [{"role": "user", "content": "say 3 words"}]
    limit = "max_output_tokens" if path == "responses" else "max_tokens"
    model = "anth/small" if path == "messages" else "acme/small"
    question = {"responses": {"input": "x"}, "completions": {"prompt": "x"}}.get(path, {"messages": messages})
    body = {"model": model, limit: 5, **question, **HIDDEN}
    async with running_gateway(tmp_path) as gateway:
        response = await gateway.app.client.post(f"/v1/{path}", json=body, headers=gateway.headers)
        assert response.status_code == 200, response.text
        (request,) = gateway.acme.requests + gateway.anth.requests
        assert request.document.get(limit, request.document.get("max_tokens")) == 5
        assert not request.document.keys() & HIDDEN.keys()


async def leave_at(gateway: Gateway, mark: str, *, go_on: bool) -> None:
    """Request a stream and disconnect at the first line with a mark; then let the server continue."""
    body = {"model": "acme/small", "stream": True, "messages": [{"role": "user", "content": "say 8 words"}]}
    async with listening(gateway.app.asgi) as origin:
        async with (
            httpx.AsyncClient() as client,
            client.stream(
                "POST", f"{origin}/v1/chat/completions", json=body, headers=gateway.headers
            ) as sent,
        ):
            async for line in sent.aiter_lines():
                if mark in line:
                    break
        if go_on:
            gateway.acme.go_on.set()
        await gateway.settled()


# By the text at which the caller disconnects: the number of withheld events, and the range of charged tokens.
LEFT = {'"stop"': (2, 508, 508), "word": (9, 501, 502)}


@pytest.mark.parametrize("mark", LEFT)
async def test_disconnect_is_charged_for_reasoning_tokens(tmp_path: Path, mark: str) -> None:
    def report(usage: dict[str, Any]) -> dict[str, Any]:
        details = {"reasoning_tokens": 500}
        return usage | {"completion_tokens": 508, "completion_tokens_details": details}

    async with running_gateway(tmp_path) as gateway:
        gateway.acme.report, gateway.acme.mode = report, "trickle"
        gateway.acme.withheld_events, least, most = LEFT[mark]
        await leave_at(gateway, mark, go_on=True)
        [call] = await gateway.calls()
        assert call["status"] == "left"
        assert least <= call["usage"]["output_tokens"] <= most, call
        assert await gateway.app.faults() == ()


async def test_disconnect_from_a_stalled_server_is_charged_as_sent(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        gateway.acme.mode = "trickle"
        await leave_at(gateway, "word", go_on=False)
        [call] = await gateway.calls()
        assert (call["status"], call["usage"]["counted_by"]) == ("left", "estimate")
        assert 1 <= call["usage"]["output_tokens"] < 8
        assert await gateway.app.faults() == ()
