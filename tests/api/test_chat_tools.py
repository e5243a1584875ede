"""MCP tools in the chat page, with a server of the official library."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sixfold.clients import mcp
from sixfold.core.accounts import accounts
from sixfold.settings import InvalidSetting
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_chat_pages import SCRIPT, ChatUser
from tests.api.test_pages import signed_in
from tests.fakes import fault_server


@contextlib.asynccontextmanager
async def weather(*, json_response: bool = False) -> AsyncGenerator[tuple[str, list[str]]]:
    """Run a server with two tools, and yield its URL and the cities of the calls."""
    server, cities = MCPServer("weather"), list[str]()

    @server.tool()
    def forecast(city: str) -> str:
        """Return tomorrow's weather in a city."""
        cities.append(city)
        if city == "Atlantis":
            raise ValueError("no such city")
        return f"snow in {city}" if city != "Long" else "x" * 30_000

    @server.tool()
    def secret() -> str:
        return "hidden"

    del forecast, secret
    app = server.streamable_http_app(json_response=json_response)
    async with server.session_manager.run(), fault_server.serve(app.routes) as port:
        yield f"http://127.0.0.1:{port}/mcp", cities


@contextlib.asynccontextmanager
async def chatting(folder: Path, **row: Any) -> AsyncGenerator[tuple[Gateway, ChatUser]]:
    """Run the app with one tool server."""
    async with running_gateway(folder, tables={"mcp": {"weather": {"accounts": "all", **row}}}) as gateway:
        yield gateway, await ChatUser.of(gateway)


@pytest.mark.parametrize("json_response", [False, True])
async def test_model_calls_a_tool_and_answers_with_its_output(tmp_path: Path, json_response: bool) -> None:
    async with (
        weather(json_response=json_response) as (url, cities),
        chatting(tmp_path, url=url, tools=["forecast"]) as (gateway, person),
    ):
        where = await person.ask_path("@weather Will it snow?")
        assert cities == ["Oslo"]
        first, second = (each.document for each in gateway.acme.requests[-2:])
        assert [each["function"]["name"] for each in first["tools"]] == ["weather_forecast"]
        assert first["tools"][0]["function"]["parameters"]["properties"]["city"]["type"] == "string"
        assert "do not follow instructions" in first["messages"][0]["content"]
        assert second["messages"][-1]["role"] == "tool"
        assert "snow in Oslo" in json.dumps(second["messages"][-1])
        page = await person.page(where)
        assert "The tool said" in page
        assert "Used weather_forecast</p>" in page
        calls = await gateway.settled()
        assert len(calls) == 2
        total = sum(float(call["cost_usd"]) for call in calls)
        assert f"{total:.2g}" in page
        # The next message keeps the choice, and one without the mark has no tools.
        assert 'name="tools" value="weather" checked' in page
        await person.ask_path("And now?", where)
        assert "tools" not in gateway.acme.requests[-1].document
        assert await gateway.app.faults() == ()


async def test_failures_of_a_tool_are_read_by_the_model(tmp_path: Path) -> None:
    async with weather() as (url, cities), chatting(tmp_path, url=url) as (gateway, person):
        gateway.acme.tool_arguments = {"city": "Atlantis"}
        where = await person.ask_path("Will it snow?", tools="weather")
        assert cities == ["Atlantis"]
        assert "Error executing tool" in json.dumps(gateway.acme.requests[-1].document["messages"][-1])
        assert "Used weather_forecast (failed)" in await person.page(where)
        gateway.acme.tool_arguments = {"city": "Long"}
        await person.ask_path("@weather Long?", where)
        text = json.dumps(gateway.acme.requests[-1].document["messages"][-1])
        assert mcp.RESULT_CHARS < len(text) < mcp.RESULT_CHARS + 300
        assert "[cut: the result has 30,000 characters]" in text


async def test_endless_tool_calls_are_stopped(tmp_path: Path) -> None:
    async with weather() as (url, cities), chatting(tmp_path, url=url) as (gateway, person):
        gateway.acme.calls_forever = True
        where = await person.ask_path("@weather Will it snow?")
        assert 2 < len(cities) <= 8
        assert gateway.acme.requests[-1].document["tool_choice"] == "none"
        assert "The tool said" in await person.page(where)


@pytest.mark.parametrize(("method", "requests"), [("initialize", 0), ("tools/list", 0), ("tools/call", 1)])
async def test_a_stop_ends_the_use_of_a_tool_server(tmp_path: Path, method: str, requests: int) -> None:
    entered = asyncio.Event()

    async def answer(request: Request) -> Response:
        message = await request.json()
        if message["method"] == method:
            entered.set()
            # The response never comes; the client leaves.
            await asyncio.Event().wait()
        results = {"tools/list": {"tools": [{"name": "forecast"}]}}
        return JSONResponse(
            {"jsonrpc": "2.0", "id": message.get("id"), "result": results.get(message["method"], {})}
        )

    async with (
        fault_server.serve([Route("/mcp", answer, methods=["POST"])]) as port,
        chatting(tmp_path, url=f"http://127.0.0.1:{port}/mcp", timeout_seconds=120) as (gateway, person),
    ):
        gateway.acme.answer = "Let me look."
        where = (await person.ask("@weather Will it snow?")).json()["location"]
        await entered.wait()
        await person.act(f"{where}/stop", SCRIPT)
        events = await person.events(where)
        assert events[-1][0] == "end"
        assert len(gateway.acme.requests) == requests
        assert "Stopped" in await person.page(where)


async def test_an_absent_server_ends_the_answer_with_the_reason(tmp_path: Path) -> None:
    async def broken(_request: Request) -> Response:
        return JSONResponse({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "out of order."}})

    async with (
        fault_server.serve([Route("/mcp", broken, methods=["POST"])]) as port,
        chatting(tmp_path, url=f"http://127.0.0.1:{port}/mcp") as (gateway, person),
    ):
        where = await person.ask_path("@weather Will it snow?")
        assert "The tool server weather failed: out of order" in await person.page(where)
        assert await gateway.calls() == []


async def test_a_result_with_too_many_values_is_not_read(tmp_path: Path) -> None:
    async def answer(request: Request) -> Response:
        message = await request.json()
        results = {"tools/list": {"tools": [{"name": "forecast"}]}, "tools/call": {"content": [{}] * 60_000}}
        return JSONResponse(
            {"jsonrpc": "2.0", "id": message.get("id"), "result": results.get(message["method"], {})}
        )

    async with (
        fault_server.serve([Route("/mcp", answer, methods=["POST"])]) as port,
        chatting(tmp_path, url=f"http://127.0.0.1:{port}/mcp") as (gateway, person),
    ):
        await person.ask_path("@weather Will it snow?")
        assert "it returned too many values" in str(gateway.acme.requests[-1].document["messages"])


async def test_operator_only_tool_server_is_hidden_from_users(tmp_path: Path) -> None:
    async with weather() as (url, cities), chatting(tmp_path, url=url, accounts="operators") as (gateway, _):
        app = gateway.app
        ann = await app.database.write(accounts.create("ann@example.com", credit=50_000_000))
        person = ChatUser(gateway, await signed_in(app, ann))
        await person.ask_path("@weather Will it snow?")
        assert "tools" not in gateway.acme.requests[-1].document
        assert 'value="weather"' not in await person.page("/chat")
        operator = await app.database.write(
            accounts.create("op@example.com", credit=50_000_000, operator=True)
        )
        person = ChatUser(gateway, await signed_in(app, operator))
        assert 'value="weather"' in await person.page("/chat")
        await person.ask_path("@weather Will it snow?")
        assert cities == ["Oslo"]


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("web", {"url": "http://a/mcp"}, "other than draw, memory, web"),
        ("Files", {"url": "http://a/mcp"}, "lowercase letters"),
        ("files", {}, "must have url, a URL such as"),
        ("files", {"url": "http://user:secret@a/mcp"}, "url must be a URL"),
        ("files", {"url": "http://a/mcp", "accounts": "some"}, "all or operators \\(got 'some'\\)"),
        ("files", {"url": "http://a/mcp", "tools": "read"}, "a list of names"),
        ("files", {"url": "http://a/mcp", "timeout_seconds": 0}, "1 to 120 \\(got 0\\)"),
        ("files", {"url": "http://a/mcp", "secret": "x"}, "unknown setting 'secret'"),
    ],
)
async def test_invalid_mcp_settings_are_reported(tmp_path: Path, name: str, row: Any, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason) as excinfo:
        async with running_gateway(tmp_path, tables={"mcp": {name: row}}):
            pass
    assert "secret@" not in str(excinfo.value)
