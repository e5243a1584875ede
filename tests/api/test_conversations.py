"""Conversations by the official client: items, responses, locks, quotas, other accounts."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import openai
import pytest

from sixfold.api.gateway.openai.responses import items as item_forms
from sixfold.core.accounts import keys
from sixfold.core.accounts.rights import Rights
from sixfold.core.database import many
from tests.api.app_fixture import bearer
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_gateway import WEATHER
from tests.api.test_stored_responses import native

BOTH = pytest.mark.parametrize("model", ["acme/small", "anth/small"])
STREAMED = pytest.mark.parametrize("stream", [False, True])
HELLO: Any = {"role": "user", "content": "Hello"}


async def texts(gateway: Gateway, conversation_id: str, **more: Any) -> list[tuple[str, str]]:
    """Return roles and texts of a conversation, oldest first."""
    items = await gateway.openai().conversations.items.list(conversation_id, order="asc", **more)
    return [(item.role, item.content[0].text) async for item in cast("Any", items)]


async def respond(gateway: Gateway, stream: bool = False, **body: Any) -> Any:
    """Return a response; for a stream, the one in its last event."""
    client = gateway.openai()
    if not stream:
        return await client.responses.create(**body)
    events = await client.responses.create(**body, stream=True)
    return [event async for event in cast("Any", events)][-1].response


# -- conversations and items -----------------------------------------------------------------------


async def test_conversation_is_created_read_changed_and_deleted(any_database_gateway: Gateway) -> None:
    client = any_database_gateway.openai()
    result = await client.conversations.create(items=[HELLO], metadata={"of": "mine"})
    assert result.id.startswith("conv_")
    assert (result.object, result.metadata) == ("conversation", {"of": "mine"})
    changed_conversation = await client.conversations.update(result.id, metadata={"of": "ours"})
    assert (changed_conversation.id, changed_conversation.created_at, changed_conversation.metadata) == (
        result.id,
        result.created_at,
        {"of": "ours"},
    )
    assert await client.conversations.retrieve(result.id) == changed_conversation
    deleted = await client.conversations.delete(result.id)
    assert deleted.model_dump() == {"id": result.id, "deleted": True, "object": "conversation.deleted"}
    with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{result.id}' not found"):
        await client.conversations.retrieve(result.id)
    assert await any_database_gateway.app.exported("export_conversation_items") == []


async def test_large_items_are_converted_outside_of_the_loop(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    full_item = item_forms.full_item

    def record(item: Mapping[str, Any], own_id: str) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return full_item(item, own_id)

    monkeypatch.setattr(item_forms, "full_item", record)
    client = gateway.openai()
    conversation = await client.conversations.create(items=[HELLO])
    text = "/media/aaaaaaaaaaaaaaaa.png \n" * 20_000
    items: Any = [{"role": "user", "content": text}] * 2
    await client.conversations.items.create(conversation.id, items=items)
    assert await texts(gateway, conversation.id) == [("user", each) for each in ("Hello", text, text)]
    await client.conversations.create(items=items)
    assert [each is threading.main_thread() for each in threads] == [True, False, False, False, False]


async def test_conversation_needs_no_body(gateway: Gateway) -> None:
    response = await gateway.app.client.post("/v1/conversations", headers=gateway.headers)
    assert (response.status_code, response.json()["metadata"]) == (200, {})


async def test_items_are_added_listed_read_and_deleted(any_database_gateway: Gateway) -> None:
    client = any_database_gateway.openai()
    talk = await client.conversations.create(items=[HELLO])
    more: Any = [{"role": "user", "content": f"part {number}"} for number in range(20)]
    added = await client.conversations.items.create(talk.id, items=more)
    assert (len(added.data), added.has_more, added.object) == (20, False, "list")
    assert added.first_id == added.data[0].id
    page = await client.conversations.items.list(talk.id)
    assert (len(page.data), page.has_more, cast("Any", page).first_id) == (20, True, added.data[-1].id)
    newest = [cast("Any", item) async for item in page]
    assert [item.content[0].text for item in newest] == [
        *(f"part {number}" for number in reversed(range(20))),
        "Hello",
    ]
    oldest = [item async for item in await client.conversations.items.list(talk.id, order="asc", limit=4)]
    assert oldest == newest[::-1]
    one: Any = await client.conversations.items.retrieve(added.data[3].id or "", conversation_id=talk.id)
    assert one == added.data[3]
    left = await client.conversations.items.delete(one.id, conversation_id=talk.id)
    assert left.id == talk.id
    with pytest.raises(openai.NotFoundError, match=f"Item with id '{one.id}' not found"):
        await client.conversations.items.retrieve(one.id, conversation_id=talk.id)
    assert len(await texts(any_database_gateway, talk.id, limit=100)) == 20


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", "", {"items": [HELLO] * 21}, "items"),
        ("POST", "", {"items": "Hello"}, "items"),
        ("POST", "", {"items": [{"role": "robot", "content": ""}]}, "items[0].role"),
        ("POST", "", {"items": [{"role": "user"}]}, "items[0].content"),
        ("POST", "", {"items": [{"type": "item_reference", "id": "msg_1"}]}, "items[0]"),
        ("POST", "", {"items": [{"type": 7}]}, "items[0]"),
        ("POST", "", {"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ("POST", "", {"metadata": {"a": "b" * 513}}, "metadata"),
        ("POST", "", {"metadata": {"a" * 65: ""}}, "metadata"),
        ("POST", "", {"metadata": {"a": 1}}, "metadata"),
        ("POST", "/{id}", {}, "metadata"),
        ("POST", "/{id}/items", {}, "items"),
        ("POST", "/{id}/items", {"items": []}, "items"),
        ("GET", "/{id}/items?limit=101", None, "limit"),
        ("GET", "/{id}/items?order=up", None, "order"),
    ],
)
async def test_invalid_conversation_is_refused(
    gateway: Gateway, method: str, path: str, body: Any, param: str | None
) -> None:
    talk = await gateway.openai().conversations.create()
    url = "/v1/conversations" + path.format(id=talk.id)
    response = await gateway.app.client.request(method, url, json=body, headers=gateway.headers)
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert await texts(gateway, talk.id) == []


async def test_unknown_cursor_is_not_found(gateway: Gateway) -> None:
    client = gateway.openai()
    talk = await client.conversations.create(items=[HELLO])
    with pytest.raises(openai.NotFoundError, match="msg_none"):
        await client.conversations.items.list(talk.id, after="msg_none")


async def test_page_of_large_items_ends_after_8_mib(gateway: Gateway) -> None:
    client = gateway.openai()
    items: Any = [{"role": "user", "content": "a" * (3 * 2**20)} for _ in range(3)]
    talk = await client.conversations.create(items=items)
    page = await client.conversations.items.list(talk.id)
    assert (len(page.data), page.has_more) == (2, True)
    assert len([item async for item in page]) == 3


# -- responses -------------------------------------------------------------------------------------


@STREAMED
@BOTH
async def test_response_continues_its_conversation(gateway: Gateway, model: str, stream: bool) -> None:
    talk = await gateway.openai().conversations.create(items=[{"role": "user", "content": "I am Ada"}])
    text = {"model": model, "conversation": talk.id}
    first = await respond(gateway, stream, input="say 1 words", **text)
    assert first.conversation.id == talk.id
    second = await respond(gateway, stream, input=[{"role": "user", "content": "say 2 words"}], **text)
    assert second.output_text == "word word"
    assert await texts(gateway, talk.id) == [
        ("user", "I am Ada"),
        ("user", "say 1 words"),
        ("assistant", "word"),
        ("user", "say 2 words"),
        ("assistant", "word word"),
    ]
    server = gateway.acme if model == "acme/small" else gateway.anth
    assert len(server.requests[-1].document["messages"]) == (4 if server is gateway.acme else 3)
    remaining = await gateway.openai().responses.retrieve(second.id)
    assert remaining.conversation is not None
    assert remaining.conversation.id == talk.id


@STREAMED
async def test_native_server_gets_the_items_and_no_conversation(tmp_path: Path, stream: bool) -> None:
    async with native(tmp_path) as (first, gateway):
        talk = await gateway.openai().conversations.create(items=[HELLO])
        body: Any = {"model": "native/small", "input": "And?", "conversation": {"id": talk.id}}
        text = [await respond(gateway, stream, **body) for _ in range(2)][-1]
        assert text.conversation.id == talk.id
        document = first.acme.requests[-1].document
        assert "conversation" not in document
        assert [item["role"] for item in document["input"]] == [
            "user", "user", "assistant", "user"
        ]  # fmt: skip
        assert await texts(gateway, talk.id) == [
            ("user", "Hello"),
            ("user", "And?"),
            ("assistant", "I am native"),
            ("user", "And?"),
            ("assistant", "I am native"),
        ]
        assert (await gateway.openai().responses.retrieve(text.id)).conversation == text.conversation


async def test_response_that_is_not_stored_is_in_its_conversation(gateway: Gateway) -> None:
    talk = await gateway.openai().conversations.create()
    text = await respond(gateway, model="acme/small", input="Hello", conversation=talk.id, store=False)
    assert len(await texts(gateway, talk.id)) == 2
    with pytest.raises(openai.NotFoundError):
        await gateway.openai().responses.retrieve(text.id)


@BOTH
async def test_tool_result_continues_a_conversation(gateway: Gateway, model: str) -> None:
    tools: Any = [{"type": "function", "strict": False, **WEATHER["function"]}]
    talk = await gateway.openai().conversations.create()
    first = await respond(gateway, model=model, input="How is it?", conversation=talk.id, tools=tools)
    result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "sun"}
    second = await respond(gateway, model=model, input=[result], conversation=talk.id, tools=tools)
    assert second.output_text == "The tool said sun"
    items = await gateway.openai().conversations.items.list(talk.id, order="asc")
    kinds = [item.type for item in items.data if item.type != "reasoning"]
    assert kinds == ["message", "function_call", "function_call_output", "message"]


async def test_previous_response_of_a_conversation_has_its_items(gateway: Gateway) -> None:
    client = gateway.openai()
    talk = await client.conversations.create(items=[{"role": "user", "content": "I am Ada"}])
    text: Any = {"model": "acme/small", "conversation": talk.id}
    first = await respond(gateway, input="say 1 words", **text)
    await respond(gateway, input="say 2 words", **text)
    branch = await client.responses.create(
        model="acme/small", input="say 3 words", previous_response_id=first.id
    )
    contents = [message["content"] for message in gateway.acme.requests[-1].document["messages"]]
    assert contents == ["I am Ada", "say 1 words", "word", "say 3 words"]
    items = await client.responses.input_items.list(first.id, order="asc")
    assert [cast("Any", item).content[0].text for item in items.data] == ["I am Ada", "say 1 words"]
    items = await client.responses.input_items.list(branch.id, order="asc")
    assert [cast("Any", item).content[0].text for item in items.data] == [
        "I am Ada", "say 1 words", "word", "say 3 words"
    ]  # fmt: skip
    await client.conversations.delete(talk.id)
    with pytest.raises(openai.NotFoundError, match=talk.id):
        await client.responses.create(model="acme/small", input="x", previous_response_id=first.id)


@STREAMED
async def test_failed_response_adds_nothing_and_unlocks(gateway: Gateway, stream: bool) -> None:
    talk = await gateway.openai().conversations.create()
    gateway.acme.modes = ["truncate" if stream else "fail"]
    text = {"model": "acme/small", "input": "say 9 words", "conversation": talk.id}
    if stream:
        assert (await respond(gateway, stream, **text)).status == "failed"
    else:
        with pytest.raises(openai.InternalServerError):
            await respond(gateway, stream, **text)
    assert await texts(gateway, talk.id) == []
    assert (await respond(gateway, stream, **text)).status == "completed"
    assert await gateway.pending() == 0


@STREAMED
async def test_second_response_at_a_time_is_refused_as_locked(gateway: Gateway, stream: bool) -> None:
    client = gateway.openai()
    talk = await client.conversations.create()
    gateway.acme.modes = ["wait"]
    gateway.acme.request_event.clear()
    text: Any = {"model": "acme/small", "input": "say 2 words", "conversation": talk.id}
    first = asyncio.create_task(respond(gateway, stream, **text))
    await gateway.acme.request_event.wait()
    with pytest.raises(openai.BadRequestError) as excinfo:
        await respond(gateway, **text)
    error = cast("Any", excinfo.value.body)
    assert (error["code"], error["param"]) == ("conversation_locked", "conversation")
    with pytest.raises(openai.BadRequestError, match="conversation"):
        await client.conversations.items.create(talk.id, items=[HELLO])
    gateway.acme.go_on.set()
    assert (await first).status == "completed"
    assert len(await texts(gateway, talk.id)) == 2
    await respond(gateway, **text)
    assert len(await texts(gateway, talk.id)) == 4


async def test_client_that_leaves_a_stream_unlocks_its_conversation(gateway: Gateway) -> None:
    client = gateway.openai()
    talk = await client.conversations.create()
    text: Any = {"model": "acme/small", "input": "say 2 words", "conversation": talk.id}
    gateway.acme.modes = ["wait"]
    gateway.acme.request_event.clear()
    task = asyncio.create_task(respond(gateway, True, **text))
    await gateway.acme.request_event.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gateway.acme.go_on.set()
    assert (await respond(gateway, **text)).status == "completed"
    assert len(await texts(gateway, talk.id)) == 2


async def test_lock_of_a_stopped_server_is_taken_over(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    talk = await gateway.openai().conversations.create()
    row: Any = {"account_id": gateway.app.account.id, "id": talk.id, "life": 1, "lock_id": "req_1"}
    result = await gateway.app.database.write(
        many("conversation_lock", **{**row, "holder": "boot_of_a_stopped_server"})
    )
    assert [each["id"] for each in result] == [talk.id]
    text = await respond(gateway, model="acme/small", input="Hello", conversation=talk.id)
    assert text.status == "completed"


async def test_deleted_conversation_stays_deleted(gateway: Gateway) -> None:
    client = gateway.openai()
    talk = await client.conversations.create()
    gateway.acme.modes = ["wait"]
    gateway.acme.request_event.clear()
    first = asyncio.create_task(respond(gateway, model="acme/small", input="x", conversation=talk.id))
    await gateway.acme.request_event.wait()
    await client.conversations.delete(talk.id)
    gateway.acme.go_on.set()
    assert (await first).status == "completed"
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.list(talk.id)


async def test_repeated_request_adds_its_items_once(gateway: Gateway) -> None:
    talk = await gateway.openai().conversations.create()
    once = {"Idempotency-Key": "once"}
    text: Any = {"model": "acme/small", "input": "Hello", "conversation": talk.id, "extra_headers": once}
    answers = [await respond(gateway, **text) for _ in range(2)]
    assert answers[0].id == answers[1].id
    assert len(await texts(gateway, talk.id)) == 2
    await respond(gateway, model="acme/small", input="x", conversation=talk.id)


async def test_conversation_and_previous_response_exclude_each_other(gateway: Gateway) -> None:
    talk = await gateway.openai().conversations.create()
    with pytest.raises(openai.BadRequestError) as excinfo:
        await respond(
            gateway, model="acme/small", input="x", conversation=talk.id, previous_response_id="resp_1"
        )
    assert cast("Any", excinfo.value.body)["code"] == "mutually_exclusive_parameters"
    assert gateway.acme.requests == []


# -- quotas, other accounts, belongings ------------------------------------------------------------


async def test_quotas_limit_conversations_items_and_bytes(tmp_path: Path) -> None:
    rules: Any = {"conversations": 2, "conversation_items": 3, "conversations_bytes": 2000}
    async with running_gateway(tmp_path, **rules) as gateway:
        client = gateway.openai()
        first = await client.conversations.create(items=[HELLO, HELLO])
        second = await client.conversations.create()
        with pytest.raises(openai.APIStatusError, match="at most 2 conversations"):
            await client.conversations.create()
        with pytest.raises(openai.APIStatusError, match="at most 3 items"):
            await client.conversations.items.create(first.id, items=[HELLO, HELLO])
        large: Any = {"role": "user", "content": "a" * 2000}
        for call in (
            client.conversations.items.create(second.id, items=[large]),
            respond(gateway, model="acme/small", input=[large], conversation=second.id),
        ):
            with pytest.raises(openai.APIStatusError, match="at most 2,000 bytes") as excinfo:
                await call
            assert excinfo.value.status_code == 413
        assert gateway.acme.requests == []
        await client.conversations.delete(first.id)
        await client.conversations.create(items=[HELLO])


async def test_conversation_of_another_account_is_not_found(gateway: Gateway) -> None:
    mine = await gateway.openai().conversations.create(items=[HELLO])
    item = (await gateway.openai().conversations.items.list(mine.id)).data[0].id or ""
    other = gateway.openai(gateway.app.other)
    for asking in (
        other.conversations.retrieve(mine.id),
        other.conversations.update(mine.id, metadata={"a": "b"}),
        other.conversations.delete(mine.id),
        other.conversations.items.list(mine.id),
        other.conversations.items.create(mine.id, items=[HELLO]),
        other.conversations.items.retrieve(item, conversation_id=mine.id),
        other.conversations.items.delete(item, conversation_id=mine.id),
        other.responses.create(model="acme/small", input="x", conversation=mine.id),
    ):
        with pytest.raises(openai.NotFoundError, match=mine.id):
            await asking
    assert gateway.acme.requests == []
    assert await texts(gateway, mine.id) == [("user", "Hello")]


async def test_key_without_account_read_finds_only_its_own(gateway: Gateway) -> None:
    mine = await gateway.openai().conversations.create(items=[HELLO])
    result = keys.create(gateway.app.account.id, granted=Rights.RUN)
    key = (await gateway.app.database.write(result)).api_key
    client = gateway.openai(key)
    own = await client.conversations.create(items=[HELLO])
    assert (await client.conversations.retrieve(own.id)).id == own.id
    with pytest.raises(openai.NotFoundError, match=mine.id):
        await client.conversations.retrieve(mine.id)
    assert (await gateway.openai().conversations.retrieve(own.id)).id == own.id


async def test_conversations_are_exported_and_erased(either: Path) -> None:
    async with running_gateway(either, settings={"deletion_days": 0}) as gateway:
        mine = await gateway.openai().conversations.create(items=[HELLO] * 20, metadata={"of": "zeppelins"})
        await gateway.openai().conversations.items.create(mine.id, items=[HELLO] * 20)
        theirs = await gateway.openai(gateway.app.other).conversations.create(items=[HELLO])
        response = await gateway.app.client.get("/api/account/export", headers=gateway.headers)
        pack = zipfile.ZipFile(io.BytesIO(response.content))
        lines = [json.loads(line) for line in pack.read("conversations.jsonl").splitlines()]
        assert [(line["id"], line["metadata"]) for line in lines] == [(mine.id, {"of": "zeppelins"})]
        items = [json.loads(line) for line in pack.read("conversation-items.jsonl").splitlines()]
        assert len(items) == 40
        assert items[0]["item"]["content"][0]["text"] == "Hello"
        sure = {"confirm": "ada@example.com"}
        left = await gateway.app.client.request("DELETE", "/api/account", json=sure, headers=gateway.headers)
        assert left.status_code == 202
        mine_left: Any = {"account_id": gateway.app.account.id}
        usage = await gateway.app.database.read(many("conversation_usage", **mine_left))
        assert usage[0]["conversations"] == 0
        response = await gateway.app.client.get(
            f"/v1/conversations/{theirs.id}", headers=bearer(gateway.app.other)
        )
        assert response.status_code == 200
