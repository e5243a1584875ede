"""Batches of messages in Anthropic's format, by the official client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.api.gateway import Gateway, running_gateway


def message(custom_id: str, words: int = 3, model: str = "anth/small", **more: Any) -> Any:
    """Return a request for some words."""
    messages = [{"role": "user", "content": f"say {words} words"}]
    return {
        "custom_id": custom_id,
        "params": {"model": model, "max_tokens": 100, "messages": messages, **more},
    }


async def finished_batch(gateway: Gateway, batch_id: str) -> Any:
    """Wait until a batch of messages has ended, and return it."""
    client = gateway.anthropic()
    async with asyncio.timeout(60):
        while True:
            result = await client.messages.batches.retrieve(batch_id)
            if result.processing_status == "ended":
                return result
            await asyncio.sleep(0.02)


async def test_anthropic_client_runs_a_batch_of_messages(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    client = gateway.anthropic()
    expected = [message("a", 1), message("b", 2, "acme/small"), message("c", model="none/such")]
    output = await client.messages.batches.create(requests=expected)
    assert (output.type, output.processing_status, output.request_counts.processing) == (
        "message_batch",
        "in_progress",
        3,
    )
    assert (output.expires_at - output.created_at).total_seconds() == 24 * 3600
    batch = await finished_batch(gateway, output.id)
    assert batch.request_counts.model_dump() == {
        "processing": 0,
        "succeeded": 2,
        "errored": 1,
        "canceled": 0,
        "expired": 0,
    }
    results = await client.messages.batches.results(output.id)
    result: dict[str, Any] = {each.custom_id: each.result async for each in results}
    first, second, third = result["a"], result["b"], result["c"]
    assert first.type == second.type == "succeeded"
    assert [block.text for block in first.message.content if block.type == "text"] == ["word"]
    assert third.type == "errored"
    assert third.error.error.type == "not_found_error"
    assert [each.id async for each in client.messages.batches.list(limit=1)] == [output.id]
    assert await gateway.openai().batches.list() is not None
    assert [each.id async for each in gateway.openai().batches.list()] == []
    assert (await client.messages.batches.delete(output.id)).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.batches.retrieve(output.id)
    assert [each.id async for each in client.beta.files.list()] == []


async def test_a_canceled_batch_of_messages_has_canceled_results(gateway: Gateway) -> None:
    client = gateway.anthropic()
    gateway.anth.mode = "wait"
    result = await client.messages.batches.create(requests=[message(str(n)) for n in range(40)])
    async with asyncio.timeout(60):
        await gateway.anth.request_event.wait()
    with pytest.raises(anthropic.BadRequestError, match="cancel it first"):
        await client.messages.batches.delete(result.id)
    with pytest.raises(anthropic.AnthropicError, match="results_url"):
        await client.messages.batches.results(result.id)
    canceled = await client.messages.batches.cancel(result.id)
    assert canceled.processing_status == "canceling"
    gateway.anth.mode = "well"
    gateway.anth.go_on.set()
    batch = await finished_batch(gateway, result.id)
    assert batch.request_counts.canceled > 0
    assert batch.request_counts.canceled + batch.request_counts.succeeded == 40
    kinds = [each.result.type async for each in await client.messages.batches.results(result.id)]
    assert kinds.count("canceled") == batch.request_counts.canceled
    assert (await client.messages.batches.cancel(result.id)).processing_status == "ended"


@pytest.mark.parametrize(
    ("requests", "message_text"),
    [
        ([], "must have 1 to"),
        ([message("a b")], "requests.0.custom_id: must be 1 to 64"),
        ([message("a"), message("a")], "requests.1: The custom_id 'a' is used more than once"),
        ([message("a", stream=True)], "requests.0: stream must be false"),
        ([{"custom_id": "a", "params": {}}], "requests.0: Invalid request"),
    ],
)
async def test_invalid_batches_of_messages_are_refused(
    gateway: Gateway, requests: list[Any], message_text: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as excinfo:
        await gateway.anthropic().messages.batches.create(requests=requests)
    body: Any = excinfo.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert message_text in body["error"]["message"]
    assert [each.id async for each in gateway.anthropic().messages.batches.list()] == []


@pytest.mark.parametrize("public", ["", "https://media.example.com"])
async def test_results_url_has_the_public_or_the_requested_origin(tmp_path: Path, public: str) -> None:
    async with running_gateway(tmp_path, settings={"public_url": public}) as gateway:
        created = await gateway.anthropic().messages.batches.create(requests=[message("a")])
        batch = await finished_batch(gateway, created.id)
        async with gateway.app.visitor(base_url="http://192.168.1.5:8600") as visitor:
            headers = {**gateway.headers, "anthropic-version": "2023-06-01"}
            document = (await visitor.get(f"/v1/messages/batches/{batch.id}", headers=headers)).json()
        origin = public or "http://192.168.1.5:8600"
        assert document["results_url"] == f"{origin}/v1/messages/batches/{batch.id}/results"
