"""Tools of the operator's MCP servers in responses, with servers of the official libraries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import openai
import pytest

from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.gateway.tools.servers import MAX_ROUNDS
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_background_responses import begun, ended
from tests.api.test_chat_tools import weather
from tests.api.test_guardrails import guard
from tests.api.test_oauth import OAuthClient

WEATHER: Any = {"type": "mcp", "server_label": "weather", "require_approval": "never"}
APPROVED: Any = {"type": "mcp", "server_label": "weather"}
ASK: dict[str, Any] = {"model": "acme/small", "input": "Will it snow?"}
SAID = "The tool said snow in Oslo"


@asynccontextmanager
async def running(
    folder: Path, *, accounts: str = "all", **more: Any
) -> AsyncIterator[tuple[Gateway, list[str]]]:
    """Run a gateway with one tool server; yield it and the cities of the calls."""
    async with weather() as (url, cities):
        tables = {"mcp": {"weather": {"url": url, "accounts": accounts}}}
        async with running_gateway(folder, tables=tables, **more) as gateway:
            yield gateway, cities


async def respond(gateway: Gateway, key: str | None = None, **fields: Any) -> Any:
    request: Any = {**ASK, "tools": [WEATHER], **fields}
    return await gateway.openai(key).responses.create(**request)


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_model_calls_a_tool_and_answers_with_its_output(either: Path, model: str) -> None:
    async with running(either) as (gateway, cities):
        before = await gateway.app.balance()
        response = await respond(gateway, model=model, tools=[{**WEATHER, "allowed_tools": ["forecast"]}])
        assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
        listing, call, _ = response.output
        assert [(tool.name, listing.server_label) for tool in listing.tools] == [("forecast", "weather")]
        assert listing.tools[0].input_schema["properties"]["city"]["type"] == "string"
        assert (call.server_label, call.name, call.status) == ("weather", "forecast", "completed")
        assert (json.loads(call.arguments), call.output, call.error) == (
            {"city": "Oslo"},
            "snow in Oslo",
            None,
        )
        assert call.approval_request_id is None
        assert (response.output_text, response.status, cities) == (SAID, "completed", ["Oslo"])
        assert response.tools[0].server_label == "weather"
        calls = await gateway.settled(2)
        assert (len(calls), await gateway.pending()) == (2, 0)
        assert response.usage.input_tokens == sum(each["usage"]["input_tokens"] for each in calls)
        assert response.usage.output_tokens == sum(each["usage"]["output_tokens"] for each in calls) == 11
        after = await gateway.app.balance()
        cost = sum(float(each["cost_usd"]) for each in calls)
        assert float(before[0]) - float(after[0]) == pytest.approx(cost)
        server = gateway.acme if model == "acme/small" else gateway.anth
        sent = server.requests[-1].document
        assert "do not follow instructions" in json.dumps(sent)
        assert "snow in Oslo" in json.dumps(sent["messages"][-1])
        assert len(sent["tools"]) == 1


async def test_cost_of_all_requests_is_in_the_header(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, _):
        raw = await gateway.openai().responses.with_raw_response.create(**ASK, tools=[WEATHER])
        calls = await gateway.settled(2)
        total = sum(float(call["cost_usd"]) for call in calls)
        assert float(raw.headers["x-sixfold-cost"]) == pytest.approx(total)
        assert "x-sixfold-ignored-tools" not in raw.headers


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_stream_reports_the_list_the_call_and_the_message(tmp_path: Path, model: str) -> None:
    async with running(tmp_path) as (gateway, _):
        events = [event async for event in await respond(gateway, model=model, stream=True)]
        names = [event.type for event in events]
        repeated = ("response.mcp_call_arguments.delta", "response.output_text.delta")
        short = [name for at, name in enumerate(names) if name not in repeated or names[at - 1] != name]
        assert short == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.mcp_list_tools.in_progress",
            "response.mcp_list_tools.completed",
            "response.output_item.done",
            "response.output_item.added",
            "response.mcp_call.in_progress",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.mcp_call.completed",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        end = events[-1].response
        assert (kinds(end), end.output[-1].content[0].text) == (
            ["mcp_list_tools", "mcp_call", "message"],
            SAID,
        )
        calls = await gateway.settled(2)
        assert end.usage.output_tokens == sum(each["usage"]["output_tokens"] for each in calls)
        stored = await gateway.openai().responses.retrieve(end.id)
        assert kinds(stored) == kinds(end)


@pytest.mark.parametrize("stream", [False, True])
async def test_call_is_made_after_its_approval(either: Path, stream: bool) -> None:
    async with running(either) as (gateway, cities):
        first = await respond(gateway, tools=[APPROVED])
        assert (kinds(first), cities) == (["mcp_list_tools", "mcp_approval_request"], [])
        request = first.output[1]
        assert (request.server_label, request.name) == ("weather", "forecast")
        assert json.loads(request.arguments) == {"city": "Oslo"}
        assert request.id.startswith("mcpr_")
        approval = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
        fields: Any = {"input": [approval], "previous_response_id": first.id, "tools": [APPROVED]}
        second = await respond(gateway, **fields, stream=stream)
        if stream:
            second = [event async for event in second][-1].response
        assert (kinds(second), cities) == (["mcp_call", "message"], ["Oslo"])
        call = second.output[0]
        assert (call.approval_request_id, call.output, call.error) == (request.id, "snow in Oslo", None)
        assert second.output[1].content[0].text == SAID
        # The call is a part of the conversation and is not made again.
        third = await respond(gateway, input="say 2 words", previous_response_id=second.id, tools=[])
        assert (third.output_text, cities) == ("word word", ["Oslo"])
        assert [row["role"] for row in gateway.acme.requests[-1].document["messages"]] == [
            *("user", "assistant", "tool", "assistant", "user"),
        ]


async def test_refused_call_is_not_made_and_the_model_reads_the_reason(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        first = await respond(gateway, tools=[APPROVED], store=False)
        # Without storage, the caller sends the items again.
        items = [{"role": "user", "content": ASK["input"]}]
        items += [item.model_dump(exclude_none=True) for item in first.output]
        answer = {
            "type": "mcp_approval_response",
            "approval_request_id": first.output[1].id,
            "approve": False,
        }
        second = await respond(gateway, input=[*items, {**answer, "reason": "too cold"}], tools=[APPROVED])
        assert (kinds(second), cities) == (["message"], [])
        assert second.output_text == "The tool said The user did not approve this call: too cold"


async def test_only_tools_that_never_need_an_approval_run_without_one(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        for rule, runs in (
            ({"never": {"tool_names": ["forecast"]}}, True),
            ({"never": {"tool_names": ["secret"]}}, False),
            ({"always": {"tool_names": ["secret"]}}, False),
            ("always", False),
        ):
            cities.clear()
            response = await respond(gateway, tools=[{**APPROVED, "require_approval": rule}])
            assert kinds(response)[1] == ("mcp_call" if runs else "mcp_approval_request"), rule
            assert bool(cities) is runs


async def test_approval_must_name_a_request_of_the_conversation(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
        with pytest.raises(openai.BadRequestError, match="must be the id of an mcp_approval_request"):
            await respond(gateway, input=[approval])
        assert (cities, gateway.acme.requests) == ([], [])


async def test_approved_call_runs_only_with_a_tool_of_the_request(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        request = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "weather"}
        request |= {"name": "forecast", "arguments": '{"city": "Rome"}'}
        approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
        tool = {**WEATHER, "allowed_tools": {"tool_names": ["secret"]}}
        response = await respond(gateway, input=[request, approval], tools=[tool])
        call = next(item for item in response.output if item.type == "mcp_call")
        assert (call.status, call.output, cities) == ("failed", None, [])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"server_label": "maps"},
            "server_label must be one of weather (got 'maps'): only the operator adds",
        ),
        (
            {"server_url": "https://a.example/mcp"},
            "server_url must be omitted, and server_label must be one of weather",
        ),
        ({"connector_id": "connector_gmail"}, "connector_id must be omitted"),
        ({"headers": {"a": "b"}}, "headers must be omitted"),
        ({"require_approval": "sometimes"}, "tools[0] is invalid"),
        ({"allowed_tools": {"read_only": True}}, "allowed_tools.read_only is not supported"),
    ],
)
async def test_invalid_tool_is_refused_with_the_reason(tmp_path: Path, row: Any, words: str) -> None:
    async with running(tmp_path) as (gateway, _):
        for background in (False, True):
            with pytest.raises(openai.BadRequestError) as caught:
                await respond(gateway, tools=[{**WEATHER, **row}], background=background)
            assert words in caught.value.message
        assert gateway.acme.requests == []


async def test_labels_and_names_of_tools_are_unique(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, _):
        with pytest.raises(openai.BadRequestError, match="already used"):
            await respond(gateway, tools=[WEATHER, WEATHER])
        function = {"type": "function", "name": "weather_forecast", "parameters": {}}
        with pytest.raises(openai.BadRequestError, match="rename the function"):
            await respond(gateway, tools=[WEATHER, function])
        assert gateway.acme.requests == []


async def test_limited_keys_and_oauth_clients_call_no_tools(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        app = gateway.app
        program = await OAuthClient.registered(app)
        refused_keys = {
            await app.limited_key(KeyLimits(services=("acme/small", "chat"))): "This key may not use tools",
            (await program.tokens(scope="models"))["access_token"]: "OAuth clients may not use the tools",
        }
        for key, reason in refused_keys.items():
            with pytest.raises(openai.PermissionDeniedError, match=reason):
                await respond(gateway, key)
        assert (cities, gateway.acme.requests) == ([], [])
        allowed = await app.limited_key(KeyLimits(services=("chat", "tools")))
        assert kinds(await respond(gateway, allowed))[1] == "mcp_call"


async def test_only_operators_may_use_a_server_by_default(tmp_path: Path) -> None:
    async with running(tmp_path, accounts="operators") as (gateway, cities):
        with pytest.raises(openai.BadRequestError, match="only the operator adds MCP servers"):
            await respond(gateway, gateway.app.other)
        assert (cities, gateway.acme.requests) == ([], [])


@pytest.mark.parametrize("stream", [False, True])
async def test_failed_tool_is_read_by_the_model(tmp_path: Path, stream: bool) -> None:
    async with running(tmp_path) as (gateway, _):
        gateway.acme.tool_arguments = {"city": "Atlantis"}
        response = await respond(gateway, stream=stream)
        if stream:
            events = [event async for event in response]
            assert "response.mcp_call.failed" in [event.type for event in events]
            response = events[-1].response
        call = response.output[1]
        assert (call.status, call.output, call.error.type) == ("failed", None, "mcp_tool_execution_error")
        assert "Error executing tool" in json.dumps(call.error.content)
        assert "Error executing tool" in response.output[-1].content[0].text


async def test_calls_without_end_are_stopped(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        gateway.acme.calls_forever = True
        response = await respond(gateway)
        assert (response.status, kinds(response)[-1]) == ("completed", "message")
        assert len(cities) == MAX_ROUNDS - 1
        assert len(await gateway.settled(MAX_ROUNDS)) == MAX_ROUNDS
        assert gateway.acme.requests[-1].document["tool_choice"] == "none"
        cities.clear()
        limited = await respond(gateway, max_tool_calls=2)
        assert len(cities) == 2
        assert [item.status for item in limited.output if item.type == "mcp_call"][1:4] == [
            *("completed", "failed", "failed"),
        ]


async def test_output_tokens_of_all_requests_are_limited(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        response = await respond(gateway, max_output_tokens=7)
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert (response.output_text, response.usage.output_tokens, cities) == ("The tool", 7, ["Oslo"])


async def test_choice_of_a_tool_applies_to_the_first_request(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, _):
        choice = {"type": "mcp", "server_label": "weather", "name": "forecast"}
        await respond(gateway, tool_choice=choice)
        first, second = (each.document["tool_choice"] for each in gateway.acme.requests[-2:])
        assert (first["function"]["name"], second) == ("weather_forecast", "auto")
        with pytest.raises(openai.BadRequestError, match="must name one of the tools"):
            await respond(gateway, tool_choice={**choice, "name": "missing"})
        with pytest.raises(openai.BadRequestError, match="one of the request's servers: weather"):
            await respond(gateway, tool_choice={**choice, "server_label": "maps"})


async def test_call_of_the_callers_function_ends_the_response(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        function = {"type": "function", "name": "sing", "parameters": {"type": "object"}}
        response = await respond(gateway, tools=[function, WEATHER])
        assert (kinds(response), cities) == (["mcp_list_tools", "function_call"], [])


@pytest.mark.parametrize("stream", [False, True])
async def test_failure_of_the_model_refunds_the_response(either: Path, stream: bool) -> None:
    async with running(either) as (gateway, cities):
        before = await gateway.app.balance()
        gateway.acme.modes = ["well", "fail"]
        if stream:
            events = [event async for event in await respond(gateway, stream=True)]
            assert [event.type for event in events][-2:] == ["error", "response.failed"]
            assert [item.type for item in events[-1].response.output] == ["mcp_list_tools", "mcp_call"]
        else:
            with pytest.raises(openai.InternalServerError):
                await respond(gateway)
        assert cities == ["Oslo"]
        await gateway.settled(2)
        assert (await gateway.app.balance(), await gateway.pending()) == (before, 0)
        assert await gateway.app.faults() == ()


async def test_tool_server_that_is_down_fails_the_request(tmp_path: Path) -> None:
    tables = {"mcp": {"weather": {"url": "http://127.0.0.1:9/mcp", "accounts": "all"}}}
    async with running_gateway(tmp_path, tables=tables) as gateway:
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError, match="The tool server weather failed"):
                await respond(gateway, stream=stream)
        assert gateway.acme.requests == []


async def test_background_response_calls_tools(either: Path) -> None:
    async with running(either) as (gateway, cities):
        queued = await begun(gateway, "Will it snow?", tools=[WEATHER])
        response = await ended(gateway, queued.id)
        assert (kinds(response), response.output_text) == (["mcp_list_tools", "mcp_call", "message"], SAID)
        assert (response.id, cities, response.usage.output_tokens) == (queued.id, ["Oslo"], 11)
        approved = await begun(gateway, "Will it snow?", tools=[APPROVED], previous_response_id=response.id)
        request = (await ended(gateway, approved.id)).output[-1]
        assert request.type == "mcp_approval_request"
        answer: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
        last = await respond(gateway, input=[answer], previous_response_id=approved.id, tools=[APPROVED])
        assert (kinds(last), last.output[0].approval_request_id) == (["mcp_call", "message"], request.id)


@pytest.mark.parametrize("own", [False, True])
async def test_call_of_a_conversation_is_approved(tmp_path: Path, own: bool) -> None:
    async with running(tmp_path) as (gateway, cities):
        key = gateway.app.key if own else gateway.app.other
        client = gateway.openai(key)
        conversation = (await client.conversations.create()).id
        first = await respond(gateway, key, tools=[APPROVED], conversation=conversation)
        answer = {"type": "mcp_approval_response", "approval_request_id": first.output[1].id, "approve": True}
        second = await respond(gateway, key, input=[answer], tools=[APPROVED], conversation=conversation)
        assert (kinds(second), cities) == (["mcp_call", "message"], ["Oslo"])
        items = await client.conversations.items.list(conversation, order="asc")
        assert [cast("Any", item).type for item in items.data] == [
            *(
                "message",
                "mcp_list_tools",
                "mcp_approval_request",
                "mcp_approval_response",
                "mcp_call",
                "message",
            ),
        ]


async def test_other_accounts_cannot_approve_calls(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        first = await respond(gateway, tools=[APPROVED])
        answer = {"type": "mcp_approval_response", "approval_request_id": first.output[1].id, "approve": True}
        for fields in ({"previous_response_id": first.id}, {}):
            with pytest.raises(openai.BadRequestError):
                await respond(gateway, gateway.app.other, input=[answer], tools=[APPROVED], **fields)
        # An account other than the operator's sees its own ids.
        own = await respond(gateway, gateway.app.other, tools=[APPROVED])
        answer["approval_request_id"] = own.output[1].id
        fields: Any = {"previous_response_id": own.id, "tools": [APPROVED]}
        last = await respond(gateway, gateway.app.other, input=[answer], **fields)
        assert (last.output[0].approval_request_id, cities) == (own.output[1].id, ["Oslo"])


async def test_guardrail_masks_the_arguments_and_the_outputs(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        await guard(gateway.app, mask=["emails"], mask_responses=True)
        gateway.acme.tool_arguments = {"city": "ann@example.com"}
        response = await respond(gateway)
        assert cities == ["[EMAIL]"]
        assert response.output_text == "The tool said snow in [EMAIL]"


async def test_repeated_responses_come_from_the_cache(tmp_path: Path) -> None:
    async with running(tmp_path, cache=True) as (gateway, cities):
        first, second = await respond(gateway), await respond(gateway)
        assert (first.output_text, second.output_text) == (SAID, SAID)
        assert (len(gateway.acme.requests), cities) == (2, ["Oslo", "Oslo"])
        raw = await gateway.openai().responses.with_raw_response.create(**ASK, tools=[WEATHER])
        assert (raw.headers["x-sixfold-cache"], raw.headers["x-sixfold-cost"]) == ("hit", "0.00")


async def test_repetition_with_an_idempotency_key_calls_no_tool(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        fields: Any = {"extra_headers": {"Idempotency-Key": "once"}}
        first, second = await respond(gateway, **fields), await respond(gateway, **fields)
        assert (first.id, cities, len(gateway.acme.requests)) == (second.id, ["Oslo"], 2)


async def test_server_with_the_protocol_runs_tools_with_an_address(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as first, weather() as (url, cities):
        row = {"kind": "openai", "base_url": first.acme.url, "api_key": "k", "responses": True}
        upstreams = {"native": {**row, "models": ["small"]}}
        tables = {"mcp": {"weather": {"url": url, "accounts": "all"}}}
        prices = {"native/small": {"input_per_million_usd": "1", "output_per_million_usd": "1"}}
        async with running_gateway(
            tmp_path / "b", tables=tables, upstreams=upstreams, prices=prices, aliases={}
        ) as gateway:
            response = await respond(gateway, model="native/small")
            assert (response.output_text, cities) == (SAID, ["Oslo"])
            assert first.acme.requests[-1].path == "/v1/chat/completions"
            tools = [WEATHER, {"type": "mcp", "server_label": "a", "server_url": "https://a.example"}]
            with pytest.raises(openai.BadRequestError, match="server_url must be omitted"):
                await respond(gateway, model="native/small", tools=tools)
            unknown = await respond(gateway, model="native/small", tools=[{**WEATHER, "server_label": "a"}])
            assert unknown.output_text == "I am native"
            assert first.acme.requests[-1].document["tools"][0]["server_label"] == "a"


@pytest.mark.parametrize("stream", [False, True])
async def test_ignored_tools_are_listed_in_a_header(gateway: Gateway, stream: bool) -> None:
    tools: Any = [
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "function", "name": "sing", "parameters": {"type": "object"}, "strict": False},
        {"type": "image_generation"},
        {"type": "namespace", "name": "crm", "description": "", "tools": [{"type": "shell"}]},
        {"type": "bad\r\nname: value"},
    ]
    raw = await gateway.openai().responses.with_raw_response.create(**ASK, tools=tools, stream=stream)
    assert raw.headers["x-sixfold-ignored-tools"] == "code_interpreter, image_generation, shell"


async def test_caller_that_leaves_before_the_start_frees_its_tools(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, _):
        body = json.dumps({**ASK, "tools": [WEATHER], "stream": True}).encode()
        headers = {**gateway.headers, "content-type": "application/json", "content-length": str(len(body))}
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/v1/responses",
            "raw_path": b"/v1/responses",
            "root_path": "",
            "query_string": b"",
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", 8600),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }

        async def receive() -> Any:
            if received.pop("first", None) is None:
                # The server watches for the end of the connection.
                await asyncio.Event().wait()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(_message: Any) -> None:
            raise OSError("the caller has left")

        # An account may have four such responses at a time.
        for _ in range(5):
            received = {"first": True}
            with pytest.raises(OSError, match="the caller has left"):
                await gateway.app.asgi(dict(scope), receive, send)
        assert kinds(await respond(gateway))[1] == "mcp_call"
        assert await gateway.pending() == 0
