"""The official clients, unmodified, with model servers of their own and of the other protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import anthropic
import openai
import pytest

from tests.api.gateway import Gateway, running_gateway
from tests.fakes import fault_server
from tests.harness import image_files

BOTH = pytest.mark.parametrize("model", ["acme/small", "anth/small"])
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "How it is outside",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA: Any = {"name": "place", "schema": WEATHER["function"]["parameters"], "strict": True}
PIXEL_BYTES = fault_server.image(2, 2)
PIXEL = image_files.data_uri(PIXEL_BYTES)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway.afresh()


def text_of(text: str) -> Any:
    return [{"role": "user", "content": text}]


# -- OpenAI's client -------------------------------------------------------------------------------


@BOTH
async def test_chat_completion_has_text_and_usage(gateway: Gateway, model: str) -> None:
    answer = await gateway.openai().chat.completions.create(model=model, messages=text_of("say 3 words"))
    assert answer.choices[0].message.content == "word word word"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


@BOTH
async def test_chat_completion_stream_has_usage_only_on_request(gateway: Gateway, model: str) -> None:
    client = gateway.openai()
    stream = await client.chat.completions.create(model=model, messages=text_of("say 9 words"), stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == " ".join(["word"] * 9)
    assert not any(chunk.usage for chunk in chunks)
    stream = await client.chat.completions.create(
        model=model, messages=text_of("say 9 words"), stream=True, stream_options={"include_usage": True}
    )
    last = [chunk async for chunk in stream][-1]
    assert not last.choices
    assert last.usage is not None
    assert last.usage.completion_tokens == 9


@BOTH
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": text_of("say 2 words")}),
        ("/v1/responses", {"input": "say 2 words"}),
        ("/v1/messages", {"messages": text_of("say 2 words"), "max_tokens": 9}),
        ("/api/service", {"service": "chat", "prompt": "say 2 words"}),
    ],
)
async def test_stream_headers_name_the_engine(
    gateway: Gateway, model: str, path: str, fields: dict[str, Any]
) -> None:
    body = {"model": model, "stream": True, **fields}
    headers = (await gateway.app.client.post(path, json=body, headers=gateway.headers)).headers
    assert (headers["x-sixfold-engine"], headers["x-sixfold-quality"]) == (model, "full")


@BOTH
@pytest.mark.parametrize("stream", [True, False])
async def test_chat_service_names_the_inputs_that_it_ignores(
    gateway: Gateway, model: str, stream: bool
) -> None:
    body = {"service": "chat", "prompt": "say 2 words", "model": model, "temprature": 1, "stream": stream}
    response = await gateway.app.client.post("/api/service", json=body, headers=gateway.headers)
    assert (response.status_code, response.headers["x-sixfold-ignored-inputs"]) == (200, "temprature")
    if not stream:
        (ignored,) = response.json()["ignored_inputs"]
        assert ignored["message"] == "chat does not have the input temprature: did you mean temperature?"


@BOTH
async def test_tool_calls_and_tool_results_reach_the_model(gateway: Gateway, model: str) -> None:
    client, messages = gateway.openai(), text_of("How is it in Oslo?")
    answer = await client.chat.completions.create(model=model, messages=messages, tools=[WEATHER])
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.tool_calls is not None
    call = cast("Any", message.tool_calls[0])
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Oslo"})
    response = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    messages = [*messages, message.model_dump(exclude_none=True), response]
    answer = await client.chat.completions.create(model=model, messages=messages, tools=[WEATHER])
    assert answer.choices[0].message.content == "The tool said rain"


@BOTH
async def test_tools_are_called_in_a_stream(gateway: Gateway, model: str) -> None:
    async with gateway.openai().chat.completions.stream(
        model=model, messages=text_of("How is it?"), tools=[WEATHER]
    ) as stream:
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.tool_calls is not None
    call = cast("Any", completion.choices[0].message.tool_calls[0])
    assert json.loads(call.function.arguments) == {"city": "Oslo"}


@BOTH
@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
@pytest.mark.parametrize("stream", [False, True])
async def test_json_mode_returns_json(gateway: Gateway, model: str, kind: str, stream: bool) -> None:
    shape: Any = {"type": kind, **({"json_schema": SCHEMA} if kind == "json_schema" else {})}
    answer: Any = await gateway.openai().chat.completions.create(
        model=model, messages=text_of("Where?"), response_format=shape, stream=stream
    )
    if stream:
        chunks = [chunk async for chunk in answer]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        stop = chunks[-1].choices[0].finish_reason
    else:
        text, stop = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert (json.loads(text), stop) == ({"city": "Oslo"}, "stop")


@BOTH
async def test_images_of_a_chat_reach_the_model(gateway: Gateway, model: str) -> None:
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    answer = await gateway.openai().chat.completions.create(
        model=model, messages=cast("Any", [{"role": "user", "content": content}])
    )
    assert answer.choices[0].message.content == "I see a picture"
    if model == "anth/small":
        source = gateway.anth.requests[0].document["messages"][0]["content"][1]["source"]
        assert source == {"type": "base64", "media_type": "image/png", "data": PIXEL.partition("base64,")[2]}


@BOTH
async def test_truncated_chat_has_finish_reason_length(gateway: Gateway, model: str) -> None:
    answer = await gateway.openai().chat.completions.create(
        model=model, messages=text_of("say 9 words"), max_tokens=4
    )
    assert answer.choices[0].finish_reason == "length"


@BOTH
async def test_response_has_text_and_usage(gateway: Gateway, model: str) -> None:
    response = await gateway.openai().responses.create(
        model=model, input="say 3 words", instructions="Be short"
    )
    assert (response.output_text, response.status) == ("word word word", "completed")
    assert response.usage is not None
    assert response.usage.output_tokens == 3
    if model == "acme/small":
        assert gateway.acme.requests[0].document["messages"][0] == {"role": "system", "content": "Be short"}


@BOTH
async def test_streamed_response_has_text_and_usage(gateway: Gateway, model: str) -> None:
    async with gateway.openai().responses.stream(model=model, input="say 5 words") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.delta") == 5
    assert final.output_text == " ".join(["word"] * 5)


@BOTH
@pytest.mark.parametrize("stream", [False, True])
async def test_response_calls_a_tool_and_uses_its_result(gateway: Gateway, model: str, stream: bool) -> None:
    tool: Any = {"type": "function", "strict": False, **WEATHER["function"]}
    client, inputs = gateway.openai(), cast("Any", [{"role": "user", "content": "How is it?"}])
    if stream:
        async with client.responses.stream(model=model, input=inputs, tools=[tool]) as events:
            answer: Any = await events.get_final_response()
    else:
        answer = await client.responses.create(model=model, input=inputs, tools=[tool])
    call = next(item for item in answer.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"city": "Oslo"}
    response = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
    second_input = [
        *inputs,
        {k: v for k, v in call.model_dump().items() if k in ("type", "call_id", "name", "arguments")},
        response,
    ]
    answer = await client.responses.create(model=model, input=second_input, tools=[tool])
    assert answer.output_text == "The tool said sun"


async def test_responses_are_passed_unchanged_to_a_native_server(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as first:
        url = first.acme.url
        row = {"kind": "openai", "base_url": url, "api_key": "k", "responses": True, "models": ["small"]}
        prices = {"native/small": {"input_per_million_usd": 1, "output_per_million_usd": 1}}
        async with running_gateway(tmp_path / "b", upstreams={"native": row}, prices=prices) as gateway:
            answer = await gateway.openai().responses.create(model="native/small", input="Hello", store=True)
            assert answer.output_text == "I am native"
            assert first.acme.requests[0].path == "/v1/responses"
            stream = await gateway.openai().responses.create(model="native/small", input="Hello", stream=True)
            assert [event.type async for event in stream][-1] == "response.completed"
            assert [call["usage"]["output_tokens"] for call in await gateway.settled(2)] == [3, 3]


# -- Anthropic's client ----------------------------------------------------------------------------


@BOTH
async def test_message_has_text_and_usage(gateway: Gateway, model: str) -> None:
    response = await gateway.anthropic().messages.create(
        model=model, max_tokens=100, system="Be short", messages=text_of("say 3 words")
    )
    assert cast("Any", response.content[0]).text == "word word word"
    assert (response.stop_reason, response.usage.output_tokens) == ("end_turn", 3)
    cut = await gateway.anthropic().messages.create(
        model=model, max_tokens=2, messages=text_of("say 3 words")
    )
    assert cut.stop_reason == "max_tokens"
    assert {response._request_id, cut._request_id} <= {call["id"] for call in await gateway.settled(2)}


@BOTH
async def test_streamed_message_has_text_and_usage(gateway: Gateway, model: str) -> None:
    async with gateway.anthropic().messages.stream(
        model=model, max_tokens=100, messages=text_of("say 5 words")
    ) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final = await stream.get_final_message()
        assert stream.request_id
    assert text == " ".join(["word"] * 5)
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", 5)


@BOTH
@pytest.mark.parametrize("stream", [False, True])
async def test_message_calls_a_tool_and_uses_its_result(gateway: Gateway, model: str, stream: bool) -> None:
    function = WEATHER["function"]
    tool: Any = {"name": "weather", "description": "…", "input_schema": function["parameters"]}
    client, messages = gateway.anthropic(), text_of("How is it?")
    request: Any = {"model": model, "max_tokens": 100, "tools": [tool]}
    if stream:
        async with client.messages.stream(messages=messages, **request) as events:
            answer: Any = await events.get_final_message()
    else:
        answer = await client.messages.create(messages=messages, **request)
    call = answer.content[-1]
    assert (answer.stop_reason, call.name, call.input) == ("tool_use", "weather", {"city": "Oslo"})
    response = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "snow"}]}
    turn = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}],
    }
    answer = await client.messages.create(
        messages=[*messages, cast("Any", turn), cast("Any", {"role": "user", "content": [response]})],
        **request,
    )
    assert answer.content[0].text == "The tool said snow"


@BOTH
async def test_image_of_a_message_reaches_the_model(gateway: Gateway, model: str) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL.partition("base64,")[2]}
    response = await gateway.anthropic().messages.create(
        model=model,
        max_tokens=100,
        messages=cast("Any", [{"role": "user", "content": [{"type": "image", "source": source}]}]),
    )
    assert cast("Any", response.content[0]).text == "I see a picture"


async def test_anthropic_headers_are_forwarded_without_our_key(gateway: Gateway) -> None:
    await gateway.anthropic(default_headers={"anthropic-beta": "fine-grained"}).messages.create(
        model="anth/small", max_tokens=10, messages=text_of("Hello")
    )
    headers = gateway.anth.requests[0].headers
    assert (headers["anthropic-beta"], headers["x-api-key"], headers["x-sixfold-hop"]) == (
        "fine-grained",
        "sk-anth",
        "1",
    )
    assert gateway.app.key not in str(headers)


@BOTH
async def test_tokens_are_counted_for_free(gateway: Gateway, model: str) -> None:
    before = await gateway.app.balance()
    counted = await gateway.anthropic().messages.count_tokens(
        model=model, messages=text_of("How many are these?")
    )
    assert counted.input_tokens == 7 if model == "anth/small" else 5 < counted.input_tokens < 40
    assert await gateway.app.balance() == before


# -- both ------------------------------------------------------------------------------------------


async def test_models_are_listed_for_both_clients(gateway: Gateway) -> None:
    names = {model.id async for model in gateway.openai().models.list()}
    assert {"acme/small", "acme/large", "small", "large", "anth/small", "both"} <= names
    assert {model.id async for model in gateway.anthropic().models.list()} == names
    assert (await gateway.openai().models.retrieve("acme/small")).owned_by == "acme"
    with pytest.raises(openai.NotFoundError):
        await gateway.openai().models.retrieve("acme/none")


async def test_errors_have_the_format_of_the_api(gateway: Gateway) -> None:
    with pytest.raises(openai.AuthenticationError):
        await gateway.openai("sf_wrong").chat.completions.create(model="small", messages=text_of("Hello"))
    with pytest.raises(anthropic.AuthenticationError):
        await gateway.anthropic("sf_wrong").messages.create(
            model="small", max_tokens=5, messages=text_of("Hello")
        )
    with pytest.raises(openai.NotFoundError) as unknown_error:
        await gateway.openai().chat.completions.create(model="none", messages=text_of("Hello"))
    assert unknown_error.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        await gateway.openai().chat.completions.create(model="acme/small\r\nx: 1", messages=text_of("Hello"))
    with pytest.raises(anthropic.NotFoundError) as missing_error:
        await gateway.anthropic().messages.create(model="none", max_tokens=5, messages=text_of("Hello"))
    assert cast("Any", missing_error.value.body)["error"]["type"] == "not_found_error"
    with pytest.raises(openai.BadRequestError) as unpriced_error:
        await gateway.openai().chat.completions.create(model="acme/large", messages=text_of("Hello"))
    assert unpriced_error.value.code == "unpriced_model"
    with pytest.raises(openai.BadRequestError) as empty_error:
        await gateway.openai().chat.completions.create(model="acme/small", messages=[])
    assert empty_error.value.param == "messages"
    with pytest.raises(anthropic.BadRequestError, match=r"max_tokens: must be at least 1 \(got 0\)"):
        await gateway.anthropic().messages.create(model="anth/small", max_tokens=0, messages=text_of("Hello"))


HELLO_MESSAGES = [{"role": "user", "content": "Hello"}]
CHAT, ANSWERS, LETTERS = "/v1/chat/completions", "/v1/responses", "/v1/messages"


@pytest.mark.parametrize(
    ("path", "wrong", "param"),
    [
        (CHAT, {"tools": 5}, "tools"),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (CHAT, {"messages": [{"role": "assistant", "tool_calls": 5}]}, "messages[0].tool_calls"),
        (CHAT, {"messages": 5}, "messages"),
        (CHAT, {"temperature": "hot"}, "temperature"),
        (ANSWERS, {"tools": 5}, "tools"),
        (ANSWERS, {"input": [{"type": ["message"]}]}, "input[0]"),
        (ANSWERS, {"input": [{"type": "reasoning", "summary": [5]}]}, "input[0]"),
        (LETTERS, {"tools": 5}, None),
        (LETTERS, {"stop_sequences": 5}, None),
        (LETTERS, {"thinking": {"type": "enabled", "budget_tokens": "x"}}, None),
    ],
)
async def test_field_that_is_not_a_list_is_refused_by_name(
    gateway: Gateway, path: str, wrong: dict[str, Any], param: str | None
) -> None:
    model = "acme/small" if path == LETTERS else "anth/small"
    right = {"model": model, "input" if path == ANSWERS else "messages": HELLO_MESSAGES, "max_tokens": 9}
    response = await gateway.app.client.post(path, json={**right, **wrong}, headers=gateway.headers)
    assert (response.status_code, response.json()["error"].get("param")) == (400, param)


@pytest.mark.parametrize("message", [5, {"content": "Hello"}, {"role": 5, "content": "Hello"}])
async def test_a_malformed_message_never_reaches_a_server(gateway: Gateway, message: Any) -> None:
    body = {"messages": [*HELLO_MESSAGES, message], "max_tokens": 9}
    for path, model in ((CHAT, "acme/small"), (LETTERS, "anth/small")):
        response = await gateway.app.client.post(path, json={**body, "model": model}, headers=gateway.headers)
        assert (response.status_code, "messages[1]" in response.json()["error"]["message"]) == (400, True)
    assert gateway.acme.requests == gateway.anth.requests == []


async def test_a_field_that_is_missing_is_named(gateway: Gateway) -> None:
    response = await gateway.app.client.post(CHAT, json={"model": "acme/small"}, headers=gateway.headers)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")


async def test_rejection_by_the_server_keeps_its_message_and_is_free(gateway: Gateway) -> None:
    before = await gateway.app.balance()
    gateway.acme.mode = gateway.anth.mode = "refuse"
    with pytest.raises(openai.BadRequestError) as excinfo:
        await gateway.openai().chat.completions.create(model="acme/small", messages=text_of("Hello"))
    assert "It says so" in excinfo.value.message
    assert excinfo.value.param == "temperature"
    with pytest.raises(anthropic.BadRequestError, match="It says so"):
        await gateway.anthropic().messages.create(model="acme/small", max_tokens=5, messages=text_of("Hello"))
    assert await gateway.app.balance() == before


async def test_exceeded_context_has_the_error_code_of_the_api(gateway: Gateway) -> None:
    gateway.acme.mode = "excess"
    for ask in (
        gateway.openai().chat.completions.create(model="acme/small", messages=text_of("Hello")),
        gateway.openai().responses.create(model="acme/small", input="Hello"),
    ):
        with pytest.raises(openai.BadRequestError) as excinfo:
            await ask
        assert excinfo.value.code == "context_length_exceeded"
    response = "prompt is too long: This model's maximum context length is 9 tokens"
    with pytest.raises(anthropic.BadRequestError) as excess_error:
        await gateway.anthropic().messages.create(model="acme/small", max_tokens=5, messages=text_of("Hello"))
    document: Any = excess_error.value.body
    assert document["error"]["message"] == response


async def test_body_of_the_same_protocol_is_forwarded_unchanged(gateway: Gateway) -> None:
    body = (
        b'{"model":"acme/small","messages":[{"role":"user","content":"say 2 words"}],"x_unknown":{"a": 1.50}}'
    )
    response = await gateway.app.client.post("/v1/chat/completions", content=body, headers=gateway.headers)
    assert response.status_code == 200
    assert b'"x_unknown":{"a": 1.50}' in gateway.acme.requests[0].raw
    assert b'"model":"small"' in gateway.acme.requests[0].raw


async def test_key_is_accepted_in_x_api_key(gateway: Gateway) -> None:
    response = await gateway.app.client.get("/v1/models", headers={"x-api-key": gateway.app.key})
    assert response.status_code == 200


async def test_request_from_this_server_itself_is_403(gateway: Gateway) -> None:
    response = await gateway.app.client.get("/v1/models", headers={**gateway.headers, "X-Sixfold-Hop": "1"})
    assert (response.status_code, response.json()["error"]["type"]) == (403, "permission_error")


async def test_split_events_are_forwarded_completely(gateway: Gateway) -> None:
    gateway.acme.mode = "cut"
    stream = await gateway.openai().chat.completions.create(
        model="acme/small", messages=text_of("say 5 words"), stream=True
    )
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == " ".join(["word"] * 5)


async def test_missing_model_server_is_503_with_remedy(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, upstreams={}, prices={}, aliases={}) as gateway:
        response = await gateway.chat(model="text-llm")
        assert response.status_code == 503
        assert "OPENAI_API_KEY" in response.json()["error"]["message"]
