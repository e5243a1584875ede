"""A request that is repeated after its response was lost is charged once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from sixfold import errors
from sixfold.core.accounts import idempotency
from sixfold.core.gateway import idempotency as gateway_idempotency
from sixfold.core.gateway import request_log
from sixfold.core.gateway.conversations.responses import ResponseStore
from sixfold.core.gateway.request_log import CallRecord
from tests.api.gateway import PRICE, running_gateway
from tests.api.test_response_tools import SAID, respond, running

CHAT = "/v1/chat/completions"


async def test_repeated_call_after_a_lost_response_is_charged_once(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        account = gateway.app.account.id
        scope = idempotency.scope_id(account, "POST", CHAT, "once")
        body = {"model": "acme/small", "messages": [{"role": "user", "content": "say 9 words"}]}
        costs: list[str] = []
        for _ in range(3):
            headers = {**gateway.app.bearer, "Idempotency-Key": "once"}
            response = await gateway.app.client.post(CHAT, json=body, headers=headers)
            assert response.status_code == 200
            assert "idempotent-replayed" not in response.headers
            costs.append(response.headers["x-sixfold-cost"])
            # This is the state after the server was killed.
            await gateway.app.database.write(idempotency.forget(scope))
        assert len(set(costs)) == 1
        posted, held = await gateway.app.balance()
        assert (round(5 - float(posted), 6), held) == (float(costs[0]), "0.00")
        assert len(gateway.acme.requests) == 3
        assert await gateway.app.faults() == ()


async def test_repeated_call_replaces_one_that_never_ended(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        write, account = gateway.app.database.write, gateway.app.account.id
        call = CallRecord(
            "req_first", account, None, "chat", "small", "acme/small", streamed=False, held=5000
        )
        assert await write(gateway_idempotency.paid_before("scope", call.id)) is None
        await write(request_log.begin(call, "boot_gone", None))
        assert (await gateway.app.balance())[1] == "0.005"
        assert await write(gateway_idempotency.paid_before("scope", "req_second")) is None
        assert await gateway.app.balance() == ("5.00", "0.00")
        assert await gateway.app.faults() == ()


async def test_repeated_service_chat_is_charged_once(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        scope = idempotency.scope_id(gateway.app.account.id, "POST", "/api/service", "once")
        body = {
            "service": "chat",
            "model": "acme/small",
            "messages": [{"role": "user", "content": "say 4 words"}],
        }
        costs: set[str] = set()
        for _ in range(2):
            headers = {**gateway.app.bearer, "Idempotency-Key": "once"}
            response = await gateway.app.client.post("/api/service", json=body, headers=headers)
            assert response.status_code == 200, response.text
            costs.add(response.json()["cost"])
            await gateway.app.database.write(idempotency.forget(scope))
        (cost,) = costs
        posted, held = await gateway.app.balance()
        assert (round(5 - float(posted), 6), held) == (float(cost), "0.00")
        assert len(gateway.acme.requests) == 2


async def test_different_body_with_a_lost_key_is_charged(tmp_path: Path) -> None:
    prices = {"acme/small": PRICE, "acme/speak": {"character_per_million_usd": "15"}}
    async with running_gateway(tmp_path, prices=prices) as gateway:
        headers = {**gateway.app.bearer, "Idempotency-Key": "once"}
        speech = {"model": "acme/speak", "voice": "alloy"}
        chat = {"model": "acme/small"}
        for path, first, second in (
            (CHAT, *({**chat, "messages": [{"role": "user", "content": f"say {n} words"}]} for n in (1, 9))),
            ("/v1/audio/speech", *({**speech, "input": text} for text in ("a", "a word " * 9))),
        ):
            balances = [await gateway.app.balance()]
            for body in (first, second, second):
                response = await gateway.app.client.post(path, json=body, headers=headers)
                assert response.status_code == 200, response.text
                balances.append(await gateway.app.balance())
                scope = idempotency.scope_id(gateway.app.account.id, "POST", path, "once")
                await gateway.app.database.write(idempotency.forget(scope))
            assert len(set(balances)) == 3, (path, balances)
            assert balances[2] == balances[3]
        assert await gateway.app.faults() == ()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "say 9 words"}]}),
        ("/api/service", {"service": "chat", "messages": [{"role": "user", "content": "say 9 words"}]}),
        ("/v1/embeddings", {"input": "a"}),
    ],
)
async def test_lost_call_is_refunded_if_its_repetition_fails(
    either: Path, path: str, body: dict[str, object]
) -> None:
    async with running_gateway(either) as gateway:
        before = await gateway.app.balance()
        headers = {**gateway.app.bearer, "Idempotency-Key": "once"}

        async def post() -> int:
            fields = {"model": "acme/small", **body}
            return (await gateway.app.client.post(path, json=fields, headers=headers)).status_code

        assert await post() == 200
        paid = await gateway.app.balance()
        assert paid < before
        scope = idempotency.scope_id(gateway.app.account.id, "POST", path, "once")
        await gateway.app.database.write(idempotency.forget(scope))  # as if the server had died
        gateway.acme.mode = "limit"
        assert await post() == 429, "the client may repeat it"
        assert await gateway.app.balance() == paid
        gateway.acme.mode = "fail"
        assert await post() == 502
        assert await gateway.app.balance() == before
        gateway.acme.mode = "well"
        assert await post() == 502, "the error is stored for the key"
        assert await gateway.app.balance() == before
        assert {call["cost_usd"] for call in await gateway.calls()} == {"0.00"}
        assert await gateway.app.faults() == ()


@pytest.mark.parametrize("mode", ["well", "fail"])
async def test_lost_response_with_tools_is_charged_once(either: Path, mode: str) -> None:
    """The lost response made two requests to the model; a repetition that fails is free."""
    async with running(either) as (gateway, _):
        fields: Any = {"extra_headers": {"Idempotency-Key": "once"}}
        before, account = await gateway.app.balance(), gateway.app.account.id
        await respond(gateway, **fields)
        paid = await gateway.app.balance()
        scope = idempotency.scope_id(account, "POST", "/v1/responses", "once")
        await gateway.app.database.write(idempotency.forget(scope))  # as if the server had died
        gateway.acme.modes = ["well", mode]
        if mode == "well":
            assert (await respond(gateway, **fields)).output_text == SAID
        else:
            with pytest.raises(openai.InternalServerError):
                await respond(gateway, **fields)
        assert await gateway.app.balance() == (paid if mode == "well" else before)
        assert len(gateway.acme.requests) == 4
        assert await gateway.app.faults() == ()


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("tools", [False, True])
async def test_response_that_cannot_be_stored_is_paid_by_repetition(
    either: Path, monkeypatch: pytest.MonkeyPatch, *, keyed: bool, tools: bool
) -> None:
    """It is refunded, unless a repetition with the same Idempotency-Key is free."""

    async def failing(*_: Any, **__: Any) -> None:
        raise errors.StoreFailed

    more: dict[str, Any] = {"extra_headers": {"Idempotency-Key": "once"}} if keyed else {}
    more |= {} if tools else {"tools": []}
    async with running(either) as (gateway, _):
        before = float((await gateway.app.balance())[0])
        with monkeypatch.context() as patch:
            patch.setattr(ResponseStore, "record", failing)
            with pytest.raises(openai.InternalServerError, match="storage"):
                await respond(gateway, **more)
        lost = before - float((await gateway.app.balance())[0])
        assert (lost > 0) == keyed
        response = await respond(gateway, **more)
        assert response.status == "completed"
        calls = await gateway.settled(4 if tools else 2)
        paid = before - float((await gateway.app.balance())[0])
        assert paid == pytest.approx(sum(float(call["cost_usd"]) for call in calls))
        assert paid == pytest.approx(lost) if lost else paid > 0
        assert (await gateway.pending(), await gateway.app.faults()) == (0, ())
