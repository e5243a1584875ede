"""Charges of gateway calls: failures, disconnects, budgets, limits and crashes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from sixfold.core.accounts import keys, ledger, ledger_queries
from sixfold.core.accounts.authentication import key_changes
from sixfold.core.accounts.keys import KeyLimits, Principal
from sixfold.core.clock import DAY_US
from sixfold.core.gateway import billing, request_log, response_stream
from sixfold.core.gateway.chat import ChatMessage, ChatRequest, MessageEnd, TextDelta, TextPart
from sixfold.core.gateway.request_log import CallRecord
from tests.api.app_fixture import bearer
from tests.api.gateway import PRICE, Gateway, listening, running_gateway
from tests.api.test_pages import signed_in
from tests.fakes.chat_servers import model_server
from tests.harness.waiting import wait_until

STREAM: dict[str, Any] = {"stream": True}
UPSTREAM_FAULTS = ["fail", "limit", "key", "garbage", "truncate", "hang"]


async def whole_and_streamed(gateway: Gateway, **more: Any) -> list[httpx.Response]:
    return [await gateway.chat(**more), await gateway.chat(**more, **STREAM)]


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_streamed_and_whole_answers_have_the_same_cost(tmp_path: Path, model: str) -> None:
    async with running_gateway(tmp_path) as gateway:
        for answer in await whole_and_streamed(gateway, model=model, text="say 20 words"):
            assert answer.status_code == 200
        first, second = await gateway.settled(2)
        assert first["cost_usd"] == second["cost_usd"]
        assert first["usage"] == second["usage"]
        micros = 2 * round(float(first["cost_usd"]) * 1_000_000)
        # 100 USD a million of input, 50 of cached, 1000 of output
        response = first["usage"]
        plain = response["input_tokens"] - response["cached_tokens"]
        assert micros == 2 * (plain * 100 + response["cached_tokens"] * 50 + 20 * 1000)
        posted, held = await gateway.app.balance()
        assert (round((5 - float(posted)) * 1_000_000), held) == (micros, "0.00")
        assert await gateway.app.faults() == ()


async def test_chat_without_limit_is_held_per_answer(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, max_tokens=100) as gateway:
        held: list[float] = []
        for responses in (1, 4):
            assert (await gateway.chat("say 1 words", n=responses)).status_code == 200
            held.append(float((await gateway.settled(len(held) + 1))[0]["held_usd"]))
        assert held[1] == pytest.approx(4 * held[0], rel=0.05)


@pytest.mark.parametrize("mode", UPSTREAM_FAULTS)
async def test_failed_chat_is_free(tmp_path: Path, mode: str) -> None:
    async with running_gateway(tmp_path, timeout_seconds=0.2) as gateway:
        gateway.acme.mode = mode
        full_response = await gateway.chat()
        assert full_response.status_code == (429 if mode == "limit" else 502)
        streamed = await gateway.chat(**STREAM)
        broken_midway = mode == "truncate"
        if broken_midway:
            assert streamed.status_code == 200
            assert '"error"' in streamed.text
            assert "[DONE]" not in streamed.text
        else:
            assert streamed.status_code == full_response.status_code
        calls = await gateway.settled(2)
        assert {call["status"] for call in calls} == {"failed"}
        assert await gateway.app.balance() == ("5.00", "0.00")
        assert await gateway.app.faults() == ()


async def test_servers_skipped_as_busy_are_reported_as_busy(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        gateway.acme.mode, gateway.anth.mode = "limit", "fail"
        messages = [await gateway.chat() for _ in range(6)]
        assert len(gateway.acme.requests) == 6
        for response in messages:
            assert (response.status_code, response.json()["error"]["code"]) == (429, "rate_limited")
            assert int(response.headers["Retry-After"]) >= 1
        for _ in range(5):
            assert (await gateway.chat(model="both")).status_code == 502
        assert len(gateway.anth.requests) == 5
        # The router tries the server whose circuit closes first.
        mixed = await gateway.chat(model="both")
        outcome = (mixed.status_code, len(gateway.acme.requests), len(gateway.anth.requests))
        assert outcome in {(429, 7, 5), (502, 6, 6)}
        assert int(mixed.headers["Retry-After"]) >= 1
        assert await gateway.app.balance() == ("5.00", "0.00")


async def test_stalled_stream_times_out_and_is_free(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, timeout_seconds=0.2) as gateway:
        gateway.acme.mode = "trickle"
        streamed = await gateway.chat(**STREAM)
        assert '"error"' in streamed.text
        assert (await gateway.settled())[0]["status"] == "failed"
        assert await gateway.app.balance() == ("5.00", "0.00")


async def test_server_failing_under_load_leaves_correct_sums(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, timeout_seconds=1, retries=0) as gateway:
        wrong = ["fail", "hang", "truncate", "trickle"]
        gateway.acme.modes = ["well"] * 6 + [mode for each in wrong for mode in (each, "well", "well")]
        requests = [gateway.chat(text=f"say {3 + at} words", max_tokens=30, **STREAM) for at in range(18)]
        answers = await asyncio.gather(*requests)
        calls = await gateway.settled(len(answers))
        paid = [call for call in calls if call["status"] == "succeeded"]
        failed = [call for call in calls if call["status"] == "failed"]
        assert paid
        assert len(failed) >= len(wrong)
        assert len(paid) + len(failed) == len(answers)
        assert {call["cost_usd"] for call in failed} == {"0.00"}
        micros = sum(round(float(call["cost_usd"]) * 1_000_000) for call in paid)
        posted, held = await gateway.app.balance()
        assert (round((5 - float(posted)) * 1_000_000), held) == (micros, "0.00")
        assert await gateway.app.faults() == ()


async def test_an_answer_without_usage_is_estimated(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        gateway.acme.mode = "nousage"
        await whole_and_streamed(gateway, text="say 20 words")
        for call in await gateway.settled(2):
            assert call["usage"]["counted_by"] == "estimate"
            assert 15 <= call["usage"]["output_tokens"] <= 40
        await signed_in(gateway.app, gateway.app.operator)
        page = (await gateway.app.client.get("/admin/requests")).text
        assert page.count("USD, tokens estimated</p>") == 2


async def test_unread_stream_is_free_and_blames_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leave(stream: response_stream.ResponseStream) -> AsyncIterator[bytes]:
        await stream.abandon()
        yield b""

    monkeypatch.setattr(response_stream.ResponseStream, "blocks", leave)
    async with running_gateway(tmp_path) as gateway:
        await gateway.chat(**STREAM)
        [call] = await gateway.settled()
        assert (call["status"], call["cost_usd"]) == ("left", "0.00")
        assert "before the response began" in call["error"]
        assert gateway.app.server.gateway_runtime.gateway.health.get("acme/small").failures == 0
        assert await gateway.app.faults() == ()


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
@pytest.mark.parametrize("delayed", ["caller", "server"])
async def test_a_stream_beyond_its_time_is_charged_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, delayed: str
) -> None:
    async with running_gateway(tmp_path) as gateway:
        server = gateway.acme if model == "acme/small" else gateway.anth
        server.mode = "trickle"
        reads = itertools.count(1)

        def perf_counter() -> float:
            """Jump after the first block: while the caller takes it, or until the server sends the next."""
            read = next(reads)
            if read == 2:
                server.go_on.set()
            return time.perf_counter() + 4000 * (read >= (2 if delayed == "caller" else 3))

        monkeypatch.setattr(response_stream, "time", SimpleNamespace(perf_counter=perf_counter))
        response = await gateway.chat(model=model, text="say 20 words", max_tokens=30, **STREAM)
        [call] = await gateway.settled()
        late = "did not read the response in time" if delayed == "caller" else "did not finish in time"
        assert late in response.text
        assert (call["status"], float(call["cost_usd"]) > 0) == ("left", True)
        assert late in call["error"]
        assert await gateway.pending() == 0
        assert await gateway.app.faults() == ()


async def test_disconnect_before_the_first_token_is_free(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, keep_alive_seconds=0.02) as gateway,
        listening(gateway.app.asgi) as origin,
    ):
        gateway.acme.mode = "slow"
        body = {"model": "acme/small", "messages": [{"role": "user", "content": "Hello"}], **STREAM}
        async with (
            httpx.AsyncClient() as client,
            client.stream(
                "POST", f"{origin}/v1/chat/completions", json=body, headers=gateway.headers
            ) as response,
        ):
            async for line in response.aiter_lines():
                assert line == ": keep-alive"
                break
        [call] = await gateway.settled()
        assert (call["status"], call["cost_usd"]) == ("failed", "0.00")
        await gateway.app.until("5.00", "0.00")


async def test_keep_alives_are_sent_before_the_first_token(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, keep_alive_seconds=0.02) as gateway:
        gateway.acme.mode = "slow"
        asking = asyncio.create_task(gateway.chat(**STREAM))
        await gateway.acme.request_event.wait()
        await asyncio.sleep(0.05)
        gateway.acme.go_on.set()
        text = (await asking).text
        assert text.startswith(": keep-alive\n\n")
        assert text.rstrip().endswith("data: [DONE]")


async def test_chat_without_credit_is_402_and_not_sent(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        body = {"model": "acme/small", "messages": [{"role": "user", "content": "Hello"}]}
        response = await gateway.app.client.post(
            "/v1/chat/completions", json=body, headers=bearer(gateway.app.poor)
        )
        assert (response.status_code, response.json()["error"]["code"]) == (402, "insufficient_credits")
        body["messages"] = []
        response = await gateway.app.client.post(
            "/v1/chat/completions", json=body, headers=bearer(gateway.app.poor)
        )
        assert response.status_code == 400
        assert not gateway.acme.requests


@pytest.mark.parametrize("stream", [False, True])
async def test_balance_spent_during_a_call_withholds_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    """The account had enough credit at the request, so the response did not wait for the hold."""
    monkeypatch.setattr(billing, "DEFER_SECONDS", 60)
    async with running_gateway(tmp_path) as gateway:
        gateway.acme.mode = "wait"
        asking = asyncio.create_task(gateway.chat(stream=stream, max_tokens=100))
        await gateway.acme.request_event.wait()
        assert await gateway.app.balance() == ("5.00", "0.00")
        spending = ledger.deposit(gateway.app.account.id, -5_000_000, ledger.LedgerEntry("withdrawal", "x"))
        await gateway.app.database.write(spending)
        gateway.acme.go_on.set()
        response = await asking
        assert (response.status_code, response.json()["error"]["code"]) == (402, "insufficient_credits")
        assert "word" not in response.text
        assert await gateway.app.balance() == ("0.00", "0.00")
        assert await gateway.calls() == []
        assert await gateway.app.faults() == ()


async def test_long_call_is_held_and_logged_while_it_runs(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        gateway.acme.mode = "wait"
        asking = asyncio.create_task(gateway.chat(max_tokens=100))
        await gateway.acme.request_event.wait()
        calls = await wait_until(lambda: gateway.calls())
        assert [call["status"] for call in calls] == ["running"]
        held = (await gateway.app.balance())[1]
        assert float(held) > 0.1
        gateway.acme.go_on.set()
        assert (await asking).status_code == 200
        assert [call["status"] for call in await gateway.calls()] == ["succeeded"]
        assert (await gateway.app.balance())[1] == "0.00"


async def test_invalid_token_and_choice_counts_are_rejected(tmp_path: Path) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("chat/completions", {"n": -1000}),
        ("chat/completions", {"n": 0}),
        ("chat/completions", {"n": 10**9, "max_tokens": 1}),
        ("chat/completions", {"max_tokens": 10**30}),
        ("chat/completions", {"max_completion_tokens": 5, "max_tokens": -5}),
        ("responses", {"max_output_tokens": -100_000}),
        ("responses", {"max_output_tokens": 10**20}),
        ("messages", {"max_tokens": 10**20}),
    ]
    messages = [{"role": "user", "content": "say 3 words"}]
    async with running_gateway(tmp_path) as gateway:
        for path, request in wrong:
            body = {"model": "acme/small", "messages": messages, "input": "say 3 words", **request}
            response = await gateway.app.client.post(f"/v1/{path}", json=body, headers=gateway.headers)
            assert response.status_code == 400, (request, response.text)
        assert not gateway.acme.requests
        # A server may use either field, so the hold is for the larger one.
        both = await gateway.chat(max_completion_tokens=1, max_tokens=100)
        assert both.headers["x-sixfold-cost"] == (await gateway.chat()).headers["x-sixfold-cost"]


async def test_concurrent_chats_beyond_the_balance_are_402(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        # No call ends, and none releases its hold, before all have been accepted or refused.
        gateway.acme.mode = "wait"
        calls = [asyncio.create_task(gateway.chat(max_tokens=900, text="Hello")) for _ in range(10)]
        await wait_until(lambda: len(gateway.acme.requests) + sum(call.done() for call in calls) == 10)
        # The account has 5 USD, and each call holds between 0.90 and 1 USD.
        assert len(gateway.acme.requests) == 5
        assert [call.result().status_code for call in calls if call.done()] == [402] * 5
        gateway.acme.go_on.set()
        responses = await asyncio.gather(*calls)
        assert sorted(response.status_code for response in responses) == [200] * 5 + [402] * 5
        assert await gateway.app.faults() == ()


async def test_budget_applies_to_every_protocol(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        key = bearer(await gateway.app.limited_key(KeyLimits(budget_day=60_000)))
        body: Any = {
            "model": "acme/small",
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 50,
        }
        over: Any = {**body, "max_tokens": 5000}
        response = await gateway.app.client.post("/v1/chat/completions", json=over, headers=key)
        assert (response.status_code, response.json()["error"]["code"]) == (429, "budget_exceeded")
        assert int(response.headers["retry-after"]) > 0
        for _ in range(3):
            response = await gateway.app.client.post("/v1/chat/completions", json=body, headers=key)
            assert response.status_code == 200
        run = {"model": "ra1", "input": {"prompt": "a dot"}}
        assert (
            await gateway.app.client.post("/api/containers/run", json=run, headers=key)
        ).status_code == 200
        spent = await gateway.app.client.post("/api/containers/run", json=run, headers=key)
        assert (spent.status_code, spent.json()["code"]) == (429, "budget_exceeded")
        free = bearer(gateway.app.key)
        assert (
            await gateway.app.client.post("/api/containers/run", json=run, headers=free)
        ).status_code == 200
        assert await gateway.app.faults() == ()


async def test_keys_have_request_and_token_rate_limits(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        key = bearer(await gateway.app.limited_key(KeyLimits(rpm=2)))
        codes = [(await gateway.app.client.get("/v1/models", headers=key)).status_code for _ in range(3)]
        assert codes == [200, 200, 429]
        other_face = await gateway.app.client.get("/api/account", headers=key)
        assert other_face.status_code == 429
        assert other_face.headers["retry-after"]
        key = bearer(await gateway.app.limited_key(KeyLimits(tpm=60)))
        body = {"model": "acme/small", "messages": [{"role": "user", "content": "say 50 words"}]}
        first = await gateway.app.client.post("/v1/chat/completions", json=body, headers=key)
        second = await gateway.app.client.post("/v1/chat/completions", json=body, headers=key)
        assert (first.status_code, second.status_code) == (200, 429)
        assert second.json()["error"]["code"] == "rate_limited"
        assert second.json()["error"]["message"] == "This key is limited to 60 tokens per minute"


async def test_rolled_keys_share_the_rates_of_the_first(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        app = gateway.app
        body = {"model": "acme/small", "messages": [{"role": "user", "content": "say 50 words"}]}

        async def roll(scope: KeyLimits) -> list[dict[str, str]]:
            """Return the headers of a key that was rolled twice."""
            first = await app.database.write(keys.create(app.account.id, scope))
            second = await app.database.write(key_changes.roll(app.account.id, first.id, keep_us=DAY_US))
            third = await app.database.write(key_changes.roll(app.account.id, second.id, keep_us=DAY_US))
            return [bearer(key.api_key) for key in (first, second, third)]

        requests = [await app.client.get("/v1/models", headers=key) for key in await roll(KeyLimits(rpm=2))]
        assert [response.status_code for response in requests] == [200, 200, 429]
        chats = [
            await app.client.post("/v1/chat/completions", json=body, headers=key)
            for key in await roll(KeyLimits(tpm=60))
        ]
        assert [response.status_code for response in chats] == [200, 429, 429]


async def test_limited_key_uses_its_services_only(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        body = {"model": "acme/small", "messages": [{"role": "user", "content": "Hello"}]}
        for services, status in ((("ra1",), 403), (("chat",), 200), (("acme/small",), 200)):
            key = bearer(await gateway.app.limited_key(KeyLimits(services=services)))
            response = await gateway.app.client.post("/v1/chat/completions", json=body, headers=key)
            assert response.status_code == status
        key = bearer(await gateway.app.limited_key(KeyLimits(read_only=True)))
        assert (await gateway.app.client.get("/v1/models", headers=key)).status_code == 403


async def test_key_sees_only_the_models_it_may_use(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:

        async def seen(scope: KeyLimits) -> set[str]:
            key = bearer(await gateway.app.limited_key(scope))
            items = (await gateway.app.client.get("/v1/models", headers=key)).json()["data"]
            for name in ("acme/small", "ra2"):
                model = await gateway.app.client.get(f"/v1/models/{name}", headers=key)
                assert (model.status_code == 200) is (name in {row["id"] for row in items})
            return {row["id"] for row in items}

        everything, passed_on = await seen(KeyLimits()), await seen(KeyLimits(services=("chat",)))
        assert {"acme/small", "embeddings", "ra2", "tts", "stt", "anime", "dall-e-3"} <= everything
        speech = {"tts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"}
        general = {"default", "chat", "auto", "text-llm", "vision"}
        assert passed_on == {"acme/large", "acme/small", "anth/small", "both", "large", "small"} | general
        assert await seen(KeyLimits(services=("tts",))) == passed_on | speech
        assert await seen(KeyLimits(services=("anime",))) == {"anime"}
        assert await seen(KeyLimits(services=("acme/small", "upscaler"))) == {"acme/small"}


async def test_revoked_key_stops_while_the_server_runs(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        row = await gateway.app.database.write(keys.create(gateway.app.account.id))
        headers = bearer(row.api_key)
        assert (await gateway.app.client.get("/v1/models", headers=headers)).status_code == 200
        await gateway.app.database.write(keys.revoke(row.id))

        async def is_refused() -> bool:
            return (await gateway.app.client.get("/v1/models", headers=headers)).status_code == 401

        await wait_until(is_refused)


async def test_hold_of_a_dead_server_is_released_at_the_second_check(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        call = CallRecord(
            "req_0", gateway.app.account.id, None, "chat", "m", "t", streamed=False, held=70_000
        )
        await gateway.app.database.write(request_log.begin(call, "boot_of_the_dead", None))
        assert await gateway.app.balance() == ("5.00", "0.07")
        for _ in range(2):
            await gateway.app.server.gateway_runtime.gateway.sweep()
        assert await gateway.app.balance() == ("5.00", "0.00")
        assert [result["status"] for result in await gateway.calls()] == ["failed"]
        assert await gateway.app.faults() == ()


async def test_calls_are_searched_by_their_text(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, log_bodies=True) as gateway:
        await gateway.chat(text="Where is the Lighthouse?")
        await gateway.chat(model="anth/small")
        client = gateway.app.client

        async def find(**query: str) -> list[str]:
            response = await client.get("/api/gateway/calls", params=query, headers=gateway.headers)
            return [call["target"] for call in response.json()["calls"]]

        assert await find() == ["anth/small", "acme/small"]
        assert await find(q="lighthouse") == ["acme/small"]
        assert await find(model="anth/small") == ["anth/small"]
        assert await find(status="failed") == []
        page = (await client.get("/api/gateway/calls?limit=1", headers=gateway.headers)).json()
        rest = await find(cursor=page["next_cursor"])
        assert rest == ["acme/small"]
        other_account = await client.get("/api/gateway/calls", headers=bearer(gateway.app.other))
        assert other_account.json() == {"calls": [], "next_cursor": None}
        assert (await client.get("/api/gateway/calls?limit=0", headers=gateway.headers)).status_code == 400


async def test_internal_chats_use_the_gateway_and_are_charged(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        relay, account = gateway.app.server.gateway_runtime.gateway, gateway.app.account
        principal = Principal(account.id, account.kind, account.email)
        chat = ChatRequest((ChatMessage("user", (TextPart("say 4 words"),)),), max_tokens=50)
        for model in ("acme/small", "anth/small", ""):
            reply = await relay.complete_chat(principal, f"req_{model or 'default'}", chat, model)
            assert reply.answer is not None
            assert reply.answer.text == "word word word word"
            assert reply.cost > 0
        flow = await relay.stream_chat(principal, "req_flow", chat, "acme/small")
        events = [event async for event in flow.events()]
        assert (
            "".join(event.text for event in events if isinstance(event, TextDelta)) == "word word word word"
        )
        assert isinstance(events[-1], MessageEnd)
        assert await gateway.app.database.read(ledger_queries.verify()) == ()


async def test_a_repeated_request_is_answered_once(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        headers = {**gateway.headers, "Idempotency-Key": "once"}
        body = {"model": "acme/small", "messages": [{"role": "user", "content": "Hello"}]}
        first = await gateway.app.client.post("/v1/chat/completions", json=body, headers=headers)
        second_response = await gateway.app.client.post("/v1/chat/completions", json=body, headers=headers)
        assert (first.content, len(gateway.acme.requests)) == (second_response.content, 1)
        streamed = {**body, **STREAM}
        response = await gateway.app.client.post("/v1/chat/completions", json=streamed, headers=headers)
        assert response.status_code == 400


async def test_prices_of_families_are_bundled(tmp_path: Path) -> None:
    async with model_server() as own:
        rows = {
            "p": {"kind": "openai", "base_url": own.url, "api_key": "k", "models": ["gpt-4o-mini-2024-07-18"]}
        }
        async with running_gateway(tmp_path, upstreams=rows, prices={}, aliases={}) as gateway:
            response = await gateway.chat(model="gpt-4o-mini-2024-07-18", text="say 1000 words")
            assert response.headers["x-sixfold-cost"] == "0.000602"  # 6 at 0.15, 4 at 0.075, 1000 at 0.60
            assert PRICE["input_per_million_usd"] == "100"
