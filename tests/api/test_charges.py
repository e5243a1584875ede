"""Every charge of a mixed workload is recomputed from the units and rates that the API shows for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.clock import DAY_US
from sixfold.core.database import many
from sixfold.core.predictions import queries
from tests.api.app_fixture import bearer
from tests.api.gateway import PRICE, Gateway, leave_stream, running_gateway
from tests.api.test_gateway_async import finished_prediction
from tests.harness.cases import nightly_after
from tests.harness.charge_recomputation import micros, recomputed
from tests.harness.waiting import wait_until

FRACTIONAL_PRICE = {"input_per_million_usd": "33.333333", "output_per_million_usd": "200.000001"}
PRICES = {
    "acme/small": PRICE,
    "anth/small": FRACTIONAL_PRICE,
    "acme/large": {"input_per_million_usd": "0.07", "output_per_million_usd": "0.13"},
    "acme/draw": {"input_per_million_usd": "1", "output_per_million_usd": "8", "per_image_usd": "0.01"},
    "acme/speak": {"character_per_million_usd": "15"},
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(
        tmp_path, models=app_catalog.models_document(), prices=PRICES, cache=True
    ) as result:
        yield result


async def _disconnect(gateway: Gateway, words: int) -> None:
    gateway.acme.modes.insert(0, "trickle")
    await leave_stream(gateway, f"say {words} words")


async def _fails(gateway: Gateway, words: int) -> None:
    gateway.acme.modes.insert(0, "fail")
    assert (await gateway.chat(f"say {words} words")).status_code == 502


async def _falls_back(gateway: Gateway, words: int) -> None:
    gateway.acme.modes.insert(0, "fail")
    assert (await gateway.chat(f"say {words} words", model="both")).status_code == 200


async def _estimate(gateway: Gateway, words: int) -> None:
    gateway.acme.modes.insert(0, "nousage")
    assert (await gateway.chat(f"say {words} words please")).status_code == 200


async def _beyond(gateway: Gateway, words: int) -> None:
    """Report more input tokens than expected: the charge is limited to the hold."""
    body: dict[str, Any] = {"model": "acme/small", "max_tokens": 1}
    body["messages"] = [{"role": "user", "content": "x"}] * (100 + words)
    response = await gateway.app.client.post("/v1/chat/completions", json=body, headers=gateway.headers)
    assert response.status_code == 200


async def _twice(gateway: Gateway, words: int) -> None:
    for _ in range(2):
        assert (await gateway.chat(f"say {words} words again")).status_code == 200


async def _later(gateway: Gateway, words: int) -> None:
    body = {"service": "chat", "model": "acme/large", "max_tokens": 50, "async": True}
    body["prompt"] = f"say {words} words"
    response = await finished_prediction(
        gateway, await gateway.app.client.post("/api/service", json=body, headers=gateway.headers)
    )
    assert response["status"] == "succeeded"


async def _make(gateway: Gateway, words: int) -> None:
    body = {"model": "acme/draw", "prompt": "a fox", "n": 1 + words % 3}
    response = await gateway.app.client.post("/v1/images/generations", json=body, headers=gateway.headers)
    assert response.status_code == 200, response.text


async def _spoken(gateway: Gateway, words: int) -> None:
    body = {"model": "acme/speak", "input": "word " * words, "voice": "alloy"}
    response = await gateway.app.client.post("/v1/audio/speech", json=body, headers=gateway.headers)
    assert response.status_code == 200, response.text


async def _predict(gateway: Gateway, words: int) -> None:
    body: dict[str, Any] = {"service": "tts", "text": "word " * words}
    response = await gateway.app.client.post("/api/service", json=body, headers=gateway.headers)
    assert response.status_code == 200, response.text


async def _complete_chat(gateway: Gateway, words: int) -> None:
    assert (await gateway.chat(f"say {words} words", model="acme/large")).status_code == 200


async def _stream(gateway: Gateway, words: int) -> None:
    assert (await gateway.chat(f"say {words} words", model="anth/small", stream=True)).status_code == 200


KINDS: tuple[Callable[[Gateway, int], Awaitable[None]], ...] = (
    *(
        _complete_chat,
        _stream,
        _disconnect,
        _fails,
        _falls_back,
        _estimate,
        _beyond,
        _twice,
        _later,
        _make,
        _spoken,
    ),
    _predict,
)


@pytest.mark.parametrize("seed", nightly_after(1, [1, 2]))
async def test_charges_of_a_mixed_workload_equal_units_times_rates(gateway: Gateway, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - a workload, no secret
    work = [*KINDS, *draw.choices(KINDS, k=6)]
    draw.shuffle(work)
    for kind in work:
        gateway.acme.disconnect_event.clear()
        await kind(gateway, draw.randrange(1, 40))
    async with asyncio.timeout(60):
        while (await gateway.app.balance())[1] != "0.00":  # noqa: ASYNC110 - money has no event to wait for
            await asyncio.sleep(0.005)
    calls = await gateway.calls()
    assert len(calls) >= len(work) - work.count(_predict)
    for call in calls:
        assert recomputed(call["charge"]) == micros(call["cost_usd"]), call
        assert call["charge"]["amount_usd"] == call["cost_usd"]
    assert {call["status"] for call in calls} == {"succeeded", "failed", "left"}
    assert any("limit_usd" in call["charge"] for call in calls)
    assert all(not call["charge"]["lines"] for call in calls if call["status"] == "failed")
    response = await gateway.app.client.get("/api/account/ledger?limit=200", headers=gateway.headers)
    entries = [entry for entry in response.json()["entries"] if entry["kind"] in {"chat", "charge"}]
    for entry in entries:
        assert -recomputed(entry["charge"]) == micros(entry["amount_usd"]), entry
    posted, held = await gateway.app.balance()
    paid = sum(recomputed(entry["charge"]) for entry in entries)
    assert (5_000_000 - micros(posted), held) == (paid, "0.00")
    assert await gateway.app.faults() == ()


async def test_charge_shows_cached_input_server_rate_and_hold(gateway: Gateway) -> None:
    await gateway.chat("say 3 words")
    await _falls_back(gateway, 3)
    await _beyond(gateway, 1)
    limited, fallen, cached = [call["charge"] for call in await gateway.settled(3)]
    assert cached["sum"] == "6 × 100.00/M + 4 cached × 50.00/M + 3 × 1000.00/M = 0.0038 USD"
    assert [line["unit"] for line in cached["lines"]] == ["input_tokens", "cached_tokens", "output_tokens"]
    assert [line["rate_usd"] for line in fallen["lines"]] == ["33.333333", "33.333333", "200.000001"]
    assert limited["limit_usd"] == limited["amount_usd"]
    assert "limited to the" in limited["sum"]


async def test_cached_answer_keeps_its_units_at_rate_zero(gateway: Gateway) -> None:
    await _twice(gateway, 5)
    second, first = await gateway.settled(2)
    assert (second["usage"]["counted_by"], second["cost_usd"]) == ("cache", "0.00")
    assert [line["quantity"] for line in second["charge"]["lines"]] == [6, 4, 5]
    assert {line["rate_usd"] for line in second["charge"]["lines"]} == {"0.00"}
    assert recomputed(first["charge"]) == micros(first["cost_usd"]) > 0


async def test_async_chat_receipt_has_the_tokens_of_its_call(gateway: Gateway) -> None:
    await _later(gateway, 7)
    [call] = await gateway.settled()
    page = (await gateway.app.client.get("/api/account/ledger", headers=gateway.headers)).json()["entries"]
    assert page[0]["charge"] == call["charge"]
    assert [line["unit"] for line in call["charge"]["lines"]][-1] == "output_tokens"


async def test_charge_of_a_free_server_shows_its_units(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, prices={}, allow_unpriced=True) as gateway:
        await gateway.chat("say 3 words")
        [call] = await gateway.settled()
        assert call["charge"]["sum"] == "6 × 0.00/M + 4 cached × 0.00/M + 3 × 0.00/M = 0.00 USD"


async def test_rows_without_stored_lines_are_shown_without_a_sum(gateway: Gateway) -> None:
    await gateway.chat("say 3 words")
    await gateway.settled()
    account_id = gateway.app.account.id
    await gateway.app.database.write(many("erase_descriptions", account_id=account_id))
    page = (await gateway.app.client.get("/api/account/ledger", headers=gateway.headers)).json()["entries"]
    assert [(entry["kind"], entry["charge"]) for entry in page] == [("chat", None), ("credit", None)]


async def test_running_call_has_no_charge(gateway: Gateway) -> None:
    gateway.acme.mode = "wait"
    request = asyncio.ensure_future(gateway.chat("say 3 words"))
    await gateway.acme.request_event.wait()
    calls = await wait_until(lambda: gateway.calls())
    assert (calls[0]["status"], calls[0]["charge"]) == ("running", None)
    gateway.acme.go_on.set()
    assert (await request).status_code == 200


async def test_operators_income_counts_a_prepaid_chat_once(gateway: Gateway) -> None:
    run = {"model": "chat", "input": {"model": "acme/small", "prompt": "say 9 words", "max_tokens": 50}}
    response = await gateway.app.client.post("/api/containers/run", json=run, headers=gateway.headers)
    cost = micros(response.json()["cost"])
    assert cost > 0
    await gateway.settled(1)
    rows = await gateway.app.database.read(queries.by_engine(DAY_US))
    assert {row.engine: row.earned for row in rows} == {"relay": cost, "acme/small": 0}
    operator = bearer(await gateway.app.operator_key())
    figures = (await gateway.app.client.get("/api/operator/figures", headers=operator)).json()
    assert sum(micros(slot["earned_usd"]) for slot in figures["slots"]) == cost


async def test_a_run_that_the_cache_answers_is_free(gateway: Gateway) -> None:
    run = {"model": "chat", "input": {"model": "acme/small", "prompt": "say 9 words", "max_tokens": 50}}
    costs: list[str] = []
    for _ in range(2):
        response = await gateway.app.client.post("/api/containers/run", json=run, headers=gateway.headers)
        assert response.status_code == 200, response.text
        body = response.json()
        assert body["status"] == "succeeded"
        charge = body["receipt"][-1]["charge"]
        assert recomputed(charge) == micros(body["cost"])
        costs.append(body["cost"])
    assert micros(costs[0]) > 0
    assert micros(costs[1]) == 0
    assert len(gateway.acme.requests) == 1
    assert await gateway.app.faults() == ()


async def test_chat_above_every_possible_balance_is_402(either: Path) -> None:
    row = {"input_per_million_usd": 1, "output_per_million_usd": "9000000000000"}
    async with running_gateway(either, prices={"acme/small": row}) as gateway:
        for max_tokens in (100, 900_000_000):
            response = await gateway.chat(max_tokens=max_tokens)
            assert response.status_code == 402, response.text
        key = await gateway.app.limited_key(KeyLimits(budget_day=1_000_000))
        body = {
            "model": "acme/small",
            "max_tokens": 900_000_000,
            "messages": [{"role": "user", "content": "a"}],
        }
        response = await gateway.app.client.post("/v1/chat/completions", json=body, headers=bearer(key))
        assert response.status_code == 429
        assert await gateway.app.balance() == ("5.00", "0.00")
        assert await gateway.app.faults() == ()
