"""Calls whose caller disconnects, or that last longer than their time limit."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from sixfold import errors
from sixfold.core.accounts import connections, keys
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway import request_log
from sixfold.core.gateway.attempts import FailoverClient
from sixfold.core.money import format_usd
from tests.api.app_fixture import bearer
from tests.api.gateway import PRICE, Gateway, leave_stream, listening, running_gateway


async def started_chat(gateway: Gateway, *, stream: bool) -> asyncio.Task[httpx.Response]:
    """Return a chat that has a hold and waits for the model server."""
    gateway.acme.mode = "wait"
    chat = asyncio.create_task(gateway.chat(stream=stream, max_tokens=100))
    await gateway.acme.request_event.wait()
    async with asyncio.timeout(60):
        while (await gateway.app.balance())[1] == "0.00":  # noqa: ASYNC110 - a statement sets no event
            await asyncio.sleep(0.005)
    return chat


@pytest.mark.parametrize("stream", [False, True])
async def test_call_that_outlasts_its_hold_is_charged_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    """Calls of several attempts, and streams that are read slowly, may outlast their hold."""
    monkeypatch.setattr(request_log, "CALL_US", -(10**12))
    async with running_gateway(tmp_path) as gateway:
        asking = await started_chat(gateway, stream=stream)
        for _ in range(2):
            await gateway.app.server.gateway_runtime.gateway.sweep()
        gateway.acme.go_on.set()
        assert "word" in (await asking).text
        call = (await gateway.settled())[0]
        assert (call["status"], float(call["cost_usd"]) > 0) == ("succeeded", True)
        await gateway.app.until(posted=f"{5 - float(call['cost_usd']):.6f}".rstrip("0"), held="0.00")
        assert not gateway.app.server.gateway_runtime.gateway._billing.active
        assert await gateway.app.faults() == ()


async def test_disconnect_is_charged_for_delivered_tokens(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        gateway.acme.mode = "trickle"
        await leave_stream(gateway, "say 40 words")
        [call] = await gateway.settled()
        assert call["status"] == "left"
        assert 1 <= call["usage"]["output_tokens"] < 40
        assert 0 < float(call["cost_usd"]) < 0.04
        await gateway.app.until(posted=f"{5 - float(call['cost_usd']):.6f}".rstrip("0"), held="0.00")
        assert await gateway.app.faults() == ()


async def test_part_before_the_limit_of_a_converted_stream_is_charged(
    either: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a prompt that requests too many parts would make all of them free."""
    monkeypatch.setattr(chats, "MAX_RESPONSE_CHARS", 60)
    async with running_gateway(either) as gateway:
        body = {"model": "acme/small", "max_tokens": 100, "stream": True}
        body["messages"] = [{"role": "user", "content": "say 40 words"}]
        response = await gateway.app.client.post("/v1/messages", json=body, headers=gateway.headers)
        assert "more than 60 characters of text; the part before is charged" in response.text
        [call] = await gateway.settled()
        assert call["status"] == "left"
        # The server may have sent all words at once, of which the caller received only the first ones.
        assert 1 <= call["usage"]["output_tokens"] <= 40
        assert response.text.count("content_block_delta") < 40
        posted = 5_000_000 - round(float(call["cost_usd"]) * 1_000_000)
        await gateway.app.until(posted=format_usd(posted), held="0.00")
        assert posted < 5_000_000
        assert await gateway.app.faults() == ()


@pytest.mark.parametrize("stream", [False, True])
async def test_database_failing_at_the_end_of_a_call_settles_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    """A response that was delivered is charged, and one that was replaced by an error is not."""
    async with running_gateway(tmp_path) as gateway:
        asking = await started_chat(gateway, stream=stream)
        with monkeypatch.context() as patch:
            patch.setattr(gateway.app.server.gateway_runtime.gateway._billing._database, "write", _failing)
            gateway.acme.go_on.set()
            response = await asking
        assert response.status_code == (200 if stream else 503)
        assert response.text.endswith("[DONE]\n\n") == stream
        call = (await gateway.settled())[0]
        counted = gateway.app.server.gateway_runtime.gateway.counts.totals
        assert [state for _, state in counted] == [call["status"]]
        assert (call["status"], float(call["cost_usd"]) > 0) == (
            ("succeeded" if stream else "failed"),
            stream,
        )
        posted = 5_000_000 - round(float(call["cost_usd"]) * 1_000_000)
        await gateway.app.until(posted=format_usd(posted), held="0.00")
        assert await gateway.app.faults() == ()


async def test_rate_that_cannot_be_counted_does_not_fail_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_gateway(tmp_path) as gateway:
        rates = gateway.app.server.gateway_runtime.gateway.token_rates
        monkeypatch.setattr(rates, "add", _failing)
        key = await gateway.app.limited_key(KeyLimits(tpm=10_000))
        body = {"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}]}
        response = await gateway.app.client.post("/v1/chat/completions", json=body, headers=bearer(key))
        assert response.status_code == 200
        posted = 5_000_000 - round(float(response.headers["x-sixfold-cost"]) * 1_000_000)
        await gateway.app.until(posted=format_usd(posted), held="0.00")


async def _failing(*_: Any, **__: Any) -> None:
    raise errors.StoreFailed


# Half a second of audio, an image, and the arguments of a function; each with its tokens, rounded up.
AUDIO = {"audio": {"data": base64.b64encode(bytes(24_000)).decode()}}, 11
IMAGE = {"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR"}}]}, 1290
FUNCTION = {"function_call": {"arguments": "x" * 35}}, 10


@pytest.mark.parametrize(("delta", "tokens"), [AUDIO, IMAGE, FUNCTION], ids=["audio", "image", "function"])
async def test_delivered_content_without_a_text_is_charged(
    tmp_path: Path, delta: dict[str, Any], tokens: int
) -> None:
    chunk = {"choices": [{"index": 0, "delta": delta}]}

    async def speak(_scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
        await send({"type": "http.response.body", "body": data, "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async with listening(speak) as origin:
        row = {"kind": "openai", "base_url": f"{origin}/v1", "api_key": "k", "models": ["small"]}
        rows, prices = {"say": row}, {"say/small": PRICE}
        async with (
            running_gateway(tmp_path, upstreams=rows, prices=prices, aliases={}) as gateway,
            listening(gateway.app.asgi) as own,
            httpx.AsyncClient() as client,
        ):
            body = {"model": "say/small", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
            async with client.stream(
                "POST", f"{own}/v1/chat/completions", json=body, headers=gateway.headers
            ) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        break
            [call] = await gateway.settled()
            assert (call["status"], call["usage"]["output_tokens"]) == ("left", tokens)
            assert await gateway.app.faults() == ()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_revoked_between_servers_reaches_no_other(
    either: Path, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    """A call may wait for minutes for another server, a GPU or the hook of a guardrail."""
    monkeypatch.setattr(connections, "LATE_SECONDS", 0)
    async with running_gateway(either) as gateway:
        database, attempt = gateway.app.database, FailoverClient._attempt
        key = await database.write(keys.create(gateway.app.account.id))
        gateway.acme.mode = "fail"

        async def revoke(*arguments: Any) -> Any:
            result = await attempt(*arguments)
            await database.write(keys.revoke(key.id))
            return result

        monkeypatch.setattr(FailoverClient, "_attempt", revoke)
        body = {"model": "both", "messages": [{"role": "user", "content": "say 3 words"}], "stream": stream}
        response = await gateway.app.client.post(
            "/v1/chat/completions", json=body, headers=bearer(key.api_key)
        )
        assert (response.status_code, len(gateway.acme.requests)) == (401, 1)
        assert not gateway.anth.requests
        assert (await gateway.last_call())["status"] == "failed"
        assert await gateway.app.balance() == ("5.00", "0.00")
