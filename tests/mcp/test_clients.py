"""Every official client over HTTP and stdio, with and without the handshake, on a real server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from sixfold import settings
from sixfold.mcp import jsonrpc
from tests.api.app_fixture import AppFixture, running_app
from tests.e2e.servers import serving
from tests.mcp.agent import MAKING, MEMORY
from tests.mcp.loopback import serve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mcp.*"),
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),
]


@pytest.fixture
async def served_app(tmp_path: Path) -> AsyncIterator[tuple[AppFixture, str]]:
    """A server on a real socket, and its origin."""
    async with running_app(tmp_path) as app, serve(app.asgi) as origin:
        yield app, origin


@asynccontextmanager
async def over_http(origin: str, key: str, mode: str) -> AsyncIterator[Client]:
    """The official client, used as in its documentation."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http,
        Client(streamable_http_client(f"{origin}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(origin: str, key: str, mode: str) -> AsyncIterator[Client]:
    """The official client through `sixfold mcp`."""
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "sixfold.cli.main", "mcp", "--api-url", origin],
        env={**settings.worker_environment(), "SIXFOLD_API_KEY": key},
    )
    async with Client(stdio_client(program), mode=mode) as client:
        yield client


TRANSPORTS = {"http": over_http, "stdio": over_stdio}


@pytest.mark.parametrize("way", TRANSPORTS)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_official_client_calls_tools_and_reads_resources(
    served_app: tuple[AppFixture, str], way: str, mode: str
) -> None:
    app, origin = served_app
    async with TRANSPORTS[way](origin, app.key, mode) as client:
        newest = jsonrpc.LATEST if mode == "auto" else jsonrpc.HANDSHAKE[-1]
        assert client.protocol_version == newest
        assert {tool.name for tool in (await client.list_tools()).tools} == MEMORY | MAKING
        await call(client, "write", slug="companies/acme", title="Acme", type="company", body="Anvils.")
        await call(
            client, "write", slug="people/ann", title="Ann Lee", type="person", body="Ann works at Acme."
        )
        result = await call(client, "search", query="who works at Acme?")
        assert result["results"][0]["slug"] == "people/ann"
        refused_result = await client.call_tool("read", {"slug": "no/such"})
        assert refused_result.is_error
        output = await client.call_tool("run", {"model": "ra1", "input": {"prompt": "ein Bär"}})
        assert output.content[0].type == "image"
        uris = [str(row.uri) for row in (await client.list_resources()).resources]
        assert uris == ["memory://companies/acme", "memory://people/ann"]
        (page,) = (await client.read_resource("memory://people/ann")).contents
        assert getattr(page, "text", "") == "Ann works at Acme."
        many = await asyncio.gather(*(call(client, "read", slug="people/ann") for _ in range(20)))
        assert {row["version"] for row in many} == {1}


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool that must succeed; return its values."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def test_client_receives_the_progress_of_a_run(served_app: tuple[AppFixture, str]) -> None:
    app, origin = served_app
    messages: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        messages.append(progress)

    async with over_http(origin, app.key, "auto") as client:
        arguments = {"model": "ra1", "input": {"prompt": "a cat"}}
        result = await client.call_tool("run", arguments, progress_callback=hear)
    assert not result.is_error
    assert messages
    assert messages == sorted(messages)


async def test_proxy_survives_a_restart_of_its_server(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server:
        origin = f"http://127.0.0.1:{server.port}"
        async with over_stdio(origin, server.key, "auto") as client:
            await call(client, "write", slug="a", body="Before.")
            await server.terminate()
            pending_task = asyncio.create_task(call(client, "read", slug="a"))
            await server.restart()
            assert (await pending_task)["body"] == "Before."
            assert (await call(client, "edit", slug="a", operation="append", content="After."))[
                "version"
            ] == 2


async def test_stdio_proxy_writes_only_protocol_and_ends_with_input(
    served_app: tuple[AppFixture, str],
) -> None:
    app, origin = served_app
    lines = [
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
        b"not json",
        b"5",
        b"",
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'[{"jsonrpc":"2.0","id":2,"method":"ping"}]',
        '{"jsonrpc":"2.0","id":"ü","method":"nope"}'.encode(),
    ]
    status, text, _ = await run_stdio(origin, app.key, b"\n".join(lines) + b"\n")
    answers = {json.dumps(answer[0]["id"] if isinstance(answer, list) else answer["id"]) for answer in text}
    assert status == 0
    assert len(text) == 5
    assert answers == {"1", "2", '"\\u00fc"', "null"}


async def test_proxy_without_a_valid_key_returns_the_remedy(
    served_app: tuple[AppFixture, str],
) -> None:
    _, origin = served_app
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    for key, words in (("sf_wrong", "does not accept this key"), ("", "requires a key")):
        _, (answer,), _ = await run_stdio(origin, key, ping)
        assert words in answer["error"]["message"]
        assert "SIXFOLD_API_KEY" in answer["error"]["message"]


async def test_request_refused_unread_is_answered_by_id(tmp_path: Path) -> None:
    large = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x" * 5_000}}
    async with running_app(tmp_path, inline_body_bytes=4_000) as app, serve(app.asgi) as origin:
        _, (answer,), _ = await run_stdio(origin, app.key, json.dumps(large).encode() + b"\n")
    assert (answer["id"], answer["error"]["data"]["code"]) == (1, "too_large")


async def run_stdio(origin: str, key: str, lines: bytes) -> tuple[int, list[Any], str]:
    """Run `sixfold mcp` on some input: its status, its messages, and its standard error."""
    environ = {**settings.worker_environment(), **({"SIXFOLD_API_KEY": key} if key else {})}
    arguments = ("-m", "sixfold.cli.main", "mcp", "--api-url", origin, "--data-dir", "/nonexistent")
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=environ, stdin=pipe, stdout=pipe, stderr=pipe
    )
    out, aside = await child.communicate(lines)
    assert child.returncode is not None
    return child.returncode, [json.loads(line) for line in out.splitlines()], aside.decode()
