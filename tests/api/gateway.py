"""App with two model servers, one of each protocol, and the official clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import uvicorn
from starlette.types import ASGIApp

from sixfold.core.database import many
from tests.api.app_fixture import AppFixture, running_app
from tests.fakes.chat_servers import ModelServer, model_server
from tests.harness.embedded_server import EmbeddedServer

PRICE = {
    "input_per_million_usd": "100",
    "output_per_million_usd": "1000",
    "cached_input_per_million_usd": "50",
}


@dataclass(frozen=True)
class Gateway:
    """`acme/small` uses completions, `anth/small` messages; both cost 100/1000 USD per million tokens."""

    app: AppFixture
    acme: ModelServer
    anth: ModelServer

    def afresh(self) -> Gateway:
        """Reset the model servers and return the gateway."""
        for server in (self.acme, self.anth):
            server.mode, server.modes = "well", []
            server.requests.clear()
            server.go_on.clear()
            server.disconnect_event.clear()
        return self

    @property
    def headers(self) -> dict[str, str]:
        return self.app.bearer

    async def chat(self, text: str = "say 3 words", model: str = "acme/small", **more: Any) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
        return await self.app.client.post("/v1/chat/completions", json=body, headers=self.headers)

    async def calls(self) -> list[dict[str, Any]]:
        """Return the call log, newest first."""
        response = await self.app.client.get("/api/gateway/calls", headers=self.headers)
        return response.json()["calls"]

    async def settled(self, count: int = 1) -> list[dict[str, Any]]:
        """Wait until `count` calls have ended, and return the call log."""
        async with asyncio.timeout(60):
            while True:
                results = [call for call in await self.calls() if call["status"] != "running"]
                if len(results) >= count:
                    return results
                await asyncio.sleep(0.005)

    async def pending(self) -> int:
        """Return the number of pending holds."""
        rows = await self.app.database.read(many("ledger_drift_held"))
        return len(rows)

    async def last_call(self) -> dict[str, Any]:
        """Return the newest call; fail if anything is held."""
        assert await self.pending() == 0
        return (await self.calls())[0]

    def openai(self, key: str | None = None, **more: Any) -> openai.AsyncOpenAI:
        """Return the official client, unmodified except for its base URL."""
        transport = httpx2.ASGITransport(self.app.asgi, client=("127.0.0.1", 40000))
        visitor = httpx2.AsyncClient(transport=transport)
        inputs = {"max_retries": 0, **more}
        return openai.AsyncOpenAI(
            api_key=key or self.app.key, base_url="http://127.0.0.1:8600/v1", http_client=visitor, **inputs
        )

    def anthropic(self, key: str | None = None, **more: Any) -> anthropic.AsyncAnthropic:
        """Return the official client, unmodified except for its base URL."""
        transport = httpx2.ASGITransport(self.app.asgi, client=("127.0.0.1", 40000))
        visitor = httpx2.AsyncClient(transport=transport)
        inputs = {"max_retries": 0, **more}
        return anthropic.AsyncAnthropic(
            api_key=key or self.app.key, base_url="http://127.0.0.1:8600", http_client=visitor, **inputs
        )


@asynccontextmanager
async def running_gateway(
    folder: Path, settings: Any = None, models: Any = None, *, tables: Any = None, **policy: Any
) -> AsyncIterator[Gateway]:
    """Run the app and its model servers; `tables` are further ones of the configuration."""
    async with model_server() as acme, model_server() as anth:
        gateway: dict[str, Any] = {
            "retries": 0,
            "timeout_seconds": 5,
            "upstreams": {
                "acme": {"kind": "openai", "base_url": acme.url, "api_key": "sk-acme"},
                "anth": {
                    "kind": "anthropic",
                    "base_url": anth.url,
                    "api_key": "sk-anth",
                    "models": ["small"],
                },
            },
            "aliases": {"both": ["acme/small", "anth/small"]},
            "prices": {"acme/small": PRICE, "anth/small": PRICE},
        }
        gateway |= policy
        async with running_app(
            folder,
            models,
            **{"probe": False, "tables": {"gateway": gateway, **(tables or {})}, **(settings or {})},
        ) as app:
            yield Gateway(app, acme, anth)


@asynccontextmanager
async def listening(app: ASGIApp) -> AsyncGenerator[str, None]:
    """Serve an application on a real socket, for clients that disconnect, and yield its origin."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as gateway:
        gateway.bind(("127.0.0.1", 0))
        gateway.listen(64)
        config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1)
        server = EmbeddedServer(config)
        serving = asyncio.create_task(server.serve(sockets=[gateway]))
        try:
            yield f"http://127.0.0.1:{gateway.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


async def leave_stream(gateway: Gateway, text: str) -> None:
    """Request a stream, disconnect at its first text, and wait until the model server has noticed."""
    body = {"model": "acme/small", "stream": True, "messages": [{"role": "user", "content": text}]}
    async with (
        listening(gateway.app.asgi) as origin,
        httpx.AsyncClient() as client,
        client.stream(
            "POST", f"{origin}/v1/chat/completions", json=body, headers=gateway.headers
        ) as response,
    ):
        async for line in response.aiter_lines():
            if line.count("word"):
                break
    async with asyncio.timeout(60):
        await gateway.acme.disconnect_event.wait()


async def call_tool(gateway: Gateway, model: str, *, stream: bool) -> tuple[Any, Any]:
    """Let a thinking model call a tool by Anthropic's client; return its call, and its final answer."""
    client: Any = gateway.anthropic()
    tools = [{"name": "weather", "description": "", "input_schema": {"type": "object"}}]
    thinking = {"type": "enabled", "budget_tokens": 2000}
    more = {"model": model, "max_tokens": 3000, "tools": tools, "thinking": thinking}

    async def ask(messages: list[Any]) -> Any:
        if not stream:
            return await client.messages.create(messages=messages, **more)
        async with client.messages.stream(messages=messages, **more) as events:
            return await events.get_final_message()

    question = {"role": "user", "content": "weather?"}
    called = await ask([question])
    assert called.stop_reason == "tool_use"
    (call,) = [block for block in called.content if block.type == "tool_use"]
    assert (call.name, call.input) == ("weather", {"city": "Oslo"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    turn = {"role": "assistant", "content": called.content}
    return called, await ask([question, turn, {"role": "user", "content": [result]}])
