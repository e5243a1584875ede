"""The server is killed during chats: no hold stays, and nothing is charged twice or without a result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from tests.e2e import servers
from tests.fakes.chat_servers import model_server

CONFIG = """[gateway.upstreams.acme]
kind = "openai"
base_url = "{url}"
api_key_env = "ACME_KEY"
models = ["small"]
[gateway.prices."acme/small"]
input_per_million_usd = 100
output_per_million_usd = 1000
"""
BODY = {"model": "small", "messages": [{"role": "user", "content": "say 9 words"}]}


async def test_server_killed_during_streams_restarts_without_holds(either: Path) -> None:
    async with model_server() as acme:
        folder = either
        (folder / "sixfold.toml").write_text(CONFIG.format(url=acme.url))
        async with servers.serving(folder, SIXFOLD_PROBE="0", ACME_KEY="sk-acme") as server:
            origin, headers = f"http://127.0.0.1:{server.port}", {"Authorization": f"Bearer {server.key}"}

            async def account(client: httpx.AsyncClient) -> tuple[float, float]:
                body = (await client.get(f"{origin}/api/account", headers=headers)).json()
                return float(body["balance_usd"]), float(body["held_usd"])

            async with httpx.AsyncClient(timeout=30) as client:
                response = await client.post(f"{origin}/v1/chat/completions", json=BODY, headers=headers)
                assert response.json()["choices"][0]["message"]["content"] == " ".join(["word"] * 9)
                assert acme.requests[0].headers["authorization"] == "Bearer sk-acme"
                cost = float(response.headers["x-sixfold-cost"])
                assert await account(client) == (10 - cost, 0)
                acme.mode = "trickle"
                streams = [_begun(client, origin, headers) for _ in range(4)]
                results = await asyncio.gather(*streams)
                balance, held = await account(client)
                assert (balance, held > 0) == (10 - cost, True)
                await server.kill()
                assert len(results) == 4
            await server.restart()
            async with httpx.AsyncClient(timeout=30) as client:
                assert await account(client) == (10 - cost, 0)
                log = (await client.get(f"{origin}/api/gateway/calls", headers=headers)).json()["calls"]
                assert [call["status"] for call in log] == ["failed"] * 4 + ["succeeded"]
                acme.mode = "well"
                response = await client.post(f"{origin}/v1/chat/completions", json=BODY, headers=headers)
                assert response.status_code == 200
                metrics = (await client.get(f"{origin}/metrics", headers=headers)).text
                assert 'sixfold_relay_calls_total{server="acme",status="succeeded"} 1.0' in metrics


async def _begun(
    client: httpx.AsyncClient, origin: str, headers: dict[str, str]
) -> tuple[httpx.Response, AsyncIterator[str]]:
    """A stream whose first token has arrived."""
    request = client.build_request(
        "POST", f"{origin}/v1/chat/completions", json={**BODY, "stream": True}, headers=headers
    )
    response = await client.send(request, stream=True)
    lines = response.aiter_lines()
    while "word" not in await anext(lines):
        pass
    return response, lines
