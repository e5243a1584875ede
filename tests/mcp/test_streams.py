"""Streamed responses: keep-alives, notifications before the result, requests to the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from sixfold.app import asgi
from sixfold.core.accounts.rights import ANY
from sixfold.mcp import app as mcp_app
from sixfold.mcp.jsonrpc import JsonObject
from sixfold.mcp.server import McpServer, ToolInvocation
from sixfold.mcp.tools import McpTool, Toolbox, ToolOutcome
from sixfold.web.app import WebApp
from sixfold.web.metrics import Metrics
from tests.api.app_fixture import AppFixture, bearer
from tests.mcp.loopback import serve

BOTH = {"Accept": "application/json, text/event-stream"}


def tool(name: str, run: Any) -> McpTool:
    """Return a tool without arguments that may send messages before its result."""
    return McpTool(
        name, name, "A fixture.", {"type": "object", "properties": {}}, run, access=ANY, streams=True
    )


@asynccontextmanager
async def serving(app: AppFixture, tools: Sequence[McpTool], ping_seconds: float = 15) -> AsyncIterator[str]:
    server = McpServer([Toolbox(tools).feature()], "Fixtures.")
    asgi_app = WebApp([mcp_app.serve(asgi.build_services(app.server), server, ping_seconds)], Metrics())
    async with serve(asgi_app) as origin:
        yield f"{origin}/mcp"


def asking(name: str) -> JsonObject:
    """Return the request that calls a tool."""
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}}}


def data(line: str) -> Any:
    assert line.startswith("data: "), line
    return json.loads(line[6:])


async def test_silent_tool_sends_pings_and_then_its_response(app: AppFixture) -> None:
    go_on = asyncio.Event()

    async def wait(call: ToolInvocation, inputs: JsonObject) -> ToolOutcome:
        del call, inputs
        await go_on.wait()
        return ToolOutcome({"done": True})

    async with (
        serving(app, [tool("wait", wait)], 0.01) as url,
        httpx.AsyncClient(headers=app.bearer | BOTH, timeout=30) as client,
        client.stream("POST", url, json=asking("wait")) as response,
    ):
        lines = response.aiter_lines()
        assert await anext(lines) == ": still at work"
        go_on.set()
        messages = [line async for line in lines if line.startswith("data: ")]
    assert data(messages[-1])["result"]["structuredContent"] == {"done": True}


async def test_notifications_arrive_in_order_before_the_response(app: AppFixture) -> None:
    async def tell(call: ToolInvocation, inputs: JsonObject) -> ToolOutcome:
        del inputs
        for number in range(100):
            call.notify("notifications/message", {"level": "info", "data": number})
        return ToolOutcome({"done": True})

    async with (
        serving(app, [tool("tell", tell)]) as url,
        httpx.AsyncClient(headers=app.bearer | BOTH) as client,
    ):
        response = await client.post(url, json=asking("tell"))
        plain = await client.post(url, json=asking("tell"), headers={"Accept": "application/json"})
    messages = [data(line) for line in response.text.splitlines() if line.startswith("data: ")]
    assert [message["params"]["data"] for message in messages[:-1]] == list(range(100))
    assert messages[-1]["id"] == 1
    assert plain.json()["result"]["structuredContent"] == {"done": True}


async def test_only_the_account_of_an_elicitation_can_answer_it(app: AppFixture) -> None:
    async def ask(call: ToolInvocation, inputs: JsonObject) -> ToolOutcome:
        del inputs
        return ToolOutcome({"answer": await call.ask("elicitation/create", {"message": "Well?"})})

    async with (
        serving(app, [tool("ask", ask)]) as url,
        httpx.AsyncClient(headers=BOTH, timeout=30) as client,
        client.stream("POST", url, json=asking("ask"), headers=app.bearer) as response,
    ):
        lines = (data(line) async for line in response.aiter_lines() if line.startswith("data: "))
        question = await anext(lines)
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": "by a stranger"}
        assert (await client.post(url, json=reply, headers=bearer(app.other))).status_code == 202
        reply["result"] = "by the one who was asked"
        assert (await client.post(url, json=reply, headers=app.bearer)).status_code == 202
        result = await anext(lines)
    assert result["result"]["structuredContent"] == {"answer": "by the one who was asked"}


async def test_client_without_streams_gets_an_elicitation_error(app: AppFixture) -> None:
    async def ask(call: ToolInvocation, inputs: JsonObject) -> ToolOutcome:
        del inputs
        return ToolOutcome({"answer": await call.ask("sampling/createMessage", {})})

    async with serving(app, [tool("ask", ask)]) as url, httpx.AsyncClient(headers=app.bearer) as client:
        answer = (await client.post(url, json=asking("ask"))).json()
    assert "did not open an event stream" in answer["error"]["message"]


async def test_disconnect_cancels_the_call(app: AppFixture) -> None:
    start_event, end_event = asyncio.Event(), asyncio.Event()

    async def wait(call: ToolInvocation, inputs: JsonObject) -> ToolOutcome:
        del inputs
        call.notify("notifications/message", {"level": "info", "data": "begun"})
        start_event.set()
        try:
            await asyncio.Event().wait()
        finally:
            end_event.set()
        return ToolOutcome({})

    async with serving(app, [tool("wait", wait)], 0.01) as url:
        async with (
            httpx.AsyncClient(headers=app.bearer | BOTH) as client,
            client.stream("POST", url, json=asking("wait")),
        ):
            await start_event.wait()
        async with asyncio.timeout(60):
            await end_event.wait()
    assert end_event.is_set()
