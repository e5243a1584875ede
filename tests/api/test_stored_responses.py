"""Stored responses in the official client: reading, continuing, listing, deleting, and other accounts."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import openai
import pytest

from sixfold.api.gateway.openai.responses import stored
from sixfold.core import money
from tests.api.app_fixture import bearer
from tests.api.gateway import PRICE, Gateway, running_gateway
from tests.api.test_gateway import PIXEL, WEATHER

BOTH = pytest.mark.parametrize("model", ["acme/small", "anth/small"])
TOOL: Any = {"type": "function", "strict": False, **WEATHER["function"]}


async def rows(gateway: Gateway) -> list[Any]:
    return await gateway.app.exported("export_responses")


def messages_sent(gateway: Gateway, index: int = -1) -> list[dict[str, Any]]:
    """Return the messages that the server of chat completions received."""
    return gateway.acme.requests[index].document["messages"]


# -- going on --------------------------------------------------------------------------------------


async def test_conversation_continues_by_its_last_response_id(any_database_gateway: Gateway) -> None:
    client = any_database_gateway.openai()
    first = await client.responses.create(model="acme/small", input="say 1 words", instructions="Be short")
    second = await client.responses.create(
        model="acme/small", input="say 2 words", previous_response_id=first.id
    )
    third = await client.responses.create(
        model="acme/small",
        input=[{"role": "user", "content": "say 3 words"}],
        instructions="Be long",
        previous_response_id=second.id,
    )
    assert (first.previous_response_id, second.previous_response_id) == (None, first.id)
    assert (third.previous_response_id, third.output_text) == (second.id, "word word word")
    assert messages_sent(any_database_gateway) == [
        {"role": "system", "content": "Be long"},
        {"role": "user", "content": "say 1 words"},
        {"role": "assistant", "content": "word"},
        {"role": "user", "content": "say 2 words"},
        {"role": "assistant", "content": "word word"},
        {"role": "user", "content": "say 3 words"},
    ]
    assert messages_sent(any_database_gateway, 1)[0] == {"role": "user", "content": "say 1 words"}, (
        "nobody's instructions"
    )


@BOTH
async def test_history_of_a_response_is_counted_and_charged(gateway: Gateway, model: str) -> None:
    client = gateway.openai()
    before = (await gateway.app.balance())[0]
    first = await client.responses.create(model=model, input="say 1 words", max_output_tokens=50)
    between = (await gateway.app.balance())[0]
    second = await client.responses.create(
        model=model, input="say 1 words", max_output_tokens=50, previous_response_id=first.id
    )
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens == first.usage.input_tokens + 20
    after = (await gateway.app.balance())[0]
    paid = [money.parse_usd(old) - money.parse_usd(new) for old, new in ((before, between), (between, after))]
    assert paid[1] - paid[0] == 20 * int(PRICE["input_per_million_usd"])
    holds = [money.parse_usd(call["held_usd"]) for call in await gateway.settled(2)]
    assert holds[0] > holds[1], "newest first: what was said before is held, too"


@BOTH
@pytest.mark.parametrize("stream", [False, True])
async def test_tool_result_alone_continues_a_stored_response(
    gateway: Gateway, model: str, stream: bool
) -> None:
    client = gateway.openai()
    request: Any = {"model": model, "tools": [TOOL], "input": "How is it?"}
    if stream:
        async with client.responses.stream(**request) as events:
            answer: Any = await events.get_final_response()
    else:
        answer = await client.responses.create(**request)
    call = answer.output[-1]
    messages: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "sun"}]
    answer = await client.responses.create(
        model=model, tools=[TOOL], input=messages, previous_response_id=answer.id
    )
    assert answer.output_text == "The tool said sun"


@BOTH
async def test_stored_items_can_be_referenced(gateway: Gateway, model: str) -> None:
    client = gateway.openai()
    requests: list[Any] = [{"role": "user", "content": "How is it?"}]
    first = await client.responses.create(model=model, input=requests, tools=[TOOL])
    requests += [{"type": "item_reference", "id": item.id} for item in first.output]
    call = cast("Any", first.output[-1])
    requests.append({"type": "function_call_output", "call_id": call.call_id, "output": "snow"})
    second = await client.responses.create(model=model, input=requests, tools=[TOOL])
    assert second.output_text == "The tool said snow"
    requests = [
        {"type": "item_reference", "id": second.output[-1].id},
        {"role": "user", "content": "say 2 words"},
    ]
    third = await client.responses.create(model=model, input=requests, previous_response_id=first.id)
    assert third.output_text == "word word"


async def test_items_of_an_input_are_read_in_another_thread(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await gateway.openai().responses.create(model="acme/small", input="Hello")
    threads: list[threading.Thread] = []
    read = stored.items_by_id

    def record(chain: Any) -> Any:
        threads.append(threading.current_thread())
        return read(chain)

    monkeypatch.setattr(stored, "items_by_id", record)
    items = await gateway.openai().responses.input_items.list(first.id)
    assert (len(items.data), len(threads)) == (1, 1)
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize("name", ["msg_none_0", "msg", "", None])
async def test_unknown_or_foreign_item_is_404_and_named(gateway: Gateway, name: Any) -> None:
    theirs = await gateway.openai(gateway.app.other).responses.create(model="acme/small", input="Hello")
    name = theirs.output[0].id if name is None else name
    reference: Any = [{"type": "item_reference", "id": name}, {"role": "user", "content": "Hello"}]
    with pytest.raises(openai.NotFoundError, match=f"Item with id '{name}' not found"):
        await gateway.openai().responses.create(model="acme/small", input=reference)
    text = await gateway.openai().responses.create(model="acme/small", input='Say "item_reference"')
    assert text.status == "completed"


async def test_conversation_continues_with_another_model_and_branches(gateway: Gateway) -> None:
    client = gateway.openai()
    first = await client.responses.create(model="acme/small", input="say 2 words")
    ways = [
        await client.responses.create(model="anth/small", input=text, previous_response_id=first.id)
        for text in ("say 3 words", "say 4 words")
    ]
    assert [way.output_text for way in ways] == [" ".join(["word"] * count) for count in (3, 4)]
    assert [len(request.document["messages"]) for request in gateway.anth.requests] == [3, 3]


async def test_images_of_earlier_turns_are_sent_again(gateway: Gateway) -> None:
    client = gateway.openai()
    content = [{"type": "input_text", "text": "Look"}, {"type": "input_image", "image_url": PIXEL}]
    first = await client.responses.create(
        model="acme/small", input=cast("Any", [{"role": "user", "content": content}])
    )
    await client.responses.create(model="acme/small", input="Again", previous_response_id=first.id)
    assert messages_sent(gateway)[0]["content"][1]["image_url"]["url"] == PIXEL


async def test_each_stored_response_has_only_its_new_input(gateway: Gateway) -> None:
    client, previous = gateway.openai(), openai.omit
    for turn in range(6):
        answer = await client.responses.create(
            model="acme/small", input=f"turn {turn}: say 1 words", previous_response_id=previous
        )
        previous = cast("Any", answer.id)
    remaining = await rows(gateway)
    assert [len(json.loads(row["input"])) for row in remaining] == [1] * 6
    assert max(len(row["input"]) for row in remaining) < 200
    assert len(messages_sent(gateway)) == 11


async def test_repeated_idempotency_key_continues_a_response_once(gateway: Gateway) -> None:
    client = gateway.openai()
    first = await client.responses.create(model="acme/small", input="say 1 words")
    answers = [
        await client.responses.create(
            model="acme/small",
            input="say 2 words",
            previous_response_id=first.id,
            extra_headers={"Idempotency-Key": "once"},
        )
        for _ in range(2)
    ]
    assert answers[0].id == answers[1].id
    assert (await client.responses.retrieve(answers[0].id)).output_text == "word word"
    assert len(gateway.acme.requests) == 2


# -- stored responses ------------------------------------------------------------------------------


@BOTH
async def test_stored_response_is_retrieved_unchanged(any_database_gateway: Gateway, model: str) -> None:
    client = any_database_gateway.openai()
    response = await client.responses.create(model=model, input="say 3 words", metadata={"of": "mine"})
    assert cast("Any", response).store is True
    assert await client.responses.retrieve(response.id) == response
    another = await any_database_gateway.app.exported("export_calls")
    assert [row["request"] for row in another] == [None], "the log has no bodies for that"


@BOTH
async def test_stream_is_stored_before_its_last_event(gateway: Gateway, model: str) -> None:
    client = gateway.openai()
    stream = await client.responses.create(model=model, input="say 5 words", stream=True)
    response: Any = None
    async for event in stream:
        if event.type == "response.completed":
            response = event.response
            assert await client.responses.retrieve(response.id) == response
    following = await client.responses.create(
        model=model, input="say 1 words", previous_response_id=response.id, stream=True
    )
    assert [event.type async for event in following][-1] == "response.completed"


async def test_truncated_response_is_stored_and_failed_one_is_not(gateway: Gateway) -> None:
    client = gateway.openai()
    cut = await client.responses.create(model="acme/small", input="say 9 words", max_output_tokens=4)
    assert (await client.responses.retrieve(cut.id)).status == "incomplete"
    gateway.acme.mode = "truncate"
    stream = await client.responses.create(model="acme/small", input="say 9 words", stream=True)
    assert [event.type async for event in stream][-1] == "response.failed"
    assert [row["id"] for row in await rows(gateway)] == [cut.id]


@pytest.mark.parametrize("stream", [False, True])
async def test_store_false_stores_no_response(gateway: Gateway, stream: bool) -> None:
    client = gateway.openai()
    answer: Any = await client.responses.create(
        model="acme/small", input="say 1 words", store=False, stream=stream
    )
    if stream:
        *_, answer = [event.response async for event in answer if event.type == "response.completed"]
    assert answer.store is False
    with pytest.raises(openai.NotFoundError) as excinfo:
        await client.responses.retrieve(answer.id)
    assert f"Response with id '{answer.id}' not found." in str(excinfo.value)
    assert await rows(gateway) == []


@pytest.mark.parametrize(
    ("rules", "store", "stored_count"),
    [
        ({"store_responses": False}, openai.omit, 0),
        ({"store_responses": False}, True, 1),
        ({"responses_bytes": 0}, True, 0),
    ],
)
async def test_operator_sets_the_default_and_limit_of_storing(
    tmp_path: Path, rules: dict[str, Any], store: Any, stored_count: int
) -> None:
    async with running_gateway(tmp_path, **rules) as gateway:
        answer = await gateway.openai().responses.create(model="acme/small", input="Hello", store=store)
        assert cast("Any", answer).store is bool(stored_count)
        assert len(await rows(gateway)) == stored_count


# -- reading, listing, deleting --------------------------------------------------------------------


async def test_the_items_of_an_input_are_listed_in_pages(gateway: Gateway) -> None:
    client = gateway.openai()
    first = await client.responses.create(model="acme/small", input="say 1 words")
    more: Any = [{"role": "user", "content": f"part {number}"} for number in range(24)]
    second = await client.responses.create(model="acme/small", input=more, previous_response_id=first.id)
    page = await client.responses.input_items.list(second.id)
    assert (len(page.data), page.has_more) == (20, True)
    newest = [cast("Any", item) async for item in page]
    assert len({item.id for item in newest}) == len(newest) == 26
    oldest = [item async for item in await client.responses.input_items.list(second.id, order="asc", limit=7)]
    assert oldest == newest[::-1]
    texts = [item.content[0].text for item in newest[::-1]]
    assert texts == ["say 1 words", "word", *(f"part {number}" for number in range(24))]
    kinds = [(item.type, item.role, item.content[0].type) for item in newest[-2:]]
    assert kinds == [("message", "assistant", "output_text"), ("message", "user", "input_text")]
    after = await client.responses.input_items.list(second.id, order="asc", after=oldest[-2].id)
    assert ([item.id for item in after.data], after.has_more) == ([oldest[-1].id], False)


async def test_referenced_item_is_listed_once(gateway: Gateway) -> None:
    client = gateway.openai()
    first = await client.responses.create(model="acme/small", input="say 1 words")
    second_input: Any = [
        {"type": "item_reference", "id": first.output[0].id},
        {"role": "user", "content": "Hello"},
    ]
    second = await client.responses.create(
        model="acme/small", input=second_input, previous_response_id=first.id
    )
    items = [item async for item in await client.responses.input_items.list(second.id, order="asc", limit=1)]
    texts = [cast("Any", item).content[0].text for item in items]
    assert texts == ["say 1 words", "word", "Hello"]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=msg_none"])
async def test_invalid_page_parameters_are_400(gateway: Gateway, query: str) -> None:
    response = await gateway.openai().responses.create(model="acme/small", input="Hello")
    answer = await gateway.app.client.get(
        f"/v1/responses/{response.id}/input_items?{query}", headers=gateway.headers
    )
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert query.partition("=")[0] in answer.json()["error"]["message"]


async def test_a_deleted_response_is_gone_and_its_conversation_ends(gateway: Gateway) -> None:
    client = gateway.openai()
    first = await client.responses.create(model="acme/small", input="say 1 words")
    second = await client.responses.create(model="acme/small", input="Hello", previous_response_id=first.id)
    path = f"/v1/responses/{first.id}"
    deleted = await gateway.app.client.delete(path, headers=gateway.headers)
    assert deleted.json() == {"id": first.id, "object": "response", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        await client.responses.delete(first.id)
    assert (await client.responses.retrieve(second.id)).id == second.id
    with pytest.raises(openai.BadRequestError) as excinfo:
        await client.responses.create(model="acme/small", input="Hello", previous_response_id=second.id)
    assert first.id in str(excinfo.value)


async def test_ended_response_cannot_be_canceled(gateway: Gateway) -> None:
    client = gateway.openai()
    response = await client.responses.create(model="acme/small", input="Hello")
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        await client.responses.cancel(response.id)


@pytest.mark.parametrize("stream", [False, True])
async def test_unknown_previous_response_is_400_as_at_openai(gateway: Gateway, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as excinfo:
        await gateway.openai().responses.create(
            model="acme/small", input="Hello", previous_response_id="resp_none", stream=stream
        )
    assert excinfo.value.body == {
        "message": "Previous response with id 'resp_none' not found.",
        "type": "invalid_request_error",
        "param": "previous_response_id",
        "code": "previous_response_not_found",
    }
    assert await gateway.pending() == 0


async def test_response_of_another_account_is_not_found(gateway: Gateway) -> None:
    mine = await gateway.openai().responses.create(model="acme/small", input="a zeppelin")
    other = gateway.openai(gateway.app.other)
    for asking in (
        other.responses.retrieve(mine.id),
        other.responses.delete(mine.id),
        other.responses.cancel(mine.id),
        other.responses.input_items.list(mine.id),
    ):
        with pytest.raises(openai.NotFoundError, match=mine.id):
            await asking
    with pytest.raises(openai.BadRequestError, match="Previous response"):
        await other.responses.create(model="acme/small", input="Hello", previous_response_id=mine.id)
    assert (await gateway.openai().responses.retrieve(mine.id)).id == mine.id
    response = await gateway.app.client.get(f"/v1/responses/{mine.id}")
    assert response.status_code == 401


# -- servers that speak responses themselves -------------------------------------------------------


@asynccontextmanager
async def native(folder: Path, **policy: Any) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """A gateway to a server of responses and to one that is not, and the one that has that server."""
    async with running_gateway(folder) as first:
        row = {"kind": "openai", "api_key": "k", "responses": True, "models": ["small"]}
        upstreams = {
            "native": {**row, "base_url": first.acme.url},
            "plain": {**row, "base_url": first.anth.url, "responses": False},
        }
        prices = {"native/small": PRICE, "plain/small": PRICE}
        names = {"turned": ["native/small", "plain/small"]}
        async with running_gateway(
            folder / "b", upstreams=upstreams, prices=prices, aliases=names, **policy
        ) as gateway:
            yield first, gateway


@pytest.mark.parametrize("stream", [False, True])
async def test_server_that_stored_a_response_gets_its_id(tmp_path: Path, stream: bool) -> None:
    async with native(tmp_path) as (first, gateway):
        client = gateway.openai()
        response: Any = await client.responses.create(model="native/small", input="Hello", stream=stream)
        if stream:
            *_, response = [event.response async for event in response if event.type == "response.completed"]
        assert await client.responses.retrieve(response.id) == response
        second_body = {
            "model": "native/small",
            "input": "And?",
            "previous_response_id": response.id,
            "odd": [1, 2.50],
        }
        answer = await gateway.app.client.post("/v1/responses", json=second_body, headers=gateway.headers)
        assert answer.status_code == 200
        assert first.acme.requests[-1].document == {**second_body, "model": "small"}
        items = await client.responses.input_items.list(answer.json()["id"], order="asc")
        assert [cast("Any", item).content[0].text for item in items.data] == ["Hello", "I am native", "And?"]


async def test_hold_includes_the_history_stored_at_the_server(tmp_path: Path) -> None:
    async with native(tmp_path) as (_, gateway):
        client = gateway.openai()
        limit: Any = {"model": "native/small", "max_output_tokens": 1}
        response = await client.responses.create(input="Hello " * 1000, **limit)
        await client.responses.create(input="And?", previous_response_id=response.id, **limit)
        later, first = [float(call["held_usd"]) for call in await gateway.settled(2)]
        assert first > 0.1
        assert 0.95 * first < later < 1.05 * first


async def test_turns_that_the_server_has_not_stored_are_sent_again(tmp_path: Path) -> None:
    async with native(tmp_path) as (first, gateway):
        client = gateway.openai()
        plain = await client.responses.create(model="plain/small", input="say 2 words")
        await client.responses.create(model="native/small", input="And?", previous_response_id=plain.id)
        document = first.acme.requests[-1].document
        assert "previous_response_id" not in document
        assert [item["role"] for item in document["input"]] == ["user", "assistant", "user"]
        assert document["input"][1]["content"][0]["text"] == "word word"


async def test_fallback_server_gets_the_complete_history(tmp_path: Path) -> None:
    async with native(tmp_path) as (first, gateway):
        client = gateway.openai()
        response = await client.responses.create(model="turned", input="Hello")
        first.acme.mode = "fail"
        answer = await client.responses.create(
            model="turned", input="say 3 words", previous_response_id=response.id
        )
        assert answer.output_text == "word word word"
        messages = first.anth.requests[-1].document["messages"]
        assert [message["content"] for message in messages] == ["Hello", "I am native", "say 3 words"]


async def test_unknown_response_id_is_passed_on_for_the_operator(tmp_path: Path) -> None:
    async with native(tmp_path) as (first, gateway):
        client, previous = gateway.openai(await gateway.app.operator_key()), "resp_elsewhere"
        for _ in range(2):
            answer = await client.responses.create(
                model="native/small", input="Hello", previous_response_id=previous
            )
            assert first.acme.requests[-1].document["previous_response_id"] == previous
            previous = answer.id
        with pytest.raises(openai.BadRequestError, match="resp_elsewhere"):
            await client.responses.create(model="plain/small", input="And?", previous_response_id=previous)


# -- belongings ------------------------------------------------------------------------------------


async def test_stored_responses_are_exported_and_erased(either: Path) -> None:
    async with running_gateway(either, settings={"deletion_days": 0}) as gateway:
        response = await gateway.openai().responses.create(model="acme/small", input="a zeppelin")
        theirs = await gateway.openai(gateway.app.other).responses.create(
            model="acme/small", input="an airship"
        )
        answer = await gateway.app.client.get("/api/account/export", headers=gateway.headers)
        pack = zipfile.ZipFile(io.BytesIO(answer.content))
        lines = [json.loads(line) for line in pack.read("responses.jsonl").splitlines()]
        assert [(line["id"], line["response"]["id"], line["previous"]) for line in lines] == [
            (response.id, response.id, None)
        ]
        assert lines[0]["input"][0]["content"][0]["text"] == "a zeppelin"
        sure = {"confirm": "ada@example.com"}
        left = await gateway.app.client.request("DELETE", "/api/account", json=sure, headers=gateway.headers)
        assert left.status_code == 202
        assert await rows(gateway) == []
        answer = await gateway.app.client.get(f"/v1/responses/{theirs.id}", headers=bearer(gateway.app.other))
        assert answer.status_code == 200
