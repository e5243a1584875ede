"""Cohere's chats and embeddings, and its resources that this server does not have."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from sixfold.app import catalog as app_catalog
from tests.api.gateway import Gateway, running_gateway
from tests.harness.backends import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")
TURN = [{"role": "user", "content": "say 3 words"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """One app for all tests of this module."""
    folder = tmp_path_factory.mktemp("cohere")
    async with running_gateway(folder, FILES, app_catalog.models_document()) as result:
        yield result


async def post(gateway: Gateway, path: str, **body: Any) -> httpx.Response:
    return await gateway.app.client.post(path, json=body, headers=gateway.headers)


async def test_vectors_have_the_shape_of_their_version(gateway: Gateway) -> None:
    texts = {"model": "embeddings", "texts": ["a lake", "a car"], "input_type": "search_document"}
    before = float((await gateway.app.balance())[0])
    second = (await post(gateway, "/v2/embed", **texts, embedding_types=["float"])).json()
    assert [len(vector) for vector in second["embeddings"]["float"]] == [384, 384]
    assert (second["texts"], second["meta"]["api_version"]["version"]) == (["a lake", "a car"], "2")
    assert second["meta"]["billed_units"]["input_tokens"] > 0
    first = (await post(gateway, "/v1/embed", **texts)).json()
    assert (first["response_type"], first["embeddings"]) == (
        "embeddings_floats", second["embeddings"]["float"],
    )  # fmt: skip
    inputs = [{"content": [{"type": "text", "text": "a lake"}]}]
    typed = (await post(gateway, "/v2/embed", model="embeddings", inputs=inputs)).json()
    assert typed["embeddings"]["float"] == second["embeddings"]["float"][:1]
    assert before - float((await gateway.app.balance())[0]) == pytest.approx(0.0005)


async def test_a_model_server_embeds(gateway: Gateway) -> None:
    response = await post(gateway, "/v2/embed", model="acme/small", texts=["a"], output_dimension=3)
    assert response.status_code == 200, response.text
    sent = gateway.acme.requests[-1]
    assert (sent.path, sent.document["input"], sent.document["dimensions"]) == ("/v1/embeddings", ["a"], 3)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"texts": []}, "1 to 2048"),
        ({"texts": ["a"], "embedding_types": ["int8"]}, "embedding_types"),
        ({"texts": ["a"], "images": ["data:image/png;base64,AA"]}, "images"),
        ({"inputs": [{"content": [{"type": "image_url"}]}]}, "inputs[0]"),
        ({"texts": [5]}, "texts"),
    ],
)
async def test_an_invalid_request_is_named(gateway: Gateway, fields: dict[str, Any], words: str) -> None:
    response = await post(gateway, "/v2/embed", model="embeddings", **fields)
    assert response.status_code == 400
    assert words in response.json()["message"]


async def test_other_resources_are_501_with_an_alternative(gateway: Gateway) -> None:
    for path in ("/v2/batches/b:cancel", "/v1/tokenize", "/v1/datasets/d", "/v1/embed-jobs"):
        response = await post(gateway, path)
        assert response.status_code == 501, path
        assert "not supported by this server" in response.text
    assert (await post(gateway, "/v2/nothing")).status_code == 404


# -- chats -------------------------------------------------------------------------------------------


def events(text: str) -> list[dict[str, Any]]:
    """Return the events of a stream of the second version, and check that each names its type."""
    blocks = text.removesuffix("\n\n").split("\n\n")
    assert blocks.pop() == "data: [DONE]"
    pairs = [block.split("\n") for block in blocks]
    results = [json.loads(data.removeprefix("data: ")) for _, data in pairs]
    assert [f"event: {event['type']}" for event in results] == [name for name, _ in pairs]
    return results


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_chat_of_each_version_is_answered_and_charged(gateway: Gateway, model: str) -> None:
    second = (await post(gateway, "/v2/chat", model=model, messages=TURN)).json()
    assert second["message"] == {"role": "assistant", "content": [{"type": "text", "text": "word word word"}]}
    assert (second["finish_reason"], second["usage"]["billed_units"]["output_tokens"]) == ("COMPLETE", 3)
    history = [{"role": "USER", "message": "hi"}, {"role": "CHATBOT", "message": "hello"}]
    first = await post(
        gateway, "/v1/chat", model=model, message="say 2 words", preamble="Be brief", chat_history=history
    )
    turns = [
        *history,
        {"role": "USER", "message": "say 2 words"},
        {"role": "CHATBOT", "message": "word word"},
    ]
    assert (first.json()["text"], first.json()["chat_history"]) == ("word word", turns)
    assert first.json()["meta"]["billed_units"]["output_tokens"] == 2
    newest, before = (await gateway.settled(2))[:2]
    assert (newest["face"], newest["status"], before["usage"]["output_tokens"]) == ("cohere", "succeeded", 3)
    assert float(newest["cost_usd"]) > 0
    assert await gateway.pending() == 0


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_streams_of_each_version_have_every_fragment(gateway: Gateway, model: str) -> None:
    response = await post(gateway, "/v2/chat", model=model, messages=TURN, stream=True)
    sent = events(response.text)
    kinds = [event["type"] for event in sent]
    assert kinds[:2] == ["message-start", "content-start"]
    assert kinds[-2:] == ["content-end", "message-end"]
    deltas = [event["delta"]["message"]["content"] for event in sent if event["type"] == "content-delta"]
    assert "".join(delta["text"] for delta in deltas) == "word word word"
    assert sent[-1]["delta"]["finish_reason"] == "COMPLETE"
    assert sent[-1]["delta"]["usage"]["tokens"]["output_tokens"] == 3
    response = await post(gateway, "/v1/chat", model=model, message="say 2 words", stream=True)
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert [line["event_type"] for line in lines] == [
        "stream-start", "text-generation", "text-generation", "stream-end",
    ]  # fmt: skip
    assert [line["is_finished"] for line in lines] == [False, False, False, True]
    assert lines[-1]["response"]["text"] == "".join(line.get("text", "") for line in lines) == "word word"


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_tool_of_a_chat_is_called_and_its_documents_are_read(gateway: Gateway, model: str) -> None:
    question = {"role": "user", "content": "use the tool"}
    body = {"model": model, "messages": [question], "tools": [TOOL]}
    reply = (await post(gateway, "/v2/chat", **body)).json()
    (call,) = reply["message"]["tool_calls"]
    assert (reply["finish_reason"], call["function"]["name"]) == ("TOOL_CALL", "weather")
    kinds = [event["type"] for event in events((await post(gateway, "/v2/chat", **body, stream=True)).text)]
    assert [kinds[1], *kinds[-2:]] == ["tool-call-start", "tool-call-end", "message-end"]
    output = {"type": "document", "document": {"data": {"sky": "snow"}}}
    turns = [
        question,
        {"role": "assistant", "tool_plan": "I look it up", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": [output]},
    ]
    reply = (await post(gateway, "/v2/chat", model=model, messages=turns, tools=[TOOL])).json()
    assert reply["message"]["content"][0]["text"] == 'The tool said {"sky":"snow"}'


async def test_options_of_a_chat_reach_the_model_server(gateway: Gateway) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    response = await post(
        gateway, "/v2/chat", model="acme/small", messages=TURN, p=0.5, seed=7, max_tokens=9, temperature=0.3,
        stop_sequences=["end"], frequency_penalty=0.1, presence_penalty=0.2, tools=[TOOL],
        tool_choice="REQUIRED", response_format={"type": "json_object", "schema": schema},
    )  # fmt: skip
    assert response.status_code == 200, response.text
    sent = gateway.acme.requests[-1].document
    names = ("top_p", "seed", "temperature", "frequency_penalty", "presence_penalty", "tool_choice")
    assert [sent[name] for name in names] == [0.5, 7, 0.3, 0.1, 0.2, "required"]
    assert sent["stop"] == ["end"]
    assert sent["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        ("/v2/chat", {"messages": []}, "at least one message"),
        ("/v2/chat", {"messages": TURN, "documents": ["a"]}, "put the texts into a message"),
        ("/v2/chat", {"messages": TURN, "max_tokens": 0}, "at least 1"),
        ("/v2/chat", {"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_call_id"),
        (
            "/v2/chat",
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {"file_id": "a"}}]}]},
            "messages[0].content[0].document is required",
        ),
        ("/v2/chat", {"messages": [{"role": "poet", "content": "a"}]}, "poet"),
        ("/v1/chat", {"message": ""}, "must not be empty"),
        ("/v1/chat", {"message": "a", "tools": [TOOL]}, "use POST /v2/chat"),
        ("/v1/chat", {"message": "a", "conversation_id": "c"}, "chat_history"),
    ],
)
async def test_invalid_chat_is_refused_and_sends_nothing(
    gateway: Gateway, path: str, fields: dict[str, Any], words: str
) -> None:
    count = len(gateway.acme.requests)
    response = await post(gateway, path, model="acme/small", **fields)
    assert response.status_code == 400
    assert words in response.json()["message"]
    assert len(gateway.acme.requests) == count


async def test_a_chat_stream_that_fails_ends_with_an_error(gateway: Gateway) -> None:
    gateway.acme.mode = "truncate"
    try:
        response = await post(gateway, "/v2/chat", model="acme/small", messages=TURN, stream=True)
        lines = await post(gateway, "/v1/chat", model="acme/small", message="say 3 words", stream=True)
    finally:
        gateway.acme.mode = "well"
    end = json.loads(response.text.strip().rpartition("data: ")[2])
    assert (end["type"], end["delta"]["finish_reason"]) == ("message-end", "ERROR")
    assert end["delta"]["error"]
    last = json.loads(lines.text.splitlines()[-1])
    assert (last["is_finished"], last["finish_reason"]) == (True, "ERROR")
    assert await gateway.pending() == 0


async def test_models_list_states_capabilities_of_own_models(gateway: Gateway) -> None:
    rows = (await gateway.app.client.get("/v1/models", headers=gateway.headers)).json()["data"]
    own = {row["id"]: row["capabilities"] for row in rows}
    kinds = {"ra1": "images", "dall-e-3": "images", "tts": "speech", "video-text": "videos"}
    assert {name: own[name] for name in kinds} == {name: [kind] for name, kind in kinds.items()}
    (embeddings,) = (row for row in rows if row["id"] == "embeddings")
    assert (embeddings["capabilities"], embeddings["dimensions"]) == (["embeddings"], 384)


async def test_cohere_libraries_get_their_model_list(gateway: Gateway) -> None:
    headers = {**gateway.headers, "X-Fern-SDK-Name": "cohere"}
    get = gateway.app.client.get
    models = (await get("/v1/models", headers=headers)).json()["models"]
    assert {"name": "acme/small", "endpoints": ["chat"], "context_length": None} in models
    names = [row["name"] for row in models]
    chats = (await get("/v1/models?endpoint=chat", headers=headers)).json()["models"]
    assert "embeddings" in names
    assert "embeddings" not in [row["name"] for row in chats]
    embedding = (await get("/v1/models?endpoint=embed", headers=headers)).json()["models"]
    assert "embeddings" in [row["name"] for row in embedding]
