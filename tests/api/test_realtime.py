"""The Realtime API by the official client: the session, its conversation, and responses of text."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
from pathlib import Path
from typing import Any, cast

import pytest
import websockets

from sixfold.api.gateway.openai.realtime import connection as realtime_connection
from sixfold.core.accounts import keys, rights
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.gateway.realtime.items import MessageItem, TextContent
from tests.api.realtime import (
    PATIENCE_SECONDS,
    TEXT,
    RealtimeServer,
    event,
    running_realtime,
    say,
    until,
    user_message,
)
from tests.harness import backends
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")
ON_ALL = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
TOOL = {"type": "function", "name": "weather", "description": "The weather", "parameters": {"type": "object"}}


@pytest.fixture
def server(shared_realtime: RealtimeServer) -> RealtimeServer:
    return shared_realtime.afresh()


def kinds(events: list[Any]) -> list[str]:
    """Return the types of events, each once if it is repeated."""
    names = [each.type for each in events]
    return [name for at, name in enumerate(names) if not at or names[at - 1] != name]


async def test_events_of_a_text_response_are_in_order(server: RealtimeServer) -> None:
    async with server.connect(TEXT) as connection:
        events = await say(connection, "say 3 words")
    assert kinds(events) == [
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "rate_limits.updated",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    deltas = [each.delta for each in events if each.type == "response.output_text.delta"]
    response = events[-1].response
    assert ("".join(deltas), len(deltas)) == ("word word word", 3)
    assert (response.status, response.output[0].content[0].text) == ("completed", "word word word")
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (
        10,
        3,
        13,
    )
    assert response.usage.input_token_details.cached_tokens == 4
    assert len({each.event_id for each in events}) == len(events)
    (call,) = [row for row in await server.gateway.settled() if row["id"][4:] == response.id[5:]]
    assert (call["face"], call["status"], call["cost_usd"]) == ("realtime", "succeeded", "0.0038")


async def test_a_later_response_continues_the_conversation(server: RealtimeServer) -> None:
    async with server.connect({**TEXT, "instructions": "Be short"}) as connection:
        await say(connection, "say 2 words")
        await say(connection, "say 1 words")
    sent = server.gateway.acme.requests[-1].document["messages"]
    assert [(row["role"], row["content"]) for row in sent] == [
        ("system", "Be short"),
        ("user", "say 2 words"),
        ("assistant", "word word"),
        ("user", "say 1 words"),
    ]


async def test_a_function_is_called_and_its_result_is_used(server: RealtimeServer) -> None:
    server.gateway.acme.tool_word = "Oslo?"
    try:
        async with server.connect({**TEXT, "tools": [TOOL], "tool_choice": "required"}) as connection:
            events = await say(connection, "Weather in Oslo?")
            names = kinds(events)
            start = names.index("response.output_item.added")
            assert names[start:] == [
                "response.output_item.added",
                "conversation.item.added",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                "conversation.item.done",
                "response.output_item.done",
                "response.done",
            ]
            (call,) = events[-1].response.output
            assert (call.type, call.name, json.loads(call.arguments)) == (
                "function_call", "weather", {"city": "Oslo"},
            )  # fmt: skip
            result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "4 degrees"}
            await connection.conversation.item.create(item=result)
            await connection.response.create()
            await until(connection, "response.done")
    finally:
        server.gateway.acme.tool_word = ""
    sent = server.gateway.acme.requests[-1].document
    assert [row["role"] for row in sent["messages"]] == ["user", "assistant", "tool"]
    assert sent["messages"][1]["tool_calls"][0]["id"] == sent["messages"][2]["tool_call_id"] == call.call_id
    assert sent["tool_choice"] == "required"
    assert sent["tools"][0]["function"]["name"] == "weather"


async def test_items_are_inserted_retrieved_and_deleted(server: RealtimeServer) -> None:
    async with server.connect(TEXT) as connection:
        items: Any = connection.conversation.item
        await items.create(item={**user_message("second"), "id": "two"})
        await items.create(item={**user_message("first"), "id": "one"}, previous_item_id="root")
        await items.create(item={**user_message("between"), "id": "mid"}, previous_item_id="one")
        added = [each for each in await until_count(connection, 6) if each.type == "conversation.item.added"]
        assert [(each.item.id, each.previous_item_id) for each in added] == [
            ("two", None), ("one", None), ("mid", "one"),
        ]  # fmt: skip
        await items.retrieve(item_id="mid")
        retrieved = await event(connection)
        assert (retrieved.type, retrieved.item.content[0].text) == ("conversation.item.retrieved", "between")
        await items.delete(item_id="two")
        assert (await event(connection)).item_id == "two"
        await connection.response.create()
        await until(connection, "response.done")
    texts = [row["content"] for row in server.gateway.acme.requests[-1].document["messages"]]
    assert texts == ["first", "between"]


async def until_count(connection: Any, count: int) -> list[Any]:
    return [await event(connection) for _ in range(count)]


async def test_a_canceled_response_is_charged_as_a_stream(server: RealtimeServer) -> None:
    server.gateway.acme.mode = "trickle"
    async with server.connect(TEXT) as connection:
        await connection.conversation.item.create(item=user_message("say 8 words"))
        await connection.response.create()
        await until(connection, "response.output_text.delta")
        await connection.response.create(event_id="again")
        error = (await until(connection, "error"))[-1].error
        assert (error.code, error.event_id) == ("conversation_already_has_active_response", "again")
        await connection.response.cancel()
        events = await until(connection, "response.done")
        response = events[-1].response
        assert (response.status, response.status_details.reason) == ("cancelled", "client_cancelled")
        assert response.output[0].status == "incomplete"
        assert 0 < response.usage.output_tokens < 8
        await connection.response.cancel(event_id="late")
        assert (await event(connection)).error.code == "response_cancel_not_active"
    (call,) = [row for row in await server.gateway.settled() if row["id"][4:] == response.id[5:]]
    assert (call["status"], call["usage"]["output_tokens"]) == ("left", response.usage.output_tokens)
    assert await server.gateway.pending() == 0


async def test_a_response_outside_of_the_conversation(server: RealtimeServer) -> None:
    async with server.connect(TEXT) as connection:
        await say(connection, "say 1 words")
        response: Any = {
            "conversation": "none",
            "input": [user_message("say 2 words")],
            "metadata": {"topic": "count"},
            "instructions": "Count",
            "max_output_tokens": 50,
        }
        await connection.response.create(response=response)
        events = await until(connection, "response.done")
        final_response = events[-1].response
        assert (final_response.conversation_id, final_response.metadata) == (None, {"topic": "count"})
        assert "conversation.item.added" not in kinds(events)
        document = server.gateway.acme.requests[-1].document
        assert [row["content"] for row in document["messages"]] == ["Count", "say 2 words"]
        assert (
            document["max_completion_tokens" if "max_completion_tokens" in document else "max_tokens"] == 50
        )
        await say(connection, "say 1 words")
    assert len(server.gateway.acme.requests[-1].document["messages"]) == 3


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown type": ({"type": "sing"}, "type", "session.update"),
    "a session that is no object": ({"type": "session.update", "session": 1}, "session", "object"),
    "an unknown field": (
        {"type": "session.update", "session": {"temperature": 1}}, "session.temperature", "Unknown parameter",
    ),
    "another model": (
        {"type": "session.update", "session": {"model": "other"}}, "session.model", "connect again",
    ),
    "semantic turn detection": (
        {"type": "session.update", "session": {"audio": {"input": {"turn_detection": {
            "type": "semantic_vad", "eagerness": "never"}}}}},
        "session.audio.input.turn_detection.eagerness", "never",
    ),
    "too many output tokens": (
        {"type": "session.update", "session": {"max_output_tokens": 5000}},
        "session.max_output_tokens", "4096",
    ),
    "a tool server without a name": (
        {"type": "session.update", "session": {"tools": [{"type": "mcp"}]}},
        "session.tools[0]", "server_label",
    ),
    "a tool server of the client": (
        {"type": "session.update", "session": {"tools": [
            {"type": "mcp", "server_label": "x", "server_url": "https://x.example/mcp"}]}},
        "session.tools[0].server_url", "must be omitted",
    ),
    "a tool server with approvals": (
        {"type": "session.update", "session": {"tools": [{"type": "mcp", "server_label": "x"}]}},
        "session.tools[0].require_approval", "must be 'never'",
    ),
    "a tool server that is not connected": (
        {"type": "session.update", "session": {"tools": [
            {"type": "mcp", "server_label": "x", "require_approval": "never"}]}},
        "tools", "connected by the operator",
    ),
    "the other type of a session": (
        {"type": "session.update", "session": {"type": "transcription"}},
        "session.type", "intent=transcription",
    ),
    "an item without a type": ({"type": "conversation.item.create", "item": {}}, "item.type", "message"),
    "an item of a strange role": (
        {"type": "conversation.item.create", "item": {"type": "message", "role": "me", "content": []}},
        "item.role", "user",
    ),
    "an unknown item": (
        {"type": "conversation.item.delete", "item_id": "none"}, "item_id", "no item 'none'",
    ),
    "an unknown item before": (
        {"type": "conversation.item.create", "item": user_message("x"), "previous_item_id": "none"},
        "previous_item_id", "no item 'none'",
    ),
    "a truncation of a text": (
        {"type": "conversation.item.truncate", "item_id": "first", "content_index": 0, "audio_end_ms": 1},
        "item_id", "not audio",
    ),
    "a response of another conversation": (
        {"type": "response.create", "response": {"conversation": "conv_1"}}, "response.conversation", "auto",
    ),
    "an unknown field of a response": (
        {"type": "response.create", "response": {"temperature": 1}}, "response.temperature", "Unknown",
    ),
    "metadata with a number": (
        {"type": "response.create", "response": {"metadata": {"a": 1}}}, "response.metadata", "16 keys",
    ),
}  # fmt: skip


async def test_a_refused_event_changes_nothing(server: RealtimeServer) -> None:
    async with server.connect(TEXT) as connection:
        first = {**user_message("say 1 words"), "id": "first"}
        await connection.conversation.item.create(item=cast("Any", first))
        await until_count(connection, 2)
        for name, (body, param, words) in REFUSED.items():
            await connection.send(cast("Any", {**body, "event_id": name}))
            result = await event(connection)
            assert result.type == "error", name
            error = result.error
            assert (error.type, error.param, error.event_id) == ("invalid_request_error", param, name)
            assert words in error.message, (name, error.message)
        await connection.response.create()
        response = (await until(connection, "response.done"))[-1].response
    assert response.status == "completed"
    assert len(server.gateway.acme.requests) == 1


async def test_text_that_is_not_json_gets_an_error_event(server: RealtimeServer) -> None:
    headers = {"Authorization": f"Bearer {server.gateway.app.key}"}
    async with websockets.connect(
        f"ws://{server.address}/v1/realtime?model=acme/small", additional_headers=headers
    ) as socket:
        assert json.loads(await socket.recv())["type"] == "session.created"
        for text in ("{", "[]", "7", '{"type": {}}', b"\xff\xfe"):
            await socket.send(text)
            async with asyncio.timeout(PATIENCE_SECONDS):
                error = json.loads(await socket.recv())
            assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")


async def test_a_failed_model_server_costs_nothing(server: RealtimeServer) -> None:
    before = await server.gateway.app.balance()
    for mode in ("fail", "truncate"):
        server.gateway.acme.mode = mode
        async with server.connect(TEXT) as connection:
            await connection.conversation.item.create(item=user_message("say 4 words"))
            await connection.response.create(event_id="it")
            events = await until(connection, "response.done")
            response = events[-1].response
            assert (response.status, response.status_details.type) == ("failed", "failed")
            assert response.status_details.error.message
            if mode == "fail":
                assert [each.error.event_id for each in events if each.type == "error"] == ["it"]
    await server.gateway.settled(2)
    assert await server.gateway.app.balance() == before


async def test_guardrails_and_the_content_log_apply(tmp_path: Path) -> None:
    async with running_realtime(tmp_path, settings=backends.FILES) as server:
        app = server.gateway.app
        fields = {"mask": ["emails"], "mask_responses": True}
        answer = await app.client.put("/api/account/guardrails", json=fields, headers=app.bearer)
        assert answer.status_code == 200
        await app.client.put("/api/account/logging", json={"days": 3}, headers=app.bearer)
        server.gateway.acme.answer = "Write to bob@example.com today"
        async with server.connect(TEXT) as connection:
            events = await say(connection, "I am ann@example.com")
        response = events[-1].response
        deltas = [each.delta for each in events if each.type == "response.output_text.delta"]
        assert "".join(deltas) == response.output[0].content[0].text == "Write to [EMAIL] today"
        assert server.gateway.acme.requests[-1].document["messages"][0]["content"] == "I am [EMAIL]"
        await app.server.gateway_runtime.gateway.drain()
        path = f"/api/account/logging/calls/req_{response.id[5:]}"
        logged = (await app.client.get(path, headers=app.bearer)).text
        assert "I am [EMAIL]" in logged
        assert "Write to [EMAIL] today" in logged


async def test_unknown_model_fails_and_openai_name_is_served(server: RealtimeServer) -> None:
    async with server.connect(TEXT, model="nothing/here") as connection:
        events = await say(connection, "say 1 words")
        (error,) = [each.error for each in events if each.type == "error"]
        assert error.code == "model_not_found"
        assert events[-1].response.status == "failed"
    async with server.connect(TEXT, model="gpt-realtime") as connection:
        events = await say(connection, "say 1 words")
        assert events[-1].response.status == "completed"


async def status_of(address: str, headers: dict[str, str], protocols: Any = None) -> int:
    """Return the status of a handshake; a refused one has an error of OpenAI's format."""
    opening = websockets.connect(
        f"ws://{address}/v1/realtime", additional_headers=headers, subprotocols=protocols
    )
    try:
        async with opening as socket:
            return 101 if json.loads(await socket.recv())["type"] == "session.created" else 0
    except websockets.InvalidStatus as error:
        message = json.loads(error.response.body)["error"]["message"]
        return error.response.status_code if message else 0


async def test_credentials_of_the_handshake(server: RealtimeServer) -> None:
    app = server.gateway.app
    reader = (
        await app.database.write(keys.create(app.account.id, granted=rights.Rights.MEMORY_READ))
    ).api_key
    bearer = {"Authorization": f"Bearer {app.key}"}
    assert await status_of(server.address, bearer) == 101
    assert await status_of(server.address, {}) == 401
    assert await status_of(server.address, {"Authorization": "Bearer sf_wrong"}) == 401
    assert await status_of(server.address, {"Authorization": f"Bearer {reader}"}) == 403
    assert await status_of(server.address, {}, ["realtime", f"openai-insecure-api-key.{app.key}"]) == 101
    assert await status_of(server.address, {}, ["realtime", "openai-insecure-api-key.sf_wrong"]) == 401
    plain = await app.client.get("/v1/realtime", headers=app.bearer)
    assert (plain.status_code, "websocket" in plain.json()["error"]["message"]) == (501, True)


async def test_limited_key_gets_an_error_for_other_models(server: RealtimeServer) -> None:
    key = await server.gateway.app.limited_key(KeyLimits(services=("tts",)))
    async with server.connect(TEXT, key=key) as connection:
        events = await say(connection, "say 1 words")
        (error,) = [each.error for each in events if each.type == "error"]
        assert (error.type, error.code) == ("permission_error", "forbidden")
    chats = await server.gateway.app.limited_key(KeyLimits(services=("chat",)))
    async with server.connect(TEXT, key=chats) as connection:
        assert (await say(connection, "say 1 words"))[-1].response.status == "completed"


async def test_the_websocket_ends_with_its_key(server: RealtimeServer) -> None:
    app = server.gateway.app
    key = await app.database.write(keys.create(app.account.id))
    server.gateway.acme.mode = "trickle"
    async with server.connect(TEXT, key=key.api_key) as connection:
        await connection.conversation.item.create(item=user_message("say 8 words"))
        await connection.response.create()
        await until(connection, "response.output_text.delta")
        await app.database.write(keys.revoke(key.id))
        with pytest.raises(websockets.ConnectionClosed) as excinfo:
            await until(connection, "response.done")
    assert excinfo.value.rcvd is not None
    assert excinfo.value.rcvd.code == 4401
    assert [row["status"] for row in await server.gateway.settled() if row["key"] == key.id] == ["left"]


async def test_a_session_ends_after_its_maximum_length(
    server: RealtimeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = realtime_connection.RealtimeSocket.__init__
    short = functools.partialmethod(begin, seconds=0.2)
    monkeypatch.setattr(realtime_connection.RealtimeSocket, "__init__", short)
    async with server.connect() as connection:
        error = (await event(connection)).error
        assert (error.code, error.event_id) == ("session_expired", None)
        with pytest.raises(websockets.ConnectionClosedOK):
            await event(connection)


@pytest.mark.parametrize("ground", ON_ALL)
async def test_responses_are_charged_as_chat_completions(ground: str, tmp_path: Path) -> None:
    backends.database_url(tmp_path, ground)
    async with running_realtime(tmp_path) as server:
        app = server.gateway.app
        before = float((await app.balance())[0])
        async with server.connect(TEXT) as connection:
            await say(connection, "say 3 words")
            charged = before - float((await app.balance())[0])
            response = await server.gateway.chat("say 3 words")
            cost = float(response.headers["x-sixfold-cost"])
            assert charged == pytest.approx(cost)
            server.gateway.acme.mode = "fail"
            await say(connection, "say 3 words")
        rest = before - charged - cost
        await app.until(f"{rest:.4f}", "0.00")
        async with server.connect(TEXT, key=app.poor) as connection:
            events = await say(connection, "say 3 words")
            (error,) = [each.error for each in events if each.type == "error"]
            assert (error.type, error.code) == ("insufficient_quota", "insufficient_credits")
        assert await app.faults() == ()


async def test_an_open_websocket_ends_when_the_server_stops(tmp_path: Path) -> None:
    async with running_realtime(tmp_path, settings=backends.FILES) as server:
        async with server.connect(TEXT) as connection:
            server.gateway.app.predictions.drain()
            error = (await event(connection)).error
            assert error.code == "shutting_down"
            with pytest.raises(websockets.ConnectionClosed) as excinfo:
                await event(connection)
        assert excinfo.value.rcvd is not None
        assert excinfo.value.rcvd.code == 1001


async def test_websockets_of_an_account_are_limited(tmp_path: Path) -> None:
    limits = {**backends.FILES, "websockets_per_account": 1}
    async with running_realtime(tmp_path, settings=limits) as server, server.connect(TEXT):
        bearer = {"Authorization": f"Bearer {server.gateway.app.key}"}
        assert await status_of(server.address, bearer) == 429
        other = {"Authorization": f"Bearer {server.gateway.app.other}"}
        assert await status_of(server.address, other) == 101


async def test_items_are_freed_with_the_connection(server: RealtimeServer) -> None:
    marker = f"only here {'x' * 1000}"

    def remaining() -> bool:
        # `isinstance` would call the classes of weak proxies.
        found = [each for each in gc.get_objects() if type(each) is MessageItem]
        return any(TextContent(marker) in each.parts for each in found)

    gc.disable()
    try:
        async with server.connect(TEXT) as connection:
            await connection.conversation.item.create(item=user_message(marker))
            await until(connection, "conversation.item.done")
            assert remaining()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await wait_until(lambda: not remaining())
    finally:
        gc.enable()
