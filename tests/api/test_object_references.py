"""Objects that a model server stores for one account are not available to other accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from sixfold.core.concurrency import loaded_objects
from sixfold.core.concurrency.memory_limit import MemoryLease, MemoryLimit
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_stored_responses import native

MODEL = "native/small"
AND: Any = {"role": "user", "content": "And?"}
CALL: Any = {
    "type": "code_interpreter_call",
    "id": "ci_1",
    "code": "1",
    "container_id": "cntr_1",
    "status": "completed",
    "outputs": [],
}


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """A gateway to the fake server, and a gateway to its native responses."""
    async with native(tmp_path) as pair:
        yield pair


async def test_reference_to_an_own_item_is_passed_on(servers: tuple[Gateway, Gateway]) -> None:
    first, gateway = servers
    client = gateway.openai()
    result = await client.responses.create(model=MODEL, input="Hello")
    items: Any = [{"type": "item_reference", "id": result.output[0].id}, AND]
    await client.responses.create(model=MODEL, input=items)
    assert first.acme.requests[-1].document["input"] == items
    bare: Any = [{"id": result.output[0].id}, AND]
    await client.responses.create(model=MODEL, input=bare)
    assert first.acme.requests[-1].document["input"] == bare


async def read_at_once(gateway: Gateway, way: str, first: Any, stored: str, conversation_id: str) -> None:
    """Read a stored object of a response, or continue with it, in eight concurrent requests."""
    client = gateway.openai()
    part: Any = {"role": "user", "content": [{"type": "input_text", "text": "And?"}]}
    body: Any = {"previous_response_id": first.id, "input": [part]}
    if way == "item":
        body = {"input": [{"type": "item_reference", "id": first.output[0].id}]}
    items = client.conversations.items
    requests: dict[str, Callable[[], Awaitable[object]]] = {
        "list of items": lambda: client.responses.input_items.list(first.id),
        "response": lambda: client.responses.retrieve(first.id),
        "items of a conversation": lambda: items.list(conversation_id),
        "item of a conversation": lambda: items.retrieve(stored, conversation_id=conversation_id),
    }
    request = requests.get(way, lambda: client.responses.create(model="acme/small", **body))
    await asyncio.gather(*(request() for _ in range(8)))


@pytest.mark.parametrize(
    "way",
    [
        *("previous response", "conversation", "item", "list of items"),
        *("response", "items of a conversation", "item of a conversation"),
    ],
)
async def test_concurrent_continuations_share_a_limit_of_memory(
    way: str, either: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[int] = []
    resize = MemoryLimit.resize

    async def record(limit: MemoryLimit, lease: MemoryLease, size: int) -> None:
        await resize(limit, lease, size)
        reserved.append(limit.total)

    # One account uses half of it.
    monkeypatch.setattr(loaded_objects, "MAX_BYTES", 2**21)
    price = {"input_per_million_usd": "0.01", "output_per_million_usd": "0.01"}
    async with running_gateway(either, prices={"acme/small": price}) as gateway:
        client, model = gateway.openai(), "acme/small"
        conversation = await client.conversations.create()
        first = await client.responses.create(
            model=model, input=f"say 9 words {'x' * 150_000}", conversation=conversation.id
        )
        stored = (await client.responses.input_items.list(first.id, order="asc")).data[0].id or ""
        monkeypatch.setattr(MemoryLimit, "resize", record)
        if way == "conversation":
            part: Any = {"role": "user", "content": [{"type": "input_text", "text": "And?"}]}
            await client.responses.create(model=model, input=[part], conversation=conversation.id)
        else:
            await read_at_once(gateway, way, first, stored, conversation.id)
    # A single request may exceed its share: the response is read with the conversation in which it began.
    least = 280_000 if way == "response" else 600_000
    assert (max(reserved) > least, max(reserved) < 1_400_000) == (True, True)


async def test_items_in_place_of_many_references_have_a_limit(tmp_path: Path) -> None:
    price = {"input_per_million_usd": "0.01", "output_per_million_usd": "0.01"}
    async with running_gateway(
        tmp_path, {"inline_body_bytes": 2**20}, prices={"acme/small": price}
    ) as gateway:
        first = await gateway.openai().responses.create(model="acme/small", input="say 4000 words")
        reference = {"type": "item_reference", "id": first.output[0].id}
        request_count = len(gateway.acme.requests)
        for count, status in ((2, 200), (200, 400)):
            body = {"model": "acme/small", "input": [reference] * count, "max_output_tokens": 9}
            response = await gateway.app.client.post("/v1/responses", json=body, headers=gateway.headers)
            assert response.status_code == status
        assert "This conversation is too long" in response.json()["error"]["message"]
        assert len(gateway.acme.requests) == request_count + 1


@pytest.mark.parametrize(
    "reference",
    [
        b'{"type": "item_reference", "id": "msg_1"}',
        b'{"id": "msg_1"}',
        b'{"\\u0069d": "msg_1"}',
        b'{"type": null, "id": "msg_1"}',
        b'{"type": "item\\u005freference", "id": "msg\\u005f1"}',
        b'{"type": "image_generation_call", "id": "msg_1", "result": null}',
        b'{"type": "message", "id": "msg_1"}',
    ],
)
async def test_reference_to_a_foreign_item_is_refused(
    servers: tuple[Gateway, Gateway], reference: bytes
) -> None:
    first, gateway = servers
    await gateway.openai(gateway.app.other).responses.create(model=MODEL, input="a zeppelin")
    request_count = len(first.acme.requests)
    body = b'{"model": "native/small", "input": [' + reference + b', {"role": "user", "content": "And?"}]}'
    headers = {**gateway.headers, "Content-Type": "application/json"}
    response = await gateway.app.client.post("/v1/responses", content=body, headers=headers)
    assert (response.status_code, response.json()["error"]["message"]) == (
        404,
        "Item with id 'msg_1' not found.",
    )
    assert len(first.acme.requests) == request_count


async def test_foreign_and_unknown_responses_are_not_continued(servers: tuple[Gateway, Gateway]) -> None:
    first, gateway = servers
    theirs = await gateway.openai(gateway.app.other).responses.create(model=MODEL, input="a zeppelin")
    remaining = await gateway.openai(gateway.app.other).responses.create(model=MODEL, input="x", store=False)
    request_count = len(first.acme.requests)
    for previous in (theirs.id, remaining.id, "resp_elsewhere"):
        with pytest.raises(openai.BadRequestError, match="Previous response"):
            await gateway.openai().responses.create(model=MODEL, input="And?", previous_response_id=previous)
    assert len(first.acme.requests) == request_count


async def test_deleted_response_cannot_be_continued(servers: tuple[Gateway, Gateway]) -> None:
    _, gateway = servers
    client = gateway.openai()
    result = await client.responses.create(model=MODEL, input="Hello")
    response = await gateway.app.client.delete(f"/v1/responses/{result.id}", headers=gateway.headers)
    assert response.status_code == 200
    for key in (gateway.app.key, gateway.app.other):
        with pytest.raises(openai.BadRequestError, match="Previous response"):
            await gateway.openai(key).responses.create(
                model=MODEL, input="And?", previous_response_id=result.id
            )
        with pytest.raises(openai.NotFoundError, match="msg_1"):
            await gateway.openai(key).responses.create(
                model=MODEL, input=[{"type": "item_reference", "id": "msg_1"}]
            )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input", [{"role": "user", "content": [{"type": "input_image", "file_id": "file-theirs"}]}]),
        ("input", [{**CALL, "container_id": "file-theirs"}]),
        ("tools", [{"type": "code_interpreter", "container": "file-theirs"}]),
        ("tools", [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-theirs"]}}]),
        ("prompt", {"id": "file-theirs"}),
    ],
)
async def test_foreign_object_is_refused_and_the_operators_is_passed(
    servers: tuple[Gateway, Gateway], field: str, value: Any
) -> None:
    first, gateway = servers
    body = {"model": MODEL, "input": "Hello", field: value}
    response = await gateway.app.client.post("/v1/responses", json=body, headers=gateway.headers)
    assert (response.status_code, len(first.acme.requests)) == (400 if field == "prompt" else 404, 0)
    assert response.json()["error"]["param"] == ("input[0]" if field == "input" else field)
    key = await gateway.app.operator_key()
    headers = {"Authorization": f"Bearer {key}"}
    response = await gateway.app.client.post("/v1/responses", json=body, headers=headers)
    assert response.status_code == 200
    assert first.acme.requests[-1].document[field] == value


@pytest.mark.parametrize(
    "fields",
    [
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-theirs"}]}]},
        {"input": "Hello", "tools": [{"type": "file_search", "vector_store_ids": ["vs-theirs"]}]},
    ],
)
async def test_unknown_file_and_vector_store_ids_are_not_forwarded(
    servers: tuple[Gateway, Gateway], fields: dict[str, Any]
) -> None:
    first, gateway = servers
    operator = {"Authorization": f"Bearer {await gateway.app.operator_key()}"}
    for headers in (gateway.headers, operator):
        response = await gateway.app.client.post(
            "/v1/responses", json={"model": MODEL, **fields}, headers=headers
        )
        assert (response.status_code, len(first.acme.requests)) == (404, 0)
        assert "-theirs" in response.json()["error"]["message"]


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("stream", [False, True])
async def test_container_belongs_to_the_account_that_created_it(
    servers: tuple[Gateway, Gateway], store: bool, stream: bool
) -> None:
    first, gateway = servers
    first.acme.items = [CALL]
    result: Any = await gateway.openai().responses.create(
        model=MODEL, input="Hello", store=store, stream=stream
    )
    if stream:
        assert [event.type async for event in result][-1] == "response.completed"
    tools: Any = [{"type": "code_interpreter", "container": "cntr_1"}]
    limit: Any = {"max_output_tokens": 100}
    await gateway.openai().responses.create(model=MODEL, input="And?", tools=tools, **limit)
    assert first.acme.requests[-1].document["tools"] == tools
    with pytest.raises(openai.NotFoundError, match="cntr_1"):
        await gateway.openai(gateway.app.other).responses.create(model=MODEL, input="And?", tools=tools)


async def test_full_item_with_a_foreign_id_gets_its_own(servers: tuple[Gateway, Gateway]) -> None:
    first, gateway = servers
    await gateway.openai(gateway.app.other).responses.create(model=MODEL, input="a zeppelin")
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "No"}]}
    items: Any = [
        {"id": "msg_1", **text},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "x"},
        AND,
    ]
    sent = []
    for _ in range(2):
        await gateway.openai().responses.create(model=MODEL, input=items, store=False)
        sent.append(first.acme.requests[-1].document["input"])
    assert sent[0] == sent[1], "the same request is the same at the model server, so that its cache serves it"
    message, reasoning, question = sent[0]
    assert message == {**text, "id": message["id"]}
    assert message["id"].startswith("msg_")
    assert message["id"] != "msg_1"
    assert (reasoning["encrypted_content"], reasoning["id"] == "rs_2") == ("x", False)
    assert question == AND


async def test_approval_refers_to_its_request_after_both_are_renamed(
    servers: tuple[Gateway, Gateway],
) -> None:
    first, gateway = servers
    items: Any = [
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "n", "arguments": "", "server_label": "s"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    ]
    await gateway.openai().responses.create(model=MODEL, input=items)
    request, response = first.acme.requests[-1].document["input"]
    assert request["id"] == response["approval_request_id"] != "mcpr_1"
    assert request["arguments"] == ""


async def test_schema_of_a_tool_may_name_such_fields(servers: tuple[Gateway, Gateway]) -> None:
    first, gateway = servers
    schema = {"type": "object", "properties": {}, "examples": [{"file_id": "file-1"}]}
    tools: Any = [{"type": "function", "name": "f", "parameters": schema, "strict": False}]
    await gateway.openai().responses.create(
        model=MODEL, input='{"file_id": "file-1"}', tools=tools, metadata={"file_id": "file-1"}
    )
    assert first.acme.requests[-1].document["tools"] == tools


async def test_store_false_is_forwarded_to_the_server(tmp_path: Path) -> None:
    async with native(tmp_path, store_responses=False) as (first, gateway):
        result = await gateway.openai().responses.create(model=MODEL, input="Hello")
        assert first.acme.requests[-1].document["store"] is False
        with pytest.raises(openai.BadRequestError, match="Previous response"):
            await gateway.openai().responses.create(model=MODEL, input="x", previous_response_id=result.id)


async def test_reference_goes_to_another_server_as_its_item(servers: tuple[Gateway, Gateway]) -> None:
    first, gateway = servers
    client = gateway.openai()
    result = await client.responses.create(model=MODEL, input="Hello")
    items: Any = [{"type": "item_reference", "id": result.output[0].id}, AND]
    await client.responses.create(model="plain/small", input=items)
    sent = first.anth.requests[-1].document["messages"]
    assert [message["content"] for message in sent] == ["I am native", "And?"]


async def test_deletion_is_passed_on_to_the_server(servers: tuple[Gateway, Gateway]) -> None:
    first, gateway = servers
    client = gateway.openai()
    result = await client.responses.create(model=MODEL, input="Hello")
    with pytest.raises(openai.NotFoundError):
        await gateway.openai(gateway.app.other).responses.delete(result.id)
    assert first.acme.forgotten == []
    first.acme.mode = "fail"
    with pytest.raises(openai.InternalServerError, match="nothing was deleted"):
        await client.responses.delete(result.id)
    assert (await client.responses.retrieve(result.id)).id == result.id
    first.acme.mode = "well"
    response = await gateway.app.client.delete(f"/v1/responses/{result.id}", headers=gateway.headers)
    assert (response.status_code, first.acme.forgotten) == (200, [result.id, result.id])
    plain = await client.responses.create(model="plain/small", input="Hello")
    await gateway.app.client.delete(f"/v1/responses/{plain.id}", headers=gateway.headers)
    assert first.acme.forgotten == [result.id, result.id]


async def test_input_tokens_are_counted_by_the_server_or_estimated(servers: tuple[Gateway, Gateway]) -> None:
    first, gateway = servers
    client = gateway.openai()
    counted = await client.responses.input_tokens.count(
        model=MODEL, input=[AND, AND], extra_body={"store": True}
    )
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", 14)
    assert first.acme.requests[-1].document == {"model": "small", "input": [AND, AND]}
    talk = await client.conversations.create(items=[AND, AND, AND])
    counted = await client.responses.input_tokens.count(model=MODEL, conversation=talk.id)
    assert counted.input_tokens == 21
    estimates = [
        (await client.responses.input_tokens.count(model="plain/small", input="word " * count)).input_tokens
        for count in (10, 100)
    ]
    assert 10 <= estimates[0] < estimates[1] <= 400
    wrongs: list[Any] = [{"input": []}, {"conversation": talk.id, "previous_response_id": "resp_1"}]
    for wrong in wrongs:
        with pytest.raises(openai.BadRequestError):
            await client.responses.input_tokens.count(model=MODEL, **wrong)
    with pytest.raises(openai.NotFoundError, match=talk.id):
        await gateway.openai(gateway.app.other).responses.input_tokens.count(
            model=MODEL, conversation=talk.id
        )
    assert await gateway.app.balance() == ("5.00", "0.00")


async def test_deeply_nested_item_is_a_bad_request(servers: tuple[Gateway, Gateway]) -> None:
    first, gateway = servers
    deep = b'{"id": "msg_1", "content": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    body = b'{"model": "native/small", "input": [' + deep + b"]}"
    headers = {**gateway.headers, "Content-Type": "application/json"}
    response = await gateway.app.client.post("/v1/responses", content=body, headers=headers)
    assert (response.status_code, first.acme.requests) == (400, [])


async def test_too_many_references_are_refused(servers: tuple[Gateway, Gateway]) -> None:
    first, gateway = servers
    items: Any = [{"type": "item_reference", "id": f"msg_{number}"} for number in range(5001)]
    with pytest.raises(openai.BadRequestError, match="at most 5000"):
        await gateway.openai().responses.create(model=MODEL, input=items)
    assert first.acme.requests == []
