"""Calls of a model are distributed over the hosts that have it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.api.app_fixture import AppFixture
from tests.api.local_servers import app_with, chat
from tests.fakes.local_models import COMPLETION, Ollama, listening, look_at

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


@pytest.fixture
async def hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[AppFixture, list[Ollama]]]:
    """Three hosts with Ollama: two with `shared`, and one with `other` only."""
    async with AsyncExitStack() as stack:
        servers: list[Ollama] = []
        port = 0
        for host, model in zip(HOSTS, ("shared", "shared", "other"), strict=True):
            server = Ollama({model: COMPLETION})
            await stack.enter_async_context(listening(server, host, port))
            servers.append(server)
            port = server.port
        look_at(monkeypatch, ollama=port)
        app = await stack.enter_async_context(app_with(tmp_path, probe_hosts=HOSTS[1:]))
        yield app, servers


def calls(server: Ollama) -> int:
    return server.count("/v1/chat/completions")


@pytest.mark.parametrize("name", ["shared", "ollama/shared", "default"])
async def test_busy_host_is_passed_over_for_a_free_one(
    hosts: tuple[AppFixture, list[Ollama]], name: str
) -> None:
    app, (first, second, third) = hosts
    first.slow = second.slow = True
    held_tasks = [asyncio.create_task(chat(app, name)) for _ in range(2)]
    await asyncio.gather(first.request_event.wait(), second.request_event.wait())
    assert (calls(first), calls(second), calls(third)) == (1, 1, 0)
    for task in held_tasks:
        task.cancel()
    await asyncio.gather(*held_tasks, return_exceptions=True)


async def test_one_host_can_still_be_named(hosts: tuple[AppFixture, list[Ollama]]) -> None:
    app, (first, second, _) = hosts
    for _ in range(3):
        assert (await chat(app, "ollama@127.0.0.2/shared")).status_code == 200
    assert (calls(first), calls(second)) == (0, 3)


async def test_host_without_the_model_is_skipped(hosts: tuple[AppFixture, list[Ollama]]) -> None:
    app, (first, second, third) = hosts
    assert (await chat(app, "ollama/other")).json()["model"] == "other"
    assert [calls(each) for each in (first, second, third)] == [0, 0, 1]


async def test_calls_in_progress_return_to_zero(hosts: tuple[AppFixture, list[Ollama]]) -> None:
    app, (first, second, _) = hosts
    body: dict[str, Any] = {"model": "shared", "messages": [{"role": "user", "content": "a"}]}
    for stream in (False, True):
        answer = await app.client.post(
            "/v1/chat/completions", json={**body, "stream": stream}, headers=app.bearer
        )
        # The fake does not stream: a stream that breaks off ends as a call, too.
        assert answer.status_code == (502 if stream else 200), answer.text
    response = await chat(app, "ollama/missing")
    assert response.status_code >= 400
    servers = app.server.gateway_runtime.gateway.router.servers()
    assert [each.in_flight for each in servers] == [0, 0, 0]
    assert calls(first) + calls(second) >= 3


async def test_dead_host_is_left_out_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sixfold.core.reachability.BUSY_SECONDS", 0.0)
    alive, dead = Ollama({"shared": COMPLETION}), Ollama({"shared": COMPLETION})
    async with listening(alive, HOSTS[0]):
        port = alive.port
        look_at(monkeypatch, ollama=port)
        async with app_with(tmp_path, probe_hosts=(HOSTS[1],)) as app:
            async with listening(dead, HOSTS[1], port):
                await app.server.gateway_runtime.refresh()
                names = {each.name for each in app.server.gateway_runtime.gateway.router.resolve("shared")}
                assert {name.rpartition("/")[0] for name in names} == {"ollama", "ollama@127.0.0.2"}
            for _ in range(4):
                assert (await chat(app, "shared")).status_code == 200
            await app.server.gateway_runtime.refresh()
            (only,) = app.server.gateway_runtime.gateway.router.resolve("shared")
            assert only.upstream.name == "ollama"
            async with listening(dead, HOSTS[1], port):
                await app.server.gateway_runtime.refresh()
                assert len(app.server.gateway_runtime.gateway.router.resolve("shared")) == 2
