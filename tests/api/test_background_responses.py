"""Background responses by the official client: polled, canceled, and charged once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import msgspec
import openai
import pytest

from sixfold.api.gateway.openai.responses.capture import ResponseCapture
from sixfold.core.batches.models import Batch
from sixfold.core.batches.processor import BatchProcessor
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_stored_responses import native
from tests.harness.waiting import wait_until

OPEN = ("queued", "in_progress")


async def begun(gateway: Gateway, text: str = "say 3 words", key: str | None = None, **more: Any) -> Any:
    request: dict[str, Any] = {"model": "acme/small", "input": text, "background": True, **more}
    return await gateway.openai(key).responses.create(**request)


async def ended(gateway: Gateway, response_id: str, key: str | None = None) -> Any:
    """Wait until a background response has ended, and return it."""
    async with asyncio.timeout(60):
        while True:
            response = await gateway.openai(key).responses.retrieve(response_id)
            if response.status not in OPEN:
                return response
            await asyncio.sleep(0.02)


async def deleted(gateway: Gateway, response_id: str) -> None:
    """Delete a response as soon as it has ended."""
    async with asyncio.timeout(60):
        while True:
            path = f"/v1/responses/{response_id}"
            response = await gateway.app.client.delete(path, headers=gateway.headers)
            if response.status_code == 200:
                return
            assert "cancel it first" in response.text
            await asyncio.sleep(0.02)


async def test_background_response_is_polled_and_charged_once(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    before = await gateway.app.balance()
    queued = await begun(gateway, metadata={"a": "b"}, instructions="Be short")
    assert (queued.status, queued.background, queued.store) == ("queued", True, True)
    assert (queued.model, queued.metadata, queued.instructions) == ("acme/small", {"a": "b"}, "Be short")
    response = await ended(gateway, queued.id)
    assert (response.id, response.status, response.output_text) == (queued.id, "completed", "word word word")
    assert (response.background, response.store, response.usage.output_tokens) == (True, True, 3)
    (call,) = await gateway.settled()
    after = await gateway.app.balance()
    assert float(before[0]) - float(after[0]) == pytest.approx(float(call["cost_usd"]))
    assert after[1] == "0.00"
    items = await gateway.openai().responses.input_items.list(queued.id)
    assert [cast("Any", item).content[0].text for item in items.data] == ["say 3 words"]
    batches = await gateway.openai().batches.list()
    files = await gateway.openai().files.list()
    assert (batches.data, files.data) == ([], []), "a background response is neither a batch nor a file"


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_later_requests_continue_a_background_response(
    any_database_gateway: Gateway, model: str
) -> None:
    client = any_database_gateway.openai()
    first = await ended(any_database_gateway, (await begun(any_database_gateway, model=model)).id)
    second = await begun(any_database_gateway, "say 1 words", model=model, previous_response_id=first.id)
    second = await ended(any_database_gateway, second.id)
    assert (second.previous_response_id, second.output_text) == (first.id, "word")
    assert second.usage.input_tokens == first.usage.input_tokens + 20
    reference: Any = [{"type": "item_reference", "id": first.output[-1].id}]
    reference.append({"role": "user", "content": "say 2 words"})
    third = await client.responses.create(model=model, input=reference)
    assert third.output_text == "word word"


async def test_background_response_joins_its_conversation(gateway: Gateway) -> None:
    client = gateway.openai()
    conversation = await client.conversations.create()
    response = await ended(gateway, (await begun(gateway, conversation=conversation.id)).id)
    assert response.conversation.id == conversation.id
    items = await client.conversations.items.list(conversation.id, order="asc")
    assert [cast("Any", item).content[0].text for item in items.data] == ["say 3 words", "word word word"]


async def test_native_background_response_is_stored_locally_only(tmp_path: Path) -> None:
    async with native(tmp_path) as (first, gateway):
        queued = await begun(gateway, "Hello", model="native/small")
        response = await ended(gateway, queued.id)
        assert (response.id, response.output_text) == (queued.id, "I am native")
        sent = first.acme.requests[-1].document
        assert (sent["store"], "background" in sent) == (False, False)
        await gateway.openai().responses.delete(queued.id)
        assert first.acme.forgotten == []
        with pytest.raises(openai.NotFoundError):
            await gateway.openai().responses.retrieve(queued.id)


async def test_failed_background_response_has_its_error_and_is_free(gateway: Gateway) -> None:
    before = await gateway.app.balance()
    gateway.acme.mode = "refuse"
    response = await ended(gateway, (await begun(gateway)).id)
    assert (response.status, response.output, response.error.message) == ("failed", [], "It says so")
    assert await gateway.app.balance() == before
    await gateway.openai().responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await gateway.openai().responses.retrieve(response.id)


async def test_response_that_a_model_server_fails_is_refunded(
    any_database_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = any_database_gateway
    before = await gateway.app.balance()

    async def fail(_: ResponseCapture, body: bytes, _server: str) -> bytes:
        return json.dumps({**json.loads(body), "status": "failed"}).encode()

    monkeypatch.setattr(ResponseCapture, "record", fail)
    response = await ended(gateway, (await begun(gateway)).id)
    assert (response.status, response.error.message) == (
        "failed",
        "The model server did not complete the response.",
    )
    assert await gateway.app.balance() == before
    assert await gateway.app.faults() == ()


async def test_lack_of_credit_fails_a_background_response_at_once(gateway: Gateway) -> None:
    queued = await begun(gateway, key=gateway.app.poor)
    response = await ended(gateway, queued.id, gateway.app.poor)
    assert (response.status, response.error.code) == ("failed", "insufficient_credits")
    assert gateway.acme.requests == []


async def test_canceled_background_response_stops_and_is_not_repeated(
    any_database_gateway: Gateway,
) -> None:
    gateway = any_database_gateway
    gateway.acme.modes = ["hang"]
    queued = await begun(gateway)
    async with asyncio.timeout(60):
        await gateway.acme.request_event.wait()
    client = gateway.openai()
    assert (await client.responses.retrieve(queued.id)).status == "in_progress"
    assert (await client.responses.cancel(queued.id)).status == "cancelled"
    await deleted(gateway, queued.id)
    await gateway.settled()
    assert (len(gateway.acme.requests), await gateway.pending()) == (1, 0)
    assert (await gateway.app.balance())[1] == "0.00"


@pytest.mark.parametrize("ends", ["unstored", "stored", "with tools"])
async def test_response_canceled_after_its_charge_is_refunded(
    any_database_gateway: Gateway, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """A stored response can be read, and calls of tools may have had effects, so both remain charged."""
    gateway, charged, record = any_database_gateway, asyncio.Event(), ResponseCapture.record
    before = await gateway.app.balance()

    async def wait(capture: ResponseCapture, body: bytes, server: str) -> bytes:
        if ends == "stored":
            await record(capture, body, server)
        charged.set()
        return await asyncio.get_running_loop().create_future()

    with monkeypatch.context() as patch:
        patch.setattr(ResponseCapture, "record", wait)
        metadata = {"mcp": "no tool"} if ends == "with tools" else {}
        queued = await begun(gateway, metadata=metadata)
        async with asyncio.timeout(60):
            await charged.wait()
        assert await gateway.app.balance() != before
        # A client cannot cancel a stored response, unless it is stored at the same moment.
        tenant = gateway.app.account.owner.tenant
        await gateway.app.server.batches.cancel_response(tenant, queued.id)
        await deleted(gateway, queued.id)
    assert (await gateway.app.balance() == before) == (ends == "unstored")
    assert (await gateway.app.balance())[1] == "0.00"
    assert await gateway.app.faults() == ()


async def test_response_canceled_on_another_server_is_not_stored(
    any_database_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own server ends the call later; the client has learned that the response is canceled."""
    gateway, record, stop = any_database_gateway, ResponseCapture.record, BatchProcessor._stop
    charged, go_on, may_stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    before = await gateway.app.balance()

    async def wait(capture: ResponseCapture, body: bytes, server: str) -> bytes:
        charged.set()
        await go_on.wait()
        return await record(capture, body, server)

    async def stop_later(processor: BatchProcessor, batch: Batch) -> None:
        if may_stop.is_set():
            await stop(processor, batch)

    monkeypatch.setattr(ResponseCapture, "record", wait)
    monkeypatch.setattr(BatchProcessor, "_stop", stop_later)
    queued, client = await begun(gateway), gateway.openai()
    async with asyncio.timeout(60):
        await charged.wait()
    assert (await client.responses.cancel(queued.id)).status == "cancelled"
    go_on.set()
    await gateway.app.until(*before)
    may_stop.set()
    await deleted(gateway, queued.id)
    assert [call["status"] for call in await gateway.settled()] == ["failed"]
    assert await gateway.app.balance() == before
    assert await gateway.app.faults() == ()


async def test_completed_background_response_is_returned_by_cancel(gateway: Gateway) -> None:
    response = await ended(gateway, (await begun(gateway)).id)
    assert await gateway.openai().responses.cancel(response.id) == response


async def test_stored_background_response_is_returned_by_cancel(
    any_database_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is returned, although its batch has not ended yet."""
    gateway, may_end, end = any_database_gateway, asyncio.Event(), BatchProcessor._end

    async def wait(processor: BatchProcessor, batch: Batch) -> bool:
        await may_end.wait()
        return await end(processor, batch)

    monkeypatch.setattr(BatchProcessor, "_end", wait)
    response = await ended(gateway, (await begun(gateway)).id)
    assert response.status == "completed"
    assert await gateway.openai().responses.cancel(response.id) == response
    may_end.set()
    await deleted(gateway, response.id)


async def test_another_server_runs_an_accepted_background_response(either: Path) -> None:
    async with running_gateway(either, {"batch_concurrency": 0, "batches_per_account": 2}) as gateway:
        client, server = gateway.openai(), gateway.app.server
        accepted, canceled = await begun(gateway), await begun(gateway)
        with pytest.raises(openai.RateLimitError, match="at most 2 unfinished background responses"):
            await begun(gateway)
        assert (await client.responses.retrieve(accepted.id)).status in OPEN
        with pytest.raises(openai.BadRequestError, match="cancel it first"):
            await client.responses.delete(accepted.id)
        with pytest.raises(openai.BadRequestError, match="is not completed"):
            await client.responses.input_items.list(accepted.id)
        other_account = gateway.openai(gateway.app.other).responses
        for operation in (other_account.retrieve, other_account.cancel, other_account.delete):
            with pytest.raises(openai.NotFoundError):
                await operation(accepted.id)
        assert (await client.responses.cancel(canceled.id)).status == "cancelled"
        limits = msgspec.structs.replace(server.batches.limits, concurrency=8)
        other = BatchProcessor(server.database, server.files, limits, server.scheduler.boot)
        runner = server.batch_processor._runner
        assert runner is not None
        other.attach(runner)
        task = asyncio.create_task(other.run())
        response = await ended(gateway, accepted.id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (response.status, response.output_text) == ("completed", "word word word")
        assert (await client.responses.retrieve(canceled.id)).status == "cancelled"
        assert len(gateway.acme.requests) == 1


async def test_repeated_request_has_one_background_response(gateway: Gateway) -> None:
    headers = {"Idempotency-Key": "once"}
    first, second = [await begun(gateway, extra_headers=headers) for _ in range(2)]
    await ended(gateway, first.id)
    assert (first.id, len(await gateway.settled())) == (second.id, 1)


@pytest.mark.parametrize(
    ("wrong", "status", "message"),
    [
        ({"store": False}, 400, "store must not be false"),
        ({"model": "acme/none"}, 400, "acme/none has no price"),
        ({"model": "none/small"}, 404, "none/small"),
        ({"previous_response_id": "resp_none"}, 400, "resp_none"),
        ({"conversation": "conv_none"}, 404, "conv_none"),
        ({"background": "yes"}, 400, "background"),
    ],
)
async def test_invalid_background_request_is_refused_before_queueing(
    gateway: Gateway, wrong: dict[str, Any], status: int, message: str
) -> None:
    body = {"model": "acme/small", "input": "Hello", "background": True, **wrong}
    response = await gateway.app.client.post("/v1/responses", json=body, headers=gateway.headers)
    assert (response.status_code, message in response.json()["error"]["message"]) == (status, True), (
        response.text
    )
    assert gateway.acme.requests == []


async def test_background_needs_stored_responses(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, responses_bytes=0) as gateway:
        with pytest.raises(openai.BadRequestError, match="this server stores no responses"):
            await begun(gateway)


async def test_many_background_responses_run_side_by_side(gateway: Gateway) -> None:
    gateway.acme.mode = "wait"
    queued = [await begun(gateway, max_output_tokens=50) for _ in range(5)]
    await wait_until(lambda: len(gateway.acme.requests) >= 5)
    gateway.acme.go_on.set()
    responses = [await ended(gateway, each.id) for each in queued]
    assert {response.status for response in responses} == {"completed"}
