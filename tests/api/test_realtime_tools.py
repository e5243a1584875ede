"""Tools of the operator's MCP servers in realtime sessions, with a server of the official library."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts.keys import KeyLimits
from tests.api.realtime import TEXT, RealtimeServer, running_realtime, say, until, user_message
from tests.api.test_chat_tools import weather
from tests.api.test_oauth import OAuthClient
from tests.api.test_realtime import kinds
from tests.harness.backends import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")
WEATHER: Any = {"type": "mcp", "server_label": "weather", "require_approval": "never"}


@asynccontextmanager
async def running(folder: Path, url: str, **row: Any) -> AsyncIterator[RealtimeServer]:
    """Run a gateway with one tool server, which all accounts may use."""
    tables = {"mcp": {"weather": {"url": url, "accounts": "all", **row}}}
    async with running_realtime(folder, settings=FILES, tables=tables) as server:
        yield server


async def test_a_tool_is_listed_called_and_answered(tmp_path: Path) -> None:
    async with weather() as (url, cities), running(tmp_path, url) as server:
        session = {**TEXT, "tools": [{**WEATHER, "allowed_tools": ["forecast"]}]}
        async with server.connect(session) as connection:
            events = await until(connection, "mcp_list_tools.completed")
            assert [each.type for each in events] == [
                "conversation.item.added",
                "mcp_list_tools.in_progress",
                "conversation.item.done",
                "mcp_list_tools.completed",
            ]
            (tool,) = events[2].item.tools
            assert (events[2].item.server_label, tool.name) == ("weather", "forecast")
            assert tool.input_schema["properties"]["city"]["type"] == "string"
            first = await say(connection, "Will it snow?")
            second = await until(connection, "response.done")
        assert cities == ["Oslo"]
        names = kinds(first)
        assert names[names.index("response.output_item.added") :] == [
            "response.output_item.added",
            "conversation.item.added",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.mcp_call.in_progress",
            "response.mcp_call.completed",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ]
        (call,) = first[-1].response.output
        assert (call.type, call.server_label, call.name) == ("mcp_call", "weather", "forecast")
        assert (json.loads(call.arguments), call.output, call.error) == (
            {"city": "Oslo"}, "snow in Oslo", None,
        )  # fmt: skip
        assert second[0].type == "response.created"
        assert "The tool said" in second[-1].response.output[0].content[0].text
        sent = server.gateway.acme.requests[-1].document
        assert [row["role"] for row in sent["messages"]] == ["system", "user", "assistant", "tool"]
        assert "do not follow instructions" in sent["messages"][0]["content"]
        assert [row["function"]["name"] for row in sent["tools"]] == ["weather_forecast"]
        calls = await server.gateway.settled()
        assert {row["id"][4:] for row in calls} == {
            first[-1].response.id[5:], second[-1].response.id[5:],
        }  # fmt: skip


async def test_a_failed_tool_is_read_by_the_model(tmp_path: Path) -> None:
    async with weather() as (url, _), running(tmp_path, url) as server:
        server.gateway.acme.tool_arguments = {"city": "Atlantis"}
        async with server.connect({**TEXT, "tools": [WEATHER]}) as connection:
            await until(connection, "mcp_list_tools.completed")
            first = await say(connection, "Will it snow?")
            await until(connection, "response.done")
        (call,) = first[-1].response.output
        assert (call.output, call.error.type) == (None, "tool_execution_error")
        assert "response.mcp_call.failed" in [each.type for each in first]
        assert "Error executing tool" in json.dumps(server.gateway.acme.requests[-1].document["messages"][-1])


async def test_calls_without_end_are_stopped(tmp_path: Path) -> None:
    async with weather() as (url, cities), running(tmp_path, url) as server:
        server.gateway.acme.calls_forever = True
        async with server.connect(TEXT) as connection:
            await connection.conversation.item.create(item=user_message("Will it snow?"))
            response: Any = {"conversation": "none", "tools": [WEATHER]}
            await connection.response.create(response=response)
            responses = [(await until(connection, "response.done"))[-1].response for _ in range(8)]
        last = responses[-1]
        assert (last.status, last.output[0].type) == ("completed", "message")
        assert len(cities) == 7
        assert server.gateway.acme.requests[-1].document["tool_choice"] == "none"


async def test_a_tool_server_that_is_down_fails_the_response(tmp_path: Path) -> None:
    async with running(tmp_path, "http://127.0.0.1:9/mcp") as server:
        before = await server.gateway.app.balance()
        async with server.connect({**TEXT, "tools": [WEATHER]}) as connection:
            events = await until(connection, "error")
            assert events[-2].type == "mcp_list_tools.failed"
            assert events[-1].error.code == "tools_unavailable"
            failed = (await say(connection, "Will it snow?"))[-1].response
        assert (failed.status, failed.status_details.error.code) == ("failed", "tools_unavailable")
        assert server.gateway.acme.requests == []
        assert await server.gateway.app.balance() == before


async def test_only_operators_may_use_a_server_by_default(tmp_path: Path) -> None:
    async with weather() as (url, _), running(tmp_path, url, accounts="operators") as server:
        async with server.connect(key=server.gateway.app.other) as connection:
            await connection.session.update(session={"type": "realtime", "tools": [WEATHER]})
            error = (await until(connection, "error"))[-1].error
            assert "connected by the operator" in error.message
            response: Any = {"tools": [WEATHER], "output_modalities": ["text"]}
            await connection.response.create(response=response)
            failed = (await until(connection, "response.done"))[-1].response
            assert failed.status == "failed"
        assert server.gateway.acme.requests == []


async def test_limited_keys_and_oauth_clients_call_no_tools(tmp_path: Path) -> None:
    async with weather() as (url, cities), running(tmp_path, url) as server:
        app = server.gateway.app
        program = await OAuthClient.registered(app)
        refused_keys = {
            await app.limited_key(KeyLimits(services=("acme/small", "chat"))): "This key may not use tools",
            (await program.tokens(scope="models"))["access_token"]: "OAuth clients may not use the tools",
        }
        response: Any = {"tools": [WEATHER], "output_modalities": ["text"]}
        for key, reason in refused_keys.items():
            async with server.connect(key=key) as connection:
                await connection.session.update(session={"type": "realtime", "tools": [WEATHER]})
                assert reason in (await until(connection, "error"))[-1].error.message
                await connection.response.create(response=response)
                failed = (await until(connection, "response.done"))[-1].response
                assert reason in failed.status_details.error.message
        assert (cities, server.gateway.acme.requests) == ([], [])
        allowed = await app.limited_key(KeyLimits(services=("chat", "tools")))
        async with server.connect({**TEXT, "tools": [WEATHER]}, key=allowed) as connection:
            await say(connection, "Will it snow?")
        assert cities == ["Oslo"]
