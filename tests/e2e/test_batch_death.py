"""The server is killed twice during a batch: every line completes and is charged once."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e import servers
from tests.e2e.servers import Server
from tests.e2e.test_two_servers import both
from tests.fakes.chat_servers import ModelServer, model_server
from tests.harness import postgres
from tests.harness.waiting import wait_until

CONFIG = """[gateway.upstreams.acme]
kind = "openai"
base_url = "{url}"
api_key_env = "ACME_KEY"
models = ["small"]
[gateway.prices."acme/small"]
input_per_million_usd = 1
output_per_million_usd = 10
"""
# Ten tokens of input and three of output, in micro-dollars.
COST = 10 * 1 + 3 * 10
SIZES = [300, pytest.param(10_000, marks=[pytest.mark.nightly, pytest.mark.timeout(1200)])]


def line(number: int) -> bytes:
    messages = [{"role": "user", "content": "say 3 words"}]
    body = {"model": "small", "messages": messages, "max_tokens": 50}
    request = {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(request).encode() + b"\n"


class BatchClient:
    """A client of one server, which survives its restarts."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(timeout=60) as client:
            headers = {"Authorization": f"Bearer {self._server.key}"}
            url = f"http://127.0.0.1:{self._server.port}{path}"
            return await client.request(method, url, headers=headers, **options)

    async def begin(self, count: int) -> str:
        content = b"".join(line(number) for number in range(count))
        form: Any = {"files": {"file": ("in.jsonl", content)}, "data": {"purpose": "batch"}}
        file = (await self.call("POST", "/v1/files", **form)).json()
        body = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        return (await self.call("POST", "/v1/batches", json=body)).json()["id"]

    async def final_batch(self, batch_id: str) -> dict[str, Any]:
        while True:
            batch = (await self.call("GET", f"/v1/batches/{batch_id}")).json()
            if batch["status"] not in ("validating", "in_progress", "finalizing"):
                return batch
            await asyncio.sleep(0.1)

    async def money(self) -> tuple[int, int]:
        body = (await self.call("GET", "/api/account")).json()
        return (round(float(body["balance_usd"]) * 1_000_000), round(float(body["held_usd"]) * 1_000_000))


async def die_twice(server: Server, acme: ModelServer, count: int) -> None:
    """Kill the server between a charge and the storing of its response, and later at any moment."""
    await server.wait_for_exit()
    del server.environ["SIXFOLD_FAILPOINTS"]
    await server.restart()
    await wait_until(lambda: len(acme.requests) > count // 2)
    await server.kill()
    await server.restart()


@pytest.mark.parametrize("count", SIZES)
async def test_batch_survives_two_kills_with_exact_charges(either: Path, count: int) -> None:
    async with model_server() as acme:
        (either / "sixfold.toml").write_text(CONFIG.format(url=acme.url))
        environ = {
            "ACME_KEY": "sk-acme",
            "SIXFOLD_TESTING": "1",
            "SIXFOLD_FAILPOINTS": f"batch.answered=crash@{count // 4}",
            "SIXFOLD_FILES_PER_ACCOUNT": "100",
        }
        async with servers.serving(either, **environ) as server:
            client = BatchClient(server)
            before = await client.money()
            started = time.monotonic()
            batch_id = await client.begin(count)
            await die_twice(server, acme, count)
            batch = await client.final_batch(batch_id)
            print(f"{count} lines with two deaths in {time.monotonic() - started:.1f} s")  # noqa: T201  # a figure for those who run it
            assert batch["status"] == "completed"
            assert batch["request_counts"] == {"total": count, "completed": count, "failed": 0}
            response = await client.call("GET", f"/v1/files/{batch['output_file_id']}/content")
            ids = [json.loads(each)["custom_id"] for each in response.content.splitlines()]
            assert sorted(ids, key=int) == [str(number) for number in range(count)]
            assert await client.money() == (before[0] - count * COST, before[1])
            assert len(acme.requests) >= count
            status, text = await server.command("ledger", "verify")
            assert status == 0, text


@pytest.mark.nightly
@pytest.mark.postgres
@pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one")
async def test_two_servers_share_the_lines_of_a_batch(tmp_path: Path) -> None:
    async with model_server() as acme:
        config, environ = CONFIG.format(url=acme.url), {"ACME_KEY": "sk-acme"}
        async with both(tmp_path, config, SIXFOLD_BATCH_CONCURRENCY="4", **environ) as (first, second, _key):
            client = BatchClient(first)
            before = await client.money()
            acme.mode = "wait"
            batch_id = await client.begin(60)
            # One server runs four at a time.
            async with asyncio.timeout(60):
                await wait_until(lambda: len(acme.requests) == 8)
            await second.kill()
            acme.mode = "well"
            acme.go_on.set()
            async with asyncio.timeout(120):
                batch = await client.final_batch(batch_id)
            assert batch["request_counts"] == {"total": 60, "completed": 60, "failed": 0}
            assert await client.money() == (before[0] - 60 * COST, before[1])
