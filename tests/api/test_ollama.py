"""Ollama's own client, unmodified, with `/ollama` in its host."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import ollama
import pytest
from PIL import Image

from sixfold.api.gateway.ollama import requests
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.gateway.chat import ImagePart, ReasoningPart, TextPart, ToolCall, ToolResult
from tests.api.app_fixture import ORIGIN
from tests.api.gateway import Gateway
from tests.harness import image_files

BASE = "/ollama/api"
TURN = [{"role": "user", "content": "say 3 words"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather", "parameters": SCHEMA},
}


def client(gateway: Gateway, key: str | None = None) -> ollama.AsyncClient:
    """Return the official client for the server in this process."""
    return ollama.AsyncClient(
        f"{ORIGIN}/ollama",
        headers={"Authorization": f"Bearer {key or gateway.app.key}"},
        transport=httpx.ASGITransport(gateway.app.asgi, raise_app_exceptions=False),
    )


def png() -> bytes:
    return image_files.encode(Image.new("RGB", (2, 2)))


# -- chats -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_a_chat_is_answered_charged_and_logged(gateway: Gateway, model: str) -> None:
    answer = await client(gateway).chat(model, TURN)
    assert (answer.message.role, answer.message.content) == ("assistant", "word word word")
    assert (answer.model, answer.done, answer.done_reason) == (model, True, "stop")
    assert (answer.eval_count, answer.eval_duration) == (3, None)
    assert answer.prompt_eval_count in {10, 14}
    assert (answer.total_duration or 0) > 0
    (call,) = await gateway.settled()
    assert (call["face"], call["status"], call["usage"]["output_tokens"]) == ("ollama", "succeeded", 3)
    assert float(call["cost_usd"]) > 0


async def test_other_apis_are_below_the_same_host(gateway: Gateway) -> None:
    official = gateway.openai().with_options(base_url=f"{ORIGIN}/ollama/v1")
    turn: Any = TURN
    answer = await official.chat.completions.create(model="acme/small", messages=turn)
    assert answer.choices[0].message.content == "word word word"
    response = await official.responses.create(model="acme/small", input="say 2 words")
    assert response.output_text == "word word"
    assert (await official.models.retrieve("acme/small")).id == "acme/small"
    body = {"model": "anth/small", "max_tokens": 9, "messages": TURN}
    post = gateway.app.client.post
    message = await post("/ollama/v1/messages", json=body, headers=gateway.headers)
    assert message.json()["content"] == [{"type": "text", "text": "word word word"}]
    assert (await post("/ollama/v1/chat/completions", json={**body, "messages": []})).status_code == 401
    missing = await gateway.app.client.get("/ollama/v1/nothing", headers=gateway.headers)
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_a_chat_streams_with_true_counts_and_times(gateway: Gateway, model: str) -> None:
    parts = [part async for part in await client(gateway).chat(model, TURN, stream=True)]
    assert "".join(part.message.content or "" for part in parts) == "word word word"
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    last = parts[-1]
    assert (last.eval_count, last.done_reason) == (3, "stop")
    assert last.total_duration is not None
    assert last.prompt_eval_duration is not None
    assert last.eval_duration is not None
    assert last.total_duration == pytest.approx(last.prompt_eval_duration + last.eval_duration, abs=2)
    (call,) = await gateway.settled()
    assert (call["stream"], call["usage"]["output_tokens"]) == (True, 3)


async def test_chat_is_streamed_by_default(gateway: Gateway) -> None:
    body = {"model": "acme/small", "messages": TURN}
    response = await gateway.app.client.post(f"{BASE}/chat", json=body, headers=gateway.headers)
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert len(response.text.splitlines()) > 2
    assert all(json.loads(line)["model"] == "acme/small" for line in response.text.splitlines())


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_is_called_and_its_result_is_read(gateway: Gateway, model: str, stream: bool) -> None:
    official = client(gateway)
    if stream:
        parts = [each async for each in await official.chat(model, TURN, tools=[TOOL], stream=True)]
        (message,) = [part.message for part in parts if part.message.tool_calls]
    else:
        message = (await official.chat(model, TURN, tools=[TOOL])).message
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Oslo"})
    turns = [*TURN, message, {"role": "tool", "tool_name": "weather", "content": "sun"}]
    answer = await official.chat(model, turns, tools=[TOOL])
    assert answer.message.content == "The tool said sun"


async def test_an_image_and_a_format_reach_the_model(gateway: Gateway) -> None:
    turn = {"role": "user", "content": "what is it", "images": [png()]}
    answer = await client(gateway).chat("anth/small", [turn])
    assert answer.message.content == "I see a picture"
    formed = await client(gateway).chat("acme/small", TURN, format=SCHEMA)
    assert json.loads(formed.message.content or "") == {"city": "Oslo"}
    assert gateway.acme.requests[-1].document["response_format"]["json_schema"]["schema"] == SCHEMA


async def test_options_become_the_fields_of_the_server(gateway: Gateway) -> None:
    options = {"temperature": 0.5, "top_p": 0.9, "num_predict": 2, "seed": 7, "stop": ["x"], "num_ctx": 9}
    options |= {"presence_penalty": 0.25, "frequency_penalty": 0.75}
    answer = await client(gateway).chat("acme/small", TURN, options=options, keep_alive=-1)
    assert (answer.message.content, answer.done_reason) == ("word word", "length")
    sent = gateway.acme.requests[-1].document
    assert (sent["max_tokens"], sent["seed"], sent["stop"]) == (2, 7, ["x"])
    assert (sent["presence_penalty"], sent["frequency_penalty"]) == (0.25, 0.75)
    assert "num_ctx" not in json.dumps(sent)


async def test_a_prompt_is_completed(gateway: Gateway) -> None:
    official = client(gateway)
    full_response = await official.generate("both", "say 2 words", system="Be brief")
    assert (full_response.response, full_response.eval_count) == ("word word", 2)
    assert gateway.acme.requests[-1].document["messages"][0] == {"role": "system", "content": "Be brief"}
    parts = [part async for part in await official.generate("both:latest", "say 2 words", stream=True)]
    assert "".join(part.response or "" for part in parts) == "word word"
    assert parts[-1].done_reason == "stop"


async def test_raw_prompts_and_gaps_are_text_completions(gateway: Gateway) -> None:
    official = client(gateway)
    full_response = await official.generate("acme/small", "say 3 words", raw=True, options={"num_predict": 2})
    sent = gateway.acme.requests[-1]
    assert (sent.path, sent.document["prompt"], sent.document["max_tokens"]) == (
        "/v1/completions",
        "say 3 words",
        2,
    )
    assert (full_response.done, full_response.model) == (True, "acme/small")
    assert full_response.response
    gap = await official.generate("acme/small", "def f():", suffix="return 1", stream=True)
    parts = [part async for part in gap]
    assert gateway.acme.requests[-1].document["suffix"] == "return 1"
    assert [part.done for part in parts] == [False, True]
    assert parts[-1].eval_count
    calls = await gateway.settled(2)
    assert all(float(call["cost_usd"]) > 0 for call in calls)
    with pytest.raises(ollama.ResponseError) as excinfo:
        await official.generate("anth/small", "x", raw=True)
    assert excinfo.value.status_code == 400


async def test_a_request_without_a_prompt_loads_and_costs_nothing(gateway: Gateway) -> None:
    answer = await client(gateway).generate("both", "")
    assert (answer.done, answer.done_reason, answer.response) == (True, "load", "")
    assert (await client(gateway).chat("both", [])).done_reason == "load"
    assert await gateway.calls() == []


# -- failures ----------------------------------------------------------------------------------------


async def test_errors_have_ollamas_shape_and_cost_nothing(gateway: Gateway) -> None:
    official = client(gateway)
    with pytest.raises(ollama.ResponseError, match="was not found") as unknown_error:
        await official.chat("nothing-here", TURN)
    assert unknown_error.value.status_code == 404
    with pytest.raises(ollama.ResponseError) as wrong_key_error:
        await client(gateway, "sf_wrong").chat("acme/small", TURN)
    assert wrong_key_error.value.status_code == 401
    gateway.acme.mode = "refuse"
    with pytest.raises(ollama.ResponseError, match="It says so") as excinfo:
        await official.chat("acme/small", TURN)
    assert excinfo.value.status_code == 400
    assert {float(call["cost_usd"]) for call in await gateway.calls()} <= {0.0}


async def test_a_stream_that_fails_ends_with_an_error(gateway: Gateway) -> None:
    gateway.acme.mode = "truncate"
    with pytest.raises(ollama.ResponseError, match="disconnected"):
        async for _ in await client(gateway).chat("acme/small", TURN, stream=True):
            pass
    (call,) = await gateway.settled()
    assert (call["status"], call["cost_usd"]) == ("failed", "0.00")


BAD: list[tuple[str, Any]] = [
    ("chat", {"messages": TURN}),
    ("chat", {"model": "both", "messages": [{"role": "nobody", "content": "x"}]}),
    ("chat", {"model": "both", "messages": [{"role": "user", "content": 7}]}),
    ("chat", {"model": "both", "messages": [{"role": "user", "images": ["bm90IG9uZQ=="]}]}),
    ("chat", {"model": "both", "messages": [{"role": "tool", "content": "x", "tool_name": "weather"}]}),
    ("chat", {"model": "both", "messages": TURN, "options": {"temperature": "hot"}}),
    ("chat", {"model": "both", "messages": TURN, "format": "xml"}),
    ("chat", {"model": "both", "messages": TURN, "think": "very"}),
    ("chat", {"model": "both", "messages": TURN, "logprobs": True}),
    ("generate", {"model": "both", "prompt": "x", "raw": True, "system": "y"}),
    ("generate", {"model": "both", "prompt": "x", "suffix": "y", "format": "json"}),
    ("generate", {"model": "both", "prompt": "x", "raw": "yes"}),
    ("generate", {"model": "both", "prompt": "x", "template": "y"}),
    ("generate", {"model": "both", "prompt": "x", "context": [1]}),
    ("generate", [1]),
    ("embed", {"model": "embeddings", "input": 5}),
    ("embed", {"model": "embeddings", "input": []}),
    ("show", {}),
]


@pytest.mark.parametrize(("path", "body"), BAD)
async def test_invalid_input_is_400_and_sends_no_request(gateway: Gateway, path: str, body: Any) -> None:
    response = await gateway.app.client.post(f"{BASE}/{path}", json=body, headers=gateway.headers)
    assert (response.status_code, list(response.json())) == (400, ["error"])
    assert await gateway.pending() == 0
    assert (gateway.acme.requests, gateway.anth.requests) == ([], [])


async def test_models_cannot_be_changed(gateway: Gateway) -> None:
    official = client(gateway)
    assert (await official.pull("both"))["status"] == "success"
    with pytest.raises(ollama.ResponseError, match="operator adds them"):
        await official.pull("llama3.2")
    for changing in (
        official.push("both"),
        official.create("mine", from_="both"),
        official.copy("both", "mine"),
        official.delete("both"),
    ):
        with pytest.raises(ollama.ResponseError, match="operator adds them") as excinfo:
            await changing
        assert excinfo.value.status_code == 403
    blob = await gateway.app.client.head(f"{BASE}/blobs/sha256:0", headers=gateway.headers)
    assert blob.status_code == 403


# -- models ------------------------------------------------------------------------------------------


async def test_every_model_is_listed_and_shown(gateway: Gateway) -> None:
    official = client(gateway)
    names = [row.model for row in (await official.list()).models]
    assert {"both:latest", "small:latest", "large:latest", "embeddings:latest"} <= set(names)
    assert len(names) == len(set(names))
    response = await official.show("both")
    assert "completion" in (response.capabilities or [])
    assert (response.modelinfo or {})["general.basename"] == "both"
    assert (await official.ps()).models == []
    with pytest.raises(ollama.ResponseError, match="not found") as excinfo:
        await official.show("nothing-here")
    assert excinfo.value.status_code == 404


async def test_programs_recognize_ollama_without_a_key(gateway: Gateway) -> None:
    visitor = gateway.app.client
    assert (await visitor.get("/ollama/")).text == "Ollama is running"
    assert (await visitor.head("/ollama")).status_code == 200
    assert (await visitor.get(f"{BASE}/version")).json()["version"]
    response = await visitor.get(f"{BASE}/tags")
    assert (response.status_code, list(response.json())) == (401, ["error"])
    nothing = await visitor.get(f"{BASE}/nothing")
    assert (nothing.status_code, list(nothing.json())) == (404, ["error"])


# -- embeddings --------------------------------------------------------------------------------------


async def test_texts_become_vectors_of_a_model_server(gateway: Gateway) -> None:
    answer = await client(gateway).embed("acme/small", ["a", "b"])
    assert [list(row) for row in answer.embeddings] == [[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    assert (answer.model, answer.prompt_eval_count) == ("acme/small", 14)
    single = await client(gateway).embeddings("acme/small", "a")
    assert list(single.embedding) == [0.0, 1.0, 0.0]
    calls = await gateway.settled(2)
    assert all(float(call["cost_usd"]) > 0 for call in calls)
    gateway.acme.mode = "garbage"
    with pytest.raises(ollama.ResponseError) as excinfo:
        await client(gateway).embed("acme/small", "a")
    assert excinfo.value.status_code == 502
    failed, *_ = await gateway.settled(3)
    assert (failed["status"], failed["cost_usd"]) == ("failed", "0.00")
    assert await gateway.app.faults() == ()


# -- conversions -------------------------------------------------------------------------------------


def parse(**fields: Any) -> Any:
    body = {"model": "m", "messages": TURN, **fields}
    return requests.parse_chat(json.dumps(body).encode()).parse()


EFFORTS = [(None, ""), (True, "medium"), (False, "none"), ("low", "low"), ("high", "high")]


@pytest.mark.parametrize(("think", "effort"), EFFORTS)
def test_think_is_a_reasoning_effort(think: Any, effort: str) -> None:
    assert parse(think=think).effort == effort


@pytest.mark.parametrize(("number", "limit"), [(5, 5), (0, None), (-1, None), (-2, None), (None, None)])
def test_num_predict_is_a_limit_if_positive(number: Any, limit: Any) -> None:
    assert parse(options={"num_predict": number}).max_tokens == limit


FORMATS = [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp"), ("GIF", "image/gif")]


@pytest.mark.parametrize(("kind", "media_type"), FORMATS)
def test_the_type_of_an_image_is_read_from_its_bytes(kind: str, media_type: str) -> None:
    data = base64.b64encode(image_files.encode(Image.new("RGB", (2, 2)), kind)).decode()
    (turn,) = parse(messages=[{"role": "user", "content": "x", "images": [data]}]).messages
    assert turn.parts == (TextPart("x"), ImagePart(media_type=media_type, data=data))


def test_tool_results_without_ids_are_matched_by_name() -> None:
    calls = [{"function": {"name": name, "arguments": {"n": 1}}} for name in ("a", "b", "a")]
    results = [{"role": "tool", "tool_name": name, "content": name} for name in ("b", "a", "a")]
    turns = [{"role": "assistant", "thinking": "hm", "content": "", "tool_calls": calls}, *results]
    first, *answers = parse(messages=turns).messages
    assert first.parts[0] == ReasoningPart("hm")
    ids = [part.id for part in first.parts if isinstance(part, ToolCall)]
    assert len(set(ids)) == 3
    answered = [part.call_id for turn in answers for part in turn.parts if isinstance(part, ToolResult)]
    assert answered == [ids[1], ids[0], ids[2]]
    with pytest.raises(InvalidRequest, match="does not match a tool call"):
        parse(messages=[*turns, results[0]])
