"""Streams of stored and background responses, as the official library reads and continues them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from sixfold.core.accounts.keys import Principal
from sixfold.core.batches.models import Batch
from sixfold.core.batches.service import BatchService, NewBatch
from sixfold.core.concurrency import loaded_objects
from sixfold.core.concurrency.memory_limit import MemoryLease, MemoryLimit
from tests.api.gateway import Gateway, listening, running_gateway
from tests.api.test_response_tools import WEATHER, running

FUNCTION: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
async def gateway(either: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(either) as result:
        yield result


@pytest.fixture
async def cheap_gateway(either: Path) -> AsyncIterator[Gateway]:
    price = {"input_per_million_usd": "0.01", "output_per_million_usd": "0.01"}
    async with running_gateway(either, prices={"acme/small": price}) as result:
        yield result


def unlike_deltas(events: list[Any]) -> list[str]:
    """Return the types of the events, with consecutive deltas as one."""
    names = [event.type for event in events]
    return [name for at, name in enumerate(names) if not name.endswith(".delta") or names[at - 1] != name]


@pytest.mark.parametrize(
    "fields", [{"input": "say 3 words"}, {"input": "Rain?", "tools": [FUNCTION]}, {"input": "think"}]
)
@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_stored_response_has_the_events_of_its_stream(
    gateway: Gateway, fields: dict[str, Any], model: str
) -> None:
    client: Any = gateway.openai().responses
    live = [event async for event in await client.create(model=model, **fields, stream=True)]
    response = live[-1].response
    again = [event async for event in await client.retrieve(response.id, stream=True)]
    assert unlike_deltas(again) == unlike_deltas(live)
    assert [event.sequence_number for event in again] == list(range(len(again)))
    assert again[-1].response == await client.retrieve(response.id)
    # The numbers of the live stream, which has several deltas, are not those of these events.
    with pytest.raises(openai.BadRequestError, match="omit starting_after to read all events"):
        await client.retrieve(response.id, stream=True, starting_after=3)


async def test_stream_of_a_background_response_is_continued(gateway: Gateway) -> None:
    client: Any = gateway.openai().responses
    fields = {"model": "acme/small", "input": "say 3 words", "background": True}
    events = [event async for event in await client.create(**fields, stream=True)]
    own_id = events[0].response.id
    rest = [event async for event in await client.retrieve(own_id, stream=True, starting_after=3)]
    assert rest == events[4:]
    async with client.stream(response_id=own_id, starting_after=1) as helper:
        assert (await anext(aiter(helper))).sequence_number == 2


async def test_calls_of_mcp_tools_are_replayed(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, _):
        client: Any = gateway.openai().responses
        response = await client.create(model="acme/small", input="Will it snow?", tools=[WEATHER])
        names = [event.type async for event in await client.retrieve(response.id, stream=True)]
        assert names.count("response.output_item.done") == len(response.output) == 3
        assert "response.mcp_call_arguments.done" in names


async def test_background_response_is_streamed_when_it_is_complete(gateway: Gateway) -> None:
    gateway.acme.mode = "wait"
    async with listening(gateway.app.asgi) as origin:
        library = openai.AsyncOpenAI(api_key=gateway.app.key, base_url=f"{origin}/v1", max_retries=0)
        async with library as client:
            stream: Any = await client.responses.create(
                model="acme/small", input="say 3 words", background=True, stream=True
            )
            events = [await anext(stream) for _ in range(3)]
            assert [event.type for event in events] == [
                *("response.created", "response.queued", "response.in_progress"),
            ]
            own_id = events[0].response.id
            await stream.close()
            gateway.acme.mode = "well"
            gateway.acme.go_on.set()
            rest: Any = await client.responses.retrieve(own_id, stream=True, starting_after=2)
            events += [event async for event in rest]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[-1].type, events[-1].response.id) == ("response.completed", own_id)
    assert events[-1].response.output_text == "word word word"
    assert len(await gateway.settled()) == 1


async def test_background_stream_does_not_block_its_own_work(
    cheap_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One account uses half of it, less than two requests with this conversation.
    monkeypatch.setattr(loaded_objects, "MAX_BYTES", 2**21)
    client: Any = cheap_gateway.openai().responses
    first = await client.create(model="acme/small", input=f"say 3 words {'x' * 150_000}")
    fields = {"model": "acme/small", "input": "say 2 words", "previous_response_id": first.id}
    async with asyncio.timeout(20):
        stream = await client.create(**fields, background=True, stream=True)
        events = [event async for event in stream]
    assert events[-1].type == "response.completed"


async def test_stream_releases_the_memory_of_its_sent_body(
    cheap_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = cheap_gateway.openai().responses
    first = await client.create(model="acme/small", input=f"say 3 words {'x' * 150_000}")
    sizes: list[int] = []
    shrink = MemoryLimit.shrink

    def record(limit: MemoryLimit, lease: MemoryLease, size: int) -> None:
        sizes.extend([lease.size, size] if lease.size else [])
        shrink(limit, lease, size)

    monkeypatch.setattr(MemoryLimit, "shrink", record)
    stream = await client.create(
        model="acme/small", input="say 2 words", previous_response_id=first.id, stream=True
    )
    assert [event async for event in stream][-1].type == "response.completed"
    whole, rest, before_end, end = sizes
    assert (whole > 600_000, rest == before_end == whole // 2, end) == (True, True, 0)


async def test_stream_above_the_limit_creates_no_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[NewBatch] = []
    create = BatchService.create_from_path

    async def record(service: BatchService, principal: Principal, new: NewBatch, path: Path) -> Batch:
        batches.append(new)
        return await create(service, principal, new, path)

    monkeypatch.setattr(BatchService, "create_from_path", record)
    async with running_gateway(tmp_path, {"chat_streams_per_account": 1}) as gateway:
        gateway.acme.mode = "wait"
        async with listening(gateway.app.asgi) as origin:
            library = openai.AsyncOpenAI(api_key=gateway.app.key, base_url=f"{origin}/v1", max_retries=0)
            async with library as client:
                fields: Any = {"model": "acme/small", "input": "a", "background": True, "stream": True}
                first: Any = await client.responses.create(**fields)
                own_id = (await anext(first)).response.id
                with pytest.raises(openai.RateLimitError, match="1 open streamed chats"):
                    await client.responses.create(**fields)
                with pytest.raises(openai.RateLimitError, match="1 open streamed chats"):
                    await client.responses.retrieve(own_id, stream=True)
                gateway.acme.go_on.set()
                assert [event async for event in first][-1].type == "response.completed"
    assert [batch.response_id for batch in batches] == [own_id]


async def test_failed_background_response_ends_with_its_error(gateway: Gateway) -> None:
    gateway.acme.mode = "refuse"
    async with listening(gateway.app.asgi) as origin:
        library = openai.AsyncOpenAI(api_key=gateway.app.key, base_url=f"{origin}/v1", max_retries=0)
        async with library as client:
            stream: Any = await client.responses.create(
                model="acme/small", input="say 3 words", background=True, stream=True
            )
            events = [event async for event in stream]
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    assert "It says so" in events[-1].response.error.message


async def test_invalid_streams_are_refused(gateway: Gateway) -> None:
    client: Any = gateway.openai().responses
    with pytest.raises(openai.NotFoundError):
        await client.retrieve("resp_none", stream=True)
    response = await client.create(model="acme/small", input="say 3 words")
    with pytest.raises(openai.BadRequestError, match="starting_after must be the number"):
        await client.retrieve(response.id, stream=True, extra_query={"starting_after": "x"})
    with pytest.raises(openai.BadRequestError, match="omit Idempotency-Key"):
        await client.create(
            model="acme/small",
            input="a",
            background=True,
            stream=True,
            extra_headers={"Idempotency-Key": "a"},
        )
