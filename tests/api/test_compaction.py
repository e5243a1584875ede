"""`/v1/responses/compact` by the official client: summaries by any model, and a provider's own compaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import openai
import pytest

from sixfold.core import money
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.rights import Rights
from sixfold.core.gateway.conversations.responses import SUMMARY_PREFIX
from tests.api.app_fixture import bearer
from tests.api.gateway import PRICE, Gateway, running_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")
BOTH = pytest.mark.parametrize("model", ["acme/small", "anth/small"])
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Oslo"}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "snow"}
TURNS: list[Any] = [
    {"role": "user", "content": "How is it in Oslo?"},
    CALL,
    RESULT,
    {"role": "assistant", "content": [{"type": "output_text", "text": "It snows", "annotations": []}]},
    {"role": "developer", "content": "Be kind"},
    {"role": "user", "content": [{"type": "input_text", "text": "say 3 words"}]},
]


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    """A gateway: `azure` has the endpoint, `acme` has only chats, and `anth` has only messages."""
    shared_gateway.acme.answer = ""
    return shared_gateway.afresh()


def sent_text(gateway: Gateway, model: str) -> str:
    """Return the text of the only message of the last request to the server of a model."""
    server = gateway.acme if model.startswith("acme") else gateway.anth
    (message,) = [row for row in server.requests[-1].document["messages"] if row["role"] != "system"]
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def as_input(output: Sequence[Any]) -> list[Any]:
    return [item.model_dump(exclude_none=True, warnings=False) for item in output]


@BOTH
async def test_summary_of_any_model_can_be_input_of_a_response(gateway: Gateway, model: str) -> None:
    client = gateway.openai()
    compacted: Any = await client.responses.compact(model=model, input=TURNS, instructions="Use Celsius")
    *messages, item = compacted.output
    assert (compacted.object, item.type) == ("response.compaction", "compaction")
    assert [message.content[0].text for message in messages] == ["How is it in Oslo?", "say 3 words"]
    assert item.encrypted_content.startswith(SUMMARY_PREFIX)
    assert "word" not in item.encrypted_content
    usage = compacted.usage
    assert (usage.input_tokens > 0, usage.output_tokens) == (True, 3)
    request = (gateway.acme if model.startswith("acme") else gateway.anth).requests[-1].document
    assert "tools" not in request
    text = sent_text(gateway, model)
    for piece in ("Use Celsius", "Be kind", "How is it in Oslo?", "weather", "snow", "It snows"):
        assert piece in text
    (call,) = (await gateway.settled())[:1]
    cost = money.parse_usd(call["cost_usd"])
    assert cost >= 3 * int(PRICE["output_per_million_usd"])
    assert money.parse_usd(call["held_usd"]) >= cost

    history = [*as_input(compacted.output), {"role": "user", "content": "say 2 words"}]
    answer = await client.responses.create(model=model, input=history)
    assert answer.output_text.startswith("word word")
    server = gateway.acme if model.startswith("acme") else gateway.anth
    sent = json.dumps(server.requests[-1].document)
    assert "Summary of the conversation so far:\\n\\nword word word" in sent
    assert SUMMARY_PREFIX not in sent
    counted = await client.responses.input_tokens.count(model=model, input=history)
    assert counted.input_tokens > 0

    second_response: Any = await client.responses.compact(model=model, previous_response_id=answer.id)
    texts = [message.content[0].text for message in second_response.output[:-1]]
    assert texts == ["How is it in Oslo?", "say 3 words", "say 2 words"]
    assert "word word word" in sent_text(gateway, model)


async def test_conversation_is_compacted_and_accepts_the_item(gateway: Gateway) -> None:
    client = gateway.openai()
    first: Any = await client.responses.compact(model="acme/small", input="say 2 words")
    conversation = await client.conversations.create(items=as_input(first.output))
    kinds = [item.type async for item in client.conversations.items.list(conversation.id, order="asc")]
    assert kinds == ["message", "compaction"]
    answer = await client.responses.create(
        model="acme/small", input="say 1 words", conversation=conversation.id
    )
    assert answer.output_text == "word"
    assert "word word" in json.dumps(gateway.acme.requests[-1].document)
    second_response: Any = await client.responses.compact(
        model="acme/small", extra_body={"conversation": conversation.id}
    )
    assert [row.content[0].text for row in second_response.output[:-1]] == ["say 2 words", "say 1 words"]


async def test_images_and_later_summaries_are_part_of_the_request(gateway: Gateway) -> None:
    client = gateway.openai()
    image: Any = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    compacted: Any = await client.responses.compact(
        model="acme/small", input=[{"role": "user", "content": [image]}]
    )
    assert [part["type"] for part in gateway.acme.requests[-1].document["messages"][-1]["content"]] == [
        "text",
        "image_url",
        "text",
    ]
    assert compacted.output[0].content[0].image_url == image["image_url"]


async def test_a_provider_compacts_itself(tmp_path: Any) -> None:
    async with running_gateway(tmp_path) as plain:
        url = plain.acme.url
        azure = {"kind": "azure", "base_url": url, "api_key": "k", "models": ["small"]}
        rows = {"azure": azure, "acme": {"kind": "openai", "base_url": url, "api_key": "k"}}
        prices = {"azure/small": PRICE, "acme/small": PRICE}
        async with running_gateway(tmp_path / "own", upstreams=rows, prices=prices, aliases={}) as gateway:
            client = gateway.openai()
            compacted: Any = await client.responses.compact(
                model="azure/small", input=TURNS, extra_body={"tools": [{"type": "web_search"}]}
            )
            (item,) = compacted.output
            request = plain.acme.requests[-1]
            assert (request.path, request.document["model"]) == ("/v1/responses/compact", "small")
            assert "max_tool_calls" not in request.document
            assert item.encrypted_content == "gAAAAnative"
            (call,) = await gateway.settled()
            assert money.parse_usd(call["cost_usd"]) == 20 * 100 + 5 * 1000
            history = as_input(compacted.output)
            answer = await client.responses.create(model="azure/small", input=history)
            assert answer.output_text == "I am native"
            assert plain.acme.requests[-1].document["input"][0]["encrypted_content"] == "gAAAAnative"
            with pytest.raises(openai.BadRequestError, match="can be read only by the provider"):
                await client.responses.create(model="acme/small", input=history)


async def test_item_of_another_account_is_refused(gateway: Gateway) -> None:
    compacted: Any = await gateway.openai().responses.compact(model="acme/small", input="say 2 words")
    other = gateway.openai(gateway.app.other)
    history = as_input(compacted.output)
    damaged: list[Any] = [{**history[-1], "encrypted_content": f"{SUMMARY_PREFIX}AAAA"}]
    for client, items in ((other, history), (gateway.openai(), damaged)):
        for call in (client.responses.create, client.responses.compact, client.responses.input_tokens.count):
            with pytest.raises(openai.BadRequestError, match="another account") as excinfo:
                await call(model="acme/small", input=items)
            index = len(items) - 1
            assert excinfo.value.param == f"input[{index}].encrypted_content"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input": "a", "stream": True}, "cannot be streamed"),
        ({"input": []}, "input must not be empty"),
        ({"input": [{"type": "item_reference", "id": "msg_none_0"}]}, "not found"),
        ({"input": "a", "previous_response_id": "resp_none"}, "not found"),
        ({"input": "a", "model": "none/none"}, "none"),
    ],
)
async def test_invalid_requests_name_the_reason(
    gateway: Gateway, fields: dict[str, Any], message: str
) -> None:
    body = {"model": "acme/small", **fields}
    response = await gateway.app.client.post("/v1/responses/compact", json=body, headers=gateway.headers)
    assert 400 <= response.status_code < 500, response.text
    assert message in response.json()["error"]["message"]


async def test_rights_credit_and_repetition_are_as_for_responses(gateway: Gateway) -> None:
    app, body = gateway.app, {"model": "acme/small", "input": "say 2 words"}
    path = "/v1/responses/compact"
    reader = await app.limited_key(KeyLimits(), Rights.ACCOUNT_READ)
    limited = await app.limited_key(KeyLimits(services=("tts",)))
    for key, status in ((reader, 403), (limited, 403), (app.poor, 402)):
        response = await app.client.post(path, json=body, headers=bearer(key))
        assert response.status_code == status, response.text
    before = len(gateway.acme.requests)
    headers = {**gateway.headers, "Idempotency-Key": "compact once"}
    first = await app.client.post(path, json=body, headers=headers)
    second = await app.client.post(path, json=body, headers=headers)
    assert (first.status_code, first.content) == (200, second.content)
    assert len(gateway.acme.requests) == before + 1


async def test_an_empty_summary_is_an_error_and_free(gateway: Gateway) -> None:
    before = await gateway.app.balance()
    gateway.acme.answer = " "
    with pytest.raises(openai.InternalServerError, match="empty summary"):
        await gateway.openai().responses.compact(model="acme/small", input="Hello")
    call = (await gateway.settled())[0]
    assert (call["status"], call["cost_usd"]) == ("failed", "0.00")
    assert "empty summary" in call["error"]
    assert await gateway.app.balance() == before
    assert await gateway.app.faults() == ()


async def test_guardrails_read_the_summary_and_the_conversation(gateway: Gateway) -> None:
    app, path, headers = gateway.app, "/api/account/guardrails", gateway.headers
    gateway.acme.answer = "Ann is ann@example.com"
    compacted: Any = await gateway.openai().responses.compact(model="acme/small", input="Hello")
    guard = {"mask": ["emails"], "mask_responses": True}
    assert (await app.client.put(path, json=guard, headers=headers)).status_code == 200
    try:
        # A guardrail is cached with its key for a moment, but not with a new key.
        client = gateway.openai(await app.limited_key(KeyLimits()))
        await client.responses.create(model="acme/small", input=as_input(compacted.output))
        sent = json.dumps(gateway.acme.requests[-1].document)
        assert ("[EMAIL]" in sent, "ann@example.com" in sent) == (True, False)
        masked: Any = await client.responses.compact(model="acme/small", input="Write to bob@example.com")
        assert "bob@example.com" not in json.dumps(gateway.acme.requests[-1].document)
    finally:
        gateway.acme.answer = ""
        assert (await app.client.put(path, json={"mask": []}, headers=headers)).status_code == 200
    client = gateway.openai(await app.limited_key(KeyLimits()))
    await client.responses.create(model="acme/small", input=as_input(masked.output[-1:]))
    assert "Ann is [EMAIL]" in json.dumps(gateway.acme.requests[-1].document)
