"""Batches that end before a line that was interrupted after its charge runs again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import idempotency, keys
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.rights import Rights
from sixfold.core.batches import lines
from sixfold.core.batches import processor as batch_processor
from sixfold.core.batches.models import BatchOutcome
from sixfold.core.database import Query, Transaction, encode_json, many
from sixfold.core.failpoints import FailpointHit, Failpoints
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_batches import chat_line, content, create_batch, finished_batch
from tests.harness.waiting import wait_until

OUTCOMES: tuple[BatchOutcome, ...] = ("expired", "cancelled", "failed")


@pytest.fixture
async def stopping_gateway(either: Path) -> AsyncIterator[Gateway]:
    """A server that stops after the first line's charge, before its response is stored; each database."""
    async with running_gateway(either, {"failpoints": "batch.answered=fail"}) as gateway:
        yield gateway


async def line_is_charged(gateway: Gateway) -> int:
    """Wait for the end of the only line's call; return its cost in micro-dollars."""
    (call,) = await gateway.settled(1)
    assert call["status"] == "succeeded"
    await wait_until(lambda: not gateway.app.server.batch_processor._running)
    return money.parse_usd(call["cost_usd"])


def expire_line(gateway: Gateway, batch_id: str) -> Transaction[None]:
    """Let the lease of the only line expire, and release the line."""
    holder, ids = gateway.app.server.batch_processor._boot, encode_json([f"{batch_id}/1"])
    yield Query("batch_lines_renew", {"holder": holder, "lease": -1_000_000, "ids": ids})
    yield Query("batch_lines_reclaim", {"holder": "another"})


async def end_without_another_try(gateway: Gateway, batch_id: str, outcome: BatchOutcome) -> None:
    """End a batch, and release its line from the dead server."""
    processor = gateway.app.server.batch_processor

    def end() -> Transaction[None]:
        yield from lines.decide(batch_id, outcome)
        yield from expire_line(gateway, batch_id)

    await gateway.app.database.write(end())
    processor.wake()


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_charged_line_has_its_result_in_every_end_state(
    stopping_gateway: Gateway, outcome: BatchOutcome
) -> None:
    before = money.parse_usd((await stopping_gateway.app.balance())[0])
    batch = await create_batch(stopping_gateway, [chat_line("a")])
    cost = await line_is_charged(stopping_gateway)
    await end_without_another_try(stopping_gateway, batch.id, outcome)
    final_batch = await finished_batch(stopping_gateway, batch)
    assert final_batch.status == outcome
    assert [line["custom_id"] for line in await content(stopping_gateway, final_batch.output_file_id)] == [
        "a"
    ]
    assert await content(stopping_gateway, final_batch.error_file_id) == []
    assert final_batch.request_counts is not None
    assert final_batch.request_counts.model_dump() == {"total": 1, "completed": 1, "failed": 0}
    assert before - money.parse_usd((await stopping_gateway.app.balance())[0]) == cost
    assert len(stopping_gateway.acme.requests) == 1


@pytest.mark.parametrize("limits", ["models", "run", "models run"])
async def test_a_limited_key_gets_the_result_of_its_charged_line(
    stopping_gateway: Gateway, limits: str
) -> None:
    scope = KeyLimits(services=("acme/small",)) if "models" in limits else KeyLimits()
    granted = Rights.RUN if "run" in limits else None
    result = keys.create(stopping_gateway.app.account.id, scope, granted=granted)
    key = await stopping_gateway.app.database.write(result)
    batch = await create_batch(stopping_gateway, [chat_line("a")], key=key.api_key)
    await line_is_charged(stopping_gateway)
    await stopping_gateway.app.database.write(keys.revoke(key.id))
    await end_without_another_try(stopping_gateway, batch.id, "failed")
    final_batch = await finished_batch(stopping_gateway, batch)
    assert [line["custom_id"] for line in await content(stopping_gateway, final_batch.output_file_id)] == [
        "a"
    ]


@pytest.mark.parametrize("outcome", ["expired", "cancelled"])
async def test_a_charged_line_without_a_stored_response_is_free(
    stopping_gateway: Gateway, outcome: BatchOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = money.parse_usd((await stopping_gateway.app.balance())[0])

    def failing(_scope: str, _reply: object) -> Transaction[None]:
        raise FailpointHit("the response is not stored")

    with monkeypatch.context() as patch:
        patch.setattr(idempotency, "finish", failing)
        batch = await create_batch(stopping_gateway, [chat_line("a")])
        cost = await line_is_charged(stopping_gateway)
    await end_without_another_try(stopping_gateway, batch.id, outcome)
    final_batch = await finished_batch(stopping_gateway, batch)
    assert final_batch.status == outcome
    (line,) = await content(stopping_gateway, final_batch.output_file_id)
    assert (line["custom_id"], line["response"]["status_code"]) == ("a", 200)
    assert before - money.parse_usd((await stopping_gateway.app.balance())[0]) == cost
    assert await stopping_gateway.app.faults() == ()


@pytest.mark.parametrize("reason", ["key", "server"])
async def test_a_charged_line_without_a_result_is_refunded(
    stopping_gateway: Gateway, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_scope: str, _reply: object) -> Transaction[None]:
        raise FailpointHit("the response is not stored")

    before = money.parse_usd((await stopping_gateway.app.balance())[0])
    key = await stopping_gateway.app.database.write(keys.create(stopping_gateway.app.account.id))
    with monkeypatch.context() as patch:
        patch.setattr(idempotency, "finish", failing)
        batch = await create_batch(stopping_gateway, [chat_line("a")], key=key.api_key)
        assert await line_is_charged(stopping_gateway) > 0
    if reason == "key":
        await stopping_gateway.app.database.write(keys.revoke(key.id))
    else:
        stopping_gateway.acme.mode = "refuse"
    await end_without_another_try(stopping_gateway, batch.id, "failed")
    final_batch = await finished_batch(stopping_gateway, batch)
    assert await content(stopping_gateway, final_batch.output_file_id) == []
    assert len(await content(stopping_gateway, final_batch.error_file_id)) == 1
    assert money.parse_usd((await stopping_gateway.app.balance())[0]) == before
    assert {call["cost_usd"] for call in await stopping_gateway.calls()} == {"0.00"}
    assert await stopping_gateway.app.faults() == ()


@pytest.mark.parametrize(("mode", "completed"), [("fail", 1), ("refuse", 0)])
async def test_a_charged_line_whose_repetition_fails_is_refunded(
    stopping_gateway: Gateway, mode: str, completed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure of the model server is followed by another attempt, which is charged; a rejection is not."""

    def failing(_scope: str, _reply: object) -> Transaction[None]:
        raise FailpointHit("the response is not stored")

    before = money.parse_usd((await stopping_gateway.app.balance())[0])
    with monkeypatch.context() as patch:
        patch.setattr(idempotency, "finish", failing)
        batch = await create_batch(stopping_gateway, [chat_line("a")])
        cost = await line_is_charged(stopping_gateway)
    monkeypatch.setattr(lines, "RETRY_SECONDS", (0, 0, 0))
    processor = stopping_gateway.app.server.batch_processor
    monkeypatch.setattr(processor, "_failpoints", Failpoints(""))
    stopping_gateway.acme.modes = [mode]

    await stopping_gateway.app.database.write(expire_line(stopping_gateway, batch.id))
    processor.wake()
    final_batch = await finished_batch(stopping_gateway, batch)
    assert final_batch.request_counts is not None
    assert final_batch.request_counts.completed == completed
    assert before - money.parse_usd((await stopping_gateway.app.balance())[0]) == cost * completed
    assert await stopping_gateway.app.faults() == ()


async def test_a_batch_without_its_input_ends(
    stopping_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_scope: str, _reply: object) -> Transaction[None]:
        raise FailpointHit("the response is not stored")

    with monkeypatch.context() as patch:
        patch.setattr(idempotency, "finish", failing)
        batch = await create_batch(stopping_gateway, [chat_line("a")])
        await line_is_charged(stopping_gateway)
    rows = await stopping_gateway.app.database.read(many("batches_open", limit=1))
    await stopping_gateway.app.server.files.blobs.delete(str(rows[0]["input_blob"]))
    await end_without_another_try(stopping_gateway, batch.id, "expired")
    assert (await finished_batch(stopping_gateway, batch)).status == "expired"


async def test_idempotency_key_of_a_line_makes_no_other_call_free(either: Path) -> None:
    async with running_gateway(either) as gateway:
        line = chat_line("a")
        batch = await create_batch(gateway, [line])
        await finished_batch(gateway, batch)
        (first,) = await gateway.settled(1)
        headers = {**gateway.headers, "Idempotency-Key": f"{batch.id}/1/0"}
        # As compact as the line, which is sent to the endpoint as it is.
        body = json.dumps(line["body"]).encode()
        response = await gateway.app.client.post(line["url"], content=body, headers=headers)
        calls = await gateway.settled(2)
        assert response.headers["x-sixfold-cost"] == first["cost_usd"]
        assert [call["cost_usd"] for call in calls] == [first["cost_usd"]] * 2
        assert len(gateway.acme.requests) == 2


async def test_lines_whose_claim_has_an_unknown_result_are_run(
    either: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection to the database broke after the commit, so that the server does not know its lines."""
    monkeypatch.setattr(batch_processor, "POLL_SECONDS", 0.02)
    async with running_gateway(either) as gateway:
        processor, database = gateway.app.server.batch_processor, gateway.app.database
        claims: list[object] = []

        async def write(transaction: Transaction[Any], *, durable: bool = True) -> Any:
            result = await database.write(transaction, durable=durable)
            if result and getattr(transaction, "__name__", "") == "claim":
                claims.append(result)
                if len(claims) == 1:
                    raise errors.StoreFailed
            return result

        monkeypatch.setattr(processor, "_limits", replace(processor._limits, lease_us=50_000))
        monkeypatch.setattr(processor, "_database", SimpleNamespace(read=database.read, write=write))
        batch = await create_batch(gateway, [chat_line(name) for name in "abc"])
        final_batch = await finished_batch(gateway, batch)
        assert final_batch.request_counts is not None
        assert final_batch.request_counts.completed == 3
        assert len(claims) >= 2
        assert len(gateway.acme.requests) == 3
