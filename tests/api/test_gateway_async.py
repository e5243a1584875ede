"""Queued chats, held at their maximum cost and charged by their tokens, and the price of `vision`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold import errors
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.keys import KeyLimits, Principal
from sixfold.core.predictions import refunds
from sixfold.core.predictions.child_runs import PipelineChildren
from tests.api.app_fixture import bearer, running_app
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_gateway import PIXEL
from tests.fakes.chat_servers import model_server

TERMINAL = {"succeeded", "failed", "canceled"}
CHAT_FIELDS: dict[str, Any] = {"model": "acme/small", "max_tokens": 20}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path, models=app_catalog.models_document()) as result:
        yield result


async def ask(
    gateway: Gateway, key: str | None = None, *, later: bool = True, **inputs: Any
) -> httpx.Response:
    body = {"service": "chat", **CHAT_FIELDS, "async": later, **inputs}
    return await gateway.app.client.post("/api/service", json=body, headers=bearer(key or gateway.app.key))


async def finished_prediction(gateway: Gateway, response: httpx.Response) -> dict[str, Any]:
    """Wait for the end of the prediction of a 202, and return it."""
    assert response.status_code == 202, response.text
    async with asyncio.timeout(60):
        while True:
            body = (
                await gateway.app.client.get(response.json()["status_url"], headers=gateway.headers)
            ).json()
            if body["status"] in TERMINAL:
                return body
            await asyncio.sleep(0.01)


async def test_queued_and_direct_chats_have_the_same_cost(gateway: Gateway) -> None:
    now = (await ask(gateway, later=False, prompt="say 3 words")).json()
    before = await gateway.app.balance()
    response = await ask(gateway, prompt="say 3 words")
    accepted = response.json()
    assert set(accepted) == {"id", "prediction_id", "service", "status", "status_url", "urls", "created_at"}
    later = await finished_prediction(gateway, response)
    assert (accepted["prediction_id"], accepted["urls"]) == (later["id"], later["urls"])
    assert (later["status"], later["output"], later["output_kind"]) == ("succeeded", "word word word", "text")
    assert (later["model"], later["cost"]) == ("chat", now["cost"])
    assert float(before[0]) - float((await gateway.app.balance())[0]) == pytest.approx(float(now["cost"]))
    assert (await gateway.app.balance())[1] == "0.00"
    entries = (await gateway.app.client.get("/api/account/ledger", headers=gateway.headers)).json()["entries"]
    assert (entries[0]["description"], entries[0]["amount_usd"]) == ("chat", f"-{now['cost']}")
    assert await gateway.app.faults() == ()


@pytest.mark.parametrize("how", [{"later": False}, {"later": True}])
@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (
            [{"role": "wizard", "content": "hi"}],
            "messages[0].role must be system, developer, user, assistant or tool",
        ),
        ([{"role": "user", "content": [{"type": "smell"}]}], "smell"),
    ],
)
async def test_invalid_messages_are_400_and_named(
    gateway: Gateway, how: dict[str, Any], messages: Any, message: str
) -> None:
    response = await ask(gateway, **how, messages=messages)
    body = response.json()
    assert (response.status_code, body["code"]) == (400, "invalid_input"), body
    assert [problem["input"] for problem in body["errors"]] == ["messages"]
    assert message in body["error"]
    assert gateway.acme.requests == []


async def test_async_conversation_and_image_reach_the_model(gateway: Gateway) -> None:
    turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good day"}]
    wish = {"messages": turns, "system": "be short", "prompt": "what is it?", "temperature": 0.5}
    request = {"service": "vision", "image_url": PIXEL, **wish}
    await finished_prediction(gateway, await ask(gateway, **request))
    assert (await ask(gateway, later=False, **request)).status_code == 200
    later, now = (observed_request.document for observed_request in gateway.acme.requests[-2:])
    assert later == now
    assert later["messages"][0] == {"role": "system", "content": "be short"}
    assert later["messages"][-1]["content"][1]["image_url"]["url"] == PIXEL


@pytest.mark.parametrize("mode", ["fail", "refuse", "garbage"])
async def test_failed_queued_chat_is_free(gateway: Gateway, mode: str) -> None:
    gateway.acme.mode = mode
    response = await finished_prediction(gateway, await ask(gateway, prompt="say 3 words"))
    assert response["status"] == "failed"
    assert response["error"]
    assert await gateway.app.balance() == ("5.00", "0.00")
    assert await gateway.app.faults() == ()


async def test_prediction_canceled_before_the_first_token_is_free(gateway: Gateway) -> None:
    gateway.acme.mode = "hang"
    response = await ask(gateway, prompt="say 3 words")
    await asyncio.wait_for(gateway.acme.request_event.wait(), 60)
    assert float((await gateway.app.balance())[1]) > 0
    await gateway.app.client.delete(response.json()["status_url"], headers=gateway.headers)
    assert (await finished_prediction(gateway, response))["status"] == "canceled"
    await gateway.app.until("5.00", "0.00")


@pytest.mark.parametrize(
    ("inputs", "status", "blamed"),
    [
        ({}, 400, "prompt"),
        ({"prompt": " "}, 400, "prompt"),
        ({"messages": []}, 400, "messages"),
        ({"messages": "hello"}, 400, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, 400, "role"),
        ({"prompt": "x", "model": "nobody/none"}, 404, "nobody/none"),
        ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens"),
        ({"prompt": "x", "temperature": 3}, 400, "temperature"),
        ({"prompt": "x", "stream": True}, 400, "cannot be combined"),
        ({"service": "vision", "prompt": "x"}, 400, "image_url"),
        ({"messages": [{"role": "user", "content": "x" * 2**20}]}, 413, "1,048,576 bytes"),
    ],
)
async def test_unserved_requests_are_rejected_before_they_are_queued(
    gateway: Gateway, inputs: dict[str, Any], status: int, blamed: str
) -> None:
    response = await ask(gateway, **inputs)
    assert (response.status_code, blamed in response.json()["error"]) == (status, True), response.text
    assert gateway.acme.requests == []
    assert await gateway.app.balance() == ("5.00", "0.00")


async def test_balance_budgets_and_tpm_apply_to_queued_chats(gateway: Gateway) -> None:
    app = gateway.app
    assert (await ask(gateway, app.poor, prompt="x")).status_code == 402
    scopes = {"budget_exceeded": KeyLimits(budget_day=1), "rate_limited": KeyLimits(tpm=25)}
    for code, scope in scopes.items():
        key = await app.limited_key(scope)
        answers = [await ask(gateway, key, prompt="say 3 words") for _ in range(2)]
        assert (answers[-1].status_code, answers[-1].json()["code"]) == (429, code)
        assert int(answers[-1].headers["Retry-After"]) > 0
    elsewhere = await app.limited_key(KeyLimits(services=("tts",)))
    assert (await ask(gateway, elsewhere, prompt="x")).status_code == 403


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        ("chat", {"model": "acme/small", "prompt": "say 3000 words"}),
        ("text-llm", {"prompt": "say 3000 words", "max_tokens": 3000}),
        ("speech-to-speech", {"task": "chat", "text": "say 3000 words"}),
    ],
)
async def test_all_tokens_of_queued_chats_count_against_the_key(
    either: Path, model: str, inputs: dict[str, Any]
) -> None:
    async with running_gateway(either, models=app_catalog.models_document()) as gateway:
        headers = bearer(await gateway.app.limited_key(KeyLimits(tpm=2_000)))
        body = {"model": model, "input": inputs}
        run, path = gateway.app.client.post, "/api/containers/run"
        answers = [await run(path, json=body, headers=headers) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429], answers[0].text
        assert answers[0].json()["status"] == "succeeded"
        assert answers[1].json()["error"] == "This key is limited to 2000 tokens per minute"


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        ("chat", {"model": "acme/small", "prompt": "say 3 words"}),
        ("speech-to-speech", {"task": "chat", "text": "say 3 words"}),
    ],
)
async def test_queued_chat_whose_key_cannot_be_read_makes_no_call(
    tmp_path: Path, model: str, inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, the reply would be paid to the provider, and lost."""

    async def failing(*_: Any) -> Principal:
        raise errors.StoreFailed("the database does not respond")

    monkeypatch.setattr(PipelineChildren, "principal", failing)
    async with running_gateway(tmp_path, models=app_catalog.models_document()) as gateway:
        body = {"model": model, "input": inputs}
        response = await gateway.app.client.post("/api/containers/run", json=body, headers=gateway.headers)
        assert response.json()["status"] == "failed"
        assert not gateway.acme.requests
        assert await gateway.app.balance() == ("5.00", "0.00")


async def test_refunded_queued_chat_is_not_answered_from_the_cache(either: Path) -> None:
    question: dict[str, Any] = {"prompt": "say 3 words"}
    async with running_gateway(either, models=app_catalog.models_document(), cache=True) as gateway:
        first, repeated = [await finished_prediction(gateway, await ask(gateway, **question)) for _ in "ab"]
        assert repeated["cost"] == "0.00", "the response is from the cache"
        await gateway.app.database.write(refunds.refund(first["id"], "of no use"))
        later = await finished_prediction(gateway, await ask(gateway, **question))
        assert later["cost"] == first["cost"] != "0.00"
        assert len(gateway.acme.requests) == 2


async def test_repeated_idempotency_key_calls_the_model_once(gateway: Gateway) -> None:
    body = {"service": "chat", **CHAT_FIELDS, "prompt": "say 3 words", "async": True}
    headers = {**gateway.headers, "Idempotency-Key": "once"}
    posts = [gateway.app.client.post("/api/service", json=body, headers=headers) for _ in range(4)]
    responses = await asyncio.gather(*posts)
    assert len({response.json()["id"] for response in responses}) == 1
    await finished_prediction(gateway, responses[0])
    assert len(gateway.acme.requests) == 1


async def test_queued_chat_of_an_unpriced_local_model_is_free(tmp_path: Path) -> None:
    async with running_gateway(
        tmp_path, models=app_catalog.models_document(), prices={}, allow_unpriced=True
    ) as there:
        response = await finished_prediction(there, await ask(there, prompt="say 3 words"))
        assert (response["status"], response["cost"]) == ("succeeded", "0.00")
        assert await there.app.balance() == ("5.00", "0.00")


async def test_missing_input_is_reported_before_missing_capability(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document(), probe=False) as app:
        for later in (True, False):
            for inputs, status in (({}, 400), ({"prompt": "hello"}, 503)):
                body = {"service": "chat", "async": later, **inputs}
                response = await app.client.post("/api/service", json=body, headers=app.bearer)
                assert response.status_code == status, response.text


VISION: dict[str, Any] = {
    "service": "vision",
    "model": "vision",
    "prompt": "say 3 words",
    "image_url": PIXEL,
}


@pytest.mark.parametrize("later", [False, True])
async def test_vision_costs_its_price_per_request(gateway: Gateway, later: bool) -> None:
    response = await ask(gateway, later=later, **VISION)
    result = await finished_prediction(gateway, response) if later else response.json()
    assert (result["status"], result["cost"], result["credits_charged"]) == ("succeeded", "0.002", 1)
    assert await gateway.app.balance() == ("4.998", "0.00")
    assert await gateway.app.faults() == ()


async def test_streamed_vision_costs_its_price_per_request(gateway: Gateway) -> None:
    response = await ask(gateway, later=False, stream=True, **VISION)
    assert response.text.endswith("data: [DONE]\n\n")
    (call,) = await gateway.settled()
    assert (call["cost_usd"], call["charge"]["sum"]) == ("0.002", "1 × 0.002/request = 0.002 USD")
    assert await gateway.app.balance() == ("4.998", "0.00")


@pytest.mark.parametrize("later", [False, True])
async def test_vision_of_an_own_model_server_is_free(tmp_path: Path, later: bool) -> None:
    async with model_server() as server:
        rows = {"own": {"kind": "openai", "base_url": server.url, "models": ["small"], "local": True}}
        prices = {"prices": {"own_hardware": "free"}}
        models = app_catalog.models_document()
        async with running_gateway(
            tmp_path, models=models, tables=prices, upstreams=rows, aliases={}, prices={}
        ) as gateway:
            response = await ask(gateway, later=later, **VISION)
            result = await finished_prediction(gateway, response) if later else response.json()
            assert (result["cost"], result["list_price"]) == ("0.00", "0.002")
            assert await gateway.app.balance() == ("5.00", "0.00")


@pytest.mark.parametrize("later", [False, True])
async def test_vision_costs_at_least_its_price_per_request(tmp_path: Path, later: bool) -> None:
    async with model_server() as server:
        rows = {"own": {"kind": "openai", "base_url": server.url, "models": ["small"], "local": True}}
        models = app_catalog.models_document()
        async with running_gateway(tmp_path, models=models, upstreams=rows, aliases={}, prices={}) as gateway:
            response = await ask(gateway, later=later, **VISION | {"model": "own/small"})
            result = await finished_prediction(gateway, response) if later else response.json()
            assert (result["cost"], result["credits_charged"]) == ("0.002", 1)
            assert await gateway.app.balance() == ("4.998", "0.00")
            assert await gateway.app.faults() == ()


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    "fields", [{"model": "acme/small"}, {"prompt": "say 3 words " * 5000}, {"max_tokens": 4097}]
)
async def test_a_long_vision_or_a_chosen_model_costs_its_tokens(
    gateway: Gateway, later: bool, fields: dict[str, Any]
) -> None:
    response = await ask(gateway, later=later, **VISION | fields)
    result = await finished_prediction(gateway, response) if later else response.json()
    assert result["status"] == "succeeded"
    assert result["cost"] != "0.002"
    calls = await gateway.settled()
    assert [call["charge"]["sum"] for call in calls if "/request" in call["charge"]["sum"]] == []
    assert await gateway.app.faults() == ()
