"""The client of media providers against a server that repeats the key in its errors."""

from __future__ import annotations

import json
import time
from typing import Any, cast

import httpx
import pytest

from sixfold.clients import fal, provider_client
from sixfold.clients.fal import FAL
from sixfold.clients.provider_client import ProviderClient, ProviderLimits
from sixfold.clients.replicate import ReplicateClient
from sixfold.core.catalog.engines import EngineError
from sixfold.errors import TooManyRequests
from sixfold.net import response_memory as memory_of_responses
from sixfold.net.response_memory import ResponseMemory, response_memory
from tests.unit.net import servers

MIB = 1 << 20
KEY = "easel.7Qm2-Zp9x"


@pytest.mark.parametrize("shape", ["{key}", "the key {key} may not use this size", "user:{key}@host"])
async def test_error_of_a_provider_does_not_contain_the_key(shape: str) -> None:
    text = f"Unsupported size. {shape.format(key=KEY)}"
    body = json.dumps({"detail": text}).encode()
    async with (
        servers.serving(
            routes={"/models": servers.reply(body, status="422 Unprocessable Content")}
        ) as server,
        httpx.AsyncClient() as client,
    ):
        url = server.url("").rstrip("/")
        with response_memory("fal") as memory:
            limits = ProviderLimits(attempts=1)
            provider = ProviderClient(client, FAL, KEY, base_url=url, limits=limits, memory=memory)
            with pytest.raises(EngineError, match="Unsupported size") as excinfo:
                await provider.get("models")
    assert KEY not in str(excinfo.value)


@pytest.mark.parametrize("piece", ["-a", "a.", "a ", "\n", "sk-", "Key "])
def test_a_long_error_is_shortened_before_it_is_searched(piece: str) -> None:
    before = time.process_time()
    text = provider_client.presentable("Unsupported size. " + piece * (MIB // len(piece)))
    assert time.process_time() - before < 0.1
    assert text.startswith("Unsupported")
    assert len(text) <= 201


def test_a_key_at_the_end_of_the_searched_text_is_removed() -> None:
    for length in range(950, 1050):
        assert "0123" not in provider_client.presentable(f"{'a' * 100} {' ' * length}0123456789abcdef{KEY} b")


def test_logs_and_errors_of_a_provider_are_read_in_part() -> None:
    # This test makes no request.
    client = ReplicateClient(cast("Any", None))
    fields = {"id": "p", "status": "failed", "logs": "\n" * 8 * MIB, "error": "nsfw " * MIB, "output": None}
    prediction = client._parse(fields)
    assert len(prediction.lines) == len(prediction.log) == 100_000
    assert len(prediction.error) == 100_000
    nested = client._parse({**fields, "error": [[0] * 1000], "logs": {}})
    assert (nested.error, nested.log) == ("", "")
    problem = fal.refusal(422, {"detail": [{"msg": "a" * MIB, "loc": ["body", "b" * MIB]}]})
    assert (len(problem.message), len(problem.field)) == (100_000, 100_000)


@pytest.mark.parametrize(
    ("seconds", "attempts"), [pytest.param(5.0, 2, id="no response"), pytest.param(0.0, 5, id="refused")]
)
async def test_unreachable_provider_is_not_tried_for_long(
    monkeypatch: pytest.MonkeyPatch, seconds: float, attempts: int
) -> None:
    clock, calls = [0.0], list[str]()

    def unreachable(request: httpx.Request) -> httpx.Response:
        calls.append(request.method)
        clock[0] += seconds
        raise httpx.ConnectTimeout("no response")

    async def sleep(pause: float) -> None:
        clock[0] += pause

    monkeypatch.setattr(provider_client, "monotonic", lambda: clock[0])
    monkeypatch.setattr(provider_client.asyncio, "sleep", sleep)
    async with httpx.AsyncClient(transport=httpx.MockTransport(unreachable)) as client:
        with response_memory("fal") as memory:
            provider = ProviderClient(client, FAL, KEY, base_url="http://provider.test", memory=memory)
            with pytest.raises(EngineError, match="could not be reached"):
                await provider.get("models")
    assert len(calls) == attempts
    assert clock[0] <= ProviderLimits().unreachable_seconds


async def test_large_responses_of_providers_share_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_of_responses, "WAIT_SECONDS", 0.05)
    body = b'{"a":"%s"}' % (b"a" * 20 * MIB)
    async with (
        servers.serving(routes={"/models": servers.reply(body)}) as server,
        httpx.AsyncClient() as client,
    ):
        url = server.url("").rstrip("/")

        async def call(memory: ResponseMemory) -> provider_client.ProviderResponse:
            return await ProviderClient(client, FAL, KEY, base_url=url, memory=memory).get("models")

        with response_memory("fal") as first:
            for _ in range(3):  # the polls of one task replace each other
                assert len((await call(first)).document["a"]) == 20 * MIB
            with response_memory("fal") as second, pytest.raises(TooManyRequests, match="Large results"):
                await call(second)
        with response_memory("fal") as third:
            await call(third)
