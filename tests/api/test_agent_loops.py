"""Requests of coding agents, through APIs and model servers of different protocols."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import openai
import pytest

from sixfold.api.gateway.anthropic import messages as anthropic_face
from sixfold.api.gateway.chat_handler import ChatCall
from sixfold.api.gateway.openai import chat as chat_face
from sixfold.api.gateway.openai import tools as tool_names
from sixfold.api.gateway.openai.responses import dialect as responses_face
from sixfold.clients.chat.messages import Messages
from sixfold.core.accounts import accounts
from sixfold.core.gateway.chat import (
    ChatRequest,
    Event,
    MessageEnd,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from sixfold.core.gateway.pricing.usage import TokenUsage
from tests.api.gateway import Gateway
from tests.api.test_gateway import PIXEL

pytestmark = pytest.mark.asyncio(loop_scope="module")
DATA = PIXEL.partition("base64,")[2]
TOOL: Any = {
    "name": "read",
    "input_schema": {"type": "object", "properties": {}},
    "cache_control": {"type": "ephemeral"},
}
TWO_CALLS = (
    ToolCallStart(0, "call_1", "read"),
    ToolCallStart(1, "call_2", "list"),
    ToolCallDelta(0, '{"file": '),
    ToolCallDelta(1, '{"at": 1}'),
    ToolCallDelta(0, '"a"}'),
)


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway.afresh()


async def stream_documents(face: Any, *events: Event, tools: Any = ()) -> list[dict[str, Any]]:
    """Return the documents of a stream, for a caller with these tools."""

    async def events_of_reply() -> AsyncIterator[Event]:
        for event in events:
            yield event

    expected = ChatCall(
        "m",
        stream=True,
        max_tokens=None,
        parse=lambda: ChatRequest(()),
        tools=lambda: tool_names.tool_kinds(list(tools)),
    )
    blocks = b"".join([block async for block in face.render_stream(events_of_reply(), expected, "req_1")])
    lines = [line[6:] for line in blocks.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


async def test_agent_turn_is_translated_completely_for_a_chat_server(gateway: Gateway) -> None:
    """Includes system parts, signed thinking, two parallel calls, and results with an image."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
    calls = [{"type": "tool_use", "id": f"toolu_{n}", "name": "read", "input": {"n": n}} for n in (1, 2)]
    results = [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [{"type": "text", "text": "one"}, image],
        },
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "two", "is_error": True},
    ]
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "notes"}}
    body: Any = {
        "model": "acme/small",
        "max_tokens": 2000,
        "system": [
            {"type": "text", "text": part, "cache_control": {"type": "ephemeral"}} for part in ("You", "help")
        ],
        "tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "stop_sequences": ["END"],
        "messages": [
            {"role": "user", "content": [document, {"type": "text", "text": "Read both"}]},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}, *calls],
            },
            {"role": "user", "content": [*results, {"type": "text", "text": "say 3 words"}]},
        ],
    }
    async with gateway.anthropic().messages.stream(**body) as stream:
        answer = await stream.get_final_message()
    # The fake calls every tool of the request.
    assert answer.stop_reason == "tool_use"
    sent = gateway.acme.requests[0].document
    assert sent["messages"][0] == {"role": "system", "content": "You\n\nhelp"}
    assert [turn["role"] for turn in sent["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "user",
    ]
    assert [call["id"] for call in sent["messages"][2]["tool_calls"]] == ["toolu_1", "toolu_2"]
    assert [turn["content"] for turn in sent["messages"][3:5]] == ["one", "two"]
    assert sent["messages"][5]["content"][0]["image_url"]["url"] == PIXEL
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["read"]
    assert (sent["reasoning_effort"], sent["stop"]) == ("low", ["END"])


async def test_system_message_in_the_middle_keeps_its_position(gateway: Gateway) -> None:
    """Claude Code sends its agents and skills after the first message of the user."""
    call: Any = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    result: Any = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"}
    inputs: Any = [
        {"role": "system", "content": "Be kind"},
        {"role": "user", "content": "Read it"},
        {"role": "system", "content": [{"type": "text", "text": "You have skills"}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "system", "content": "Be brief"},
    ]
    await gateway.anthropic().messages.create(
        model="acme/small", max_tokens=9, system="You help", messages=inputs, tools=[TOOL]
    )
    sent = gateway.acme.requests[0].document["messages"]
    skills = "Read it\n\n<system-reminder>\nYou have skills\n</system-reminder>"
    assert sent[0] == {"role": "system", "content": "You help\n\nBe kind"}
    assert sent[1] == {"role": "user", "content": skills}
    assert [turn["role"] for turn in sent[2:]] == ["assistant", "tool", "user"]
    assert "Be brief" in sent[4]["content"]


async def test_calls_of_one_response_are_one_turn_for_a_chat_server(gateway: Gateway) -> None:
    inputs: Any = [{"role": "user", "content": "Read both"}]
    for n in (1, 2):
        inputs.append({"type": "function_call", "call_id": f"c{n}", "name": "read", "arguments": "{}"})
    inputs.append({"type": "web_search_call", "id": "ws_1", "status": "completed"})
    inputs += [{"type": "function_call_output", "call_id": f"c{n}", "output": f"out {n}"} for n in (1, 2)]
    answer = await gateway.openai().responses.create(model="acme/small", input=inputs)
    assert answer.output_text == "The tool said out 2"
    sent = gateway.acme.requests[0].document["messages"]
    assert [turn["role"] for turn in sent] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in sent[1]["tool_calls"]] == ["c1", "c2"]


async def test_response_repeats_the_parameters_of_its_request(gateway: Gateway) -> None:
    inputs: Any = {
        "instructions": "Be brief",
        "metadata": {"turn": "7"},
        "temperature": 0.5,
        "max_output_tokens": 32,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}],
    }
    answer = await gateway.openai().responses.create(model="acme/small", input="Hello", top_p=None, **inputs)
    async with gateway.openai().responses.stream(model="acme/small", input="Hello", **inputs) as stream:
        streamed = await stream.get_final_response()
    for response in (answer, streamed):
        status = response.to_dict()
        assert {name: status[name] for name in inputs} == inputs
        assert (status["top_p"], status["store"], status["parallel_tool_calls"]) == (None, True, True)


async def test_images_of_tool_results_follow_the_last_result(gateway: Gateway) -> None:
    inputs: Any = [{"role": "user", "content": "Look"}]
    for n in (1, 2):
        inputs.append({"type": "function_call", "call_id": f"c{n}", "name": "look", "arguments": "{}"})
    content = [{"type": "input_text", "text": "this"}, {"type": "input_image", "image_url": PIXEL}]
    inputs += [{"type": "function_call_output", "call_id": f"c{n}", "output": content} for n in (1, 2)]
    # Each image is held as 5,000 tokens.
    await gateway.app.database.write(accounts.credit(gateway.app.account.email, 20_000_000))
    await gateway.openai().responses.create(model="acme/small", input=inputs)
    sent = gateway.acme.requests[0].document["messages"]
    assert [turn["role"] for turn in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert len(sent[-1]["content"]) == 2


async def test_provider_side_state_and_tools_are_refused(gateway: Gateway) -> None:
    client = gateway.openai()
    with pytest.raises(openai.BadRequestError) as excinfo:
        await client.responses.create(model="acme/small", input="x", previous_response_id="resp_1")
    assert excinfo.value.param == "previous_response_id"
    function = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}
    with pytest.raises(openai.BadRequestError, match="can be chosen only with a model of its provider"):
        await client.responses.create(
            model="acme/small", input="x", tool_choice=cast("Any", {"type": "web_search"})
        )
    assert gateway.acme.requests == []
    await client.responses.create(
        model="acme/small", input="x", tools=cast("Any", [function, {"type": "web_search"}])
    )
    assert [tool["function"]["name"] for tool in gateway.acme.requests[0].document["tools"]] == ["read"]


PATCH: Any = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Changes files",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_custom_tool_becomes_a_function_with_one_text_input(gateway: Gateway, model: str) -> None:
    client, server = gateway.openai(), gateway.acme if model.startswith("acme") else gateway.anth
    inputs: Any = [{"role": "user", "content": "Mend it"}]
    choice: Any = {"type": "custom", "name": "apply_patch"}
    answer = await client.responses.create(model=model, input=inputs, tools=[PATCH], tool_choice=choice)
    call = answer.output[0]
    assert call.type == "custom_tool_call"
    # The fake returns the same text for every tool.
    assert (call.name, call.input) == ("apply_patch", "Oslo")
    sent = server.requests[0].document["tools"][0]
    schema = sent["function"]["parameters"] if "function" in sent else sent["input_schema"]
    assert list(schema["properties"]) == ["input"]
    assert "start: /.+/" in str(sent)
    assert "apply_patch" in str(server.requests[0].document["tool_choice"])
    async with client.responses.stream(model=model, input=inputs, tools=[PATCH]) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert final.output[0].to_dict() | {"id": ""} == call.to_dict() | {"id": ""}
    assert "response.custom_tool_call_input.delta" in kinds
    assert "response.custom_tool_call_input.done" in kinds
    inputs += [call.to_dict(), {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Done"}]
    answer = await client.responses.create(model=model, input=inputs, tools=[PATCH])
    assert answer.output_text == "The tool said Done"
    assert '"Oslo"' in str(server.requests[-1].document["messages"][1]).replace("'", '"')


async def test_custom_tool_text_streams_across_argument_chunks() -> None:
    text = 'a "quoted"\n\ttab \\ \U0001f600 é end'
    arguments = json.dumps({"input": text})
    for size in (1, 2, 5, 1000):
        pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
        events = await stream_documents(
            responses_face,
            ToolCallStart(0, "call_1", "apply_patch"),
            *(ToolCallDelta(0, piece) for piece in pieces),
            MessageEnd("tool", TokenUsage(1, 1)),
            tools=[PATCH],
        )
        deltas = [event["delta"] for event in events if event["type"].endswith("input.delta")]
        assert "".join(deltas) == text
        assert len(deltas) > 10 or size > 2
        assert events[-1]["response"]["output"][0]["input"] == text
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_malformed_custom_tool_arguments_are_returned_as_text() -> None:
    for arguments, meant in (('{"patch": "x"}', "x"), ("*** Begin", "*** Begin"), ('"y"', "y"), ("", "")):
        events = await stream_documents(
            responses_face,
            ToolCallStart(0, "call_1", "apply_patch"),
            ToolCallDelta(0, arguments),
            MessageEnd("tool", TokenUsage(1, 1)),
            tools=[PATCH],
        )
        assert events[-1]["response"]["output"][0]["input"] == meant


async def test_tool_call_keeps_the_namespace_of_its_tool(gateway: Gateway) -> None:
    tool: Any = {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}}
    space: Any = {"type": "namespace", "name": "crm", "description": "Customers", "tools": [tool]}
    client = gateway.openai()
    inputs: Any = [{"role": "user", "content": "Who?"}]
    call: Any = (await client.responses.create(model="acme/small", input=inputs, tools=[space])).output[0]
    assert (call.namespace, call.name) == ("crm", "find")
    assert [tool["function"]["name"] for tool in gateway.acme.requests[0].document["tools"]] == ["crm__find"]
    inputs += [call.to_dict(), {"type": "function_call_output", "call_id": call.call_id, "output": "Ada"}]
    answer = await client.responses.create(model="acme/small", input=inputs, tools=[space])
    assert answer.output_text == "The tool said Ada"
    assert (
        gateway.acme.requests[1].document["messages"][1]["tool_calls"][0]["function"]["name"] == "crm__find"
    )


async def test_anthropic_shapes_and_efforts_reach_a_chat_server(gateway: Gateway) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    output = {"effort": "medium", "format": {"type": "json_schema", "schema": schema}}
    body = {"model": "acme/small", "max_tokens": 99, "messages": [{"role": "user", "content": "Where?"}]}
    response = await gateway.app.client.post(
        "/v1/messages", json={**body, "output_config": output}, headers=gateway.headers
    )
    assert json.loads(response.json()["content"][0]["text"]) == {"city": "Oslo"}
    sent = gateway.acme.requests[0].document
    assert (sent["reasoning_effort"], sent["response_format"]["json_schema"]["schema"]) == ("medium", schema)


async def test_messages_server_gets_json_schema_in_prompt_beside_tools() -> None:
    """Such a server is forced to call a tool for its JSON; with other tools, the prompt asks for JSON."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    chat = chat_face.from_fields(
        {
            "messages": [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Where?"}],
            "tools": [tool],
            "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}},
        }
    )
    sent = json.loads(Messages().build_request(chat, "small", stream=False))
    assert sent["tool_choice"] == {"type": "auto"}
    assert sent["system"].startswith("Be kind\n\nAnswer with one JSON object")
    assert json.loads(sent["system"].partition("schema: ")[2]) == schema


async def test_thinking_continues_only_with_its_own_signature() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}
    out = {"type": "function_call_output", "call_id": "c", "output": "x"}
    thought = {"type": "reasoning", "summary": [], "encrypted_content": "seal"}
    for inputs, thinks in (([call, out], False), ([thought, call, out], True), ([], True)):
        body = {
            "model": "m",
            "reasoning": {"effort": "low"},
            "input": [{"role": "user", "content": "x"}, *inputs],
        }
        request = json.loads(
            Messages().build_request(responses_face.parse(json.dumps(body).encode()), "m", stream=False)
        )
        assert ("thinking" in request) is thinks


async def test_encrypted_reasoning_is_returned_in_responses() -> None:
    events = await stream_documents(
        responses_face,
        ReasoningDelta("Hm"),
        ReasoningDelta("", "seal"),
        TextDelta("So"),
        MessageEnd("end", TokenUsage(1, 1)),
    )
    thought, _ = events[-1]["response"]["output"]
    assert (thought["encrypted_content"], thought["summary"][0]["text"]) == ("seal", "Hm")


@pytest.mark.parametrize(
    "calls",
    [
        TWO_CALLS,
        (*TWO_CALLS[:3], TWO_CALLS[4], TWO_CALLS[3]),
        (TWO_CALLS[0], *TWO_CALLS[2::2], *TWO_CALLS[1::2]),
    ],
    ids=["mixed", "named first", "one after another"],
)
async def test_tool_arguments_in_any_order_reach_their_open_block(calls: tuple[Event, ...]) -> None:
    """Claude Code calls a tool with what came before its block was closed."""
    events = await stream_documents(
        anthropic_face, TextDelta("Well"), *calls, MessageEnd("tool", TokenUsage(1, 1))
    )
    inputs: dict[int, str] = {}
    at = -1
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert at == -1
                at = event["index"]
            case "content_block_delta":
                assert event["index"] == at
                inputs[at] = inputs.get(at, "") + event["delta"].get("partial_json", "")
            case "content_block_stop":
                at = -1
            case _:
                assert at == -1
    assert inputs == {0: "", 1: '{"file": "a"}', 2: '{"at": 1}'}


async def test_tool_call_without_arguments_gets_none_of_the_next_call() -> None:
    now = ToolCallStart(0, "call_0", "now")
    events = await stream_documents(
        anthropic_face, now, *TWO_CALLS[1::2], TextDelta("Well"), MessageEnd("tool", TokenUsage(1, 1))
    )
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block.get("id") for block in starts] == ["call_0", "call_2", None]
    told_of = [event["index"] for event in events if event["type"] == "content_block_delta"]
    assert told_of == [1, 2]


async def test_parallel_arguments_are_complete_before_done_events() -> None:
    first, last = ToolCallStart(0, "call_0", "now"), TextDelta("Well")
    events = await stream_documents(
        responses_face, first, *TWO_CALLS[1:], TWO_CALLS[0], last, MessageEnd("tool", TokenUsage(1, 1))
    )
    items = events[-1]["response"]["output"]
    assert [item.get("call_id") for item in items] == ["call_0", "call_2", "call_1", None]
    for index, item in enumerate(items[:3]):
        mine = [event for event in events if event.get("output_index") == index]
        deltas = [event["delta"] for event in mine if event["type"].endswith("arguments.delta")]
        assert "".join(deltas) == item["arguments"]
        assert [event["type"].rpartition("response.")[2] for event in mine[-2:]] == [
            "function_call_arguments.done",
            "output_item.done",
        ]
        assert mine[-1]["item"]["status"] == "completed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_interrupted_stream_ends_with_response_failed(gateway: Gateway) -> None:
    """Codex reads `response.failed` only, and shows its message to the user."""
    gateway.acme.mode = "truncate"
    stream = await gateway.openai().responses.create(model="acme/small", input="say 9 words", stream=True)
    events: list[Any] = [event async for event in stream]
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    error, response = events[-2], events[-1].response
    assert (error.code, response.status, response.error.code) == (
        "generation_failed",
        "failed",
        "server_error",
    )
    assert (
        response.error.message
        == error.message
        == "The model server disconnected before the response was complete"
    )


async def test_streamed_calls_with_equal_index_are_two_calls() -> None:
    events = await stream_documents(
        responses_face,
        ToolCallStart(0, "call_1", "read"),
        ToolCallDelta(0, '{"n": 1}'),
        ToolCallStart(0, "call_2", "read"),
        ToolCallDelta(0, '{"n": 2}'),
        MessageEnd("tool", TokenUsage(1, 1)),
    )
    assert [item["arguments"] for item in events[-1]["response"]["output"]] == ['{"n": 1}', '{"n": 2}']
    assert all(item["status"] == "completed" for item in events[-1]["response"]["output"])


async def test_a_call_without_arguments_has_an_empty_object() -> None:
    calling, end = ToolCallStart(0, "call_1", "now"), MessageEnd("tool", TokenUsage(1, 1))
    chunks = await stream_documents(chat_face, calling, end)
    calls = [chunk["choices"][0]["delta"].get("tool_calls", []) for chunk in chunks if chunk["choices"]]
    assert "".join(call["function"]["arguments"] for some in calls for call in some) == "{}"
    response = (await stream_documents(responses_face, calling, end))[-1]["response"]
    assert response["output"][0]["arguments"] == "{}"
