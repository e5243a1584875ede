"""`serve --processes N`: one server, whichever of its processes a connection reaches."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e import servers
from tests.e2e.servers import Server
from tests.e2e.test_gateway_death import BODY, CONFIG, _begun
from tests.fakes.chat_servers import ModelServer, model_server
from tests.harness import processes

COUNT = 3


@asynccontextmanager
async def serving(folder: Path, **environ: str) -> AsyncIterator[tuple[Server, ModelServer]]:
    async with model_server() as acme:
        (folder / "sixfold.toml").write_text(CONFIG.format(url=acme.url))
        own = {"SIXFOLD_PROCESSES": str(COUNT), "ACME_KEY": "sk-acme", "SIXFOLD_WORKERS": "1", **environ}
        async with servers.serving(folder, **own) as server:
            yield server, acme


def children(server: Server) -> list[int]:
    """Return the ids of the child processes."""
    pids = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    return [
        pid
        for pid in map(int, pids)
        if b"sixfold.cli.server.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def log_lines(server: Server) -> list[dict[str, Any]]:
    text = (server.folder.parent / f"{server.folder.name}.log").read_text()
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


async def reach_every_process(
    server: Server, method: str, path: str, body: Any = None, **headers: str
) -> list[servers.Reply]:
    """Send batches of requests until each process has logged one, and return all responses."""
    answers: list[servers.Reply] = []
    for _ in range(20):
        answers += await asyncio.gather(*(server.call(method, path, body, **headers) for _ in range(20)))
        served = {line["process"] for line in log_lines(server) if path in line.get("path", "")}
        if served == set(range(COUNT)):
            return answers
    pytest.fail(f"{path} was not served by each process")


async def account(server: Server) -> tuple[float, float]:
    """Return the balance and the amount on hold."""
    bearer = {"Authorization": f"Bearer {server.key}"}
    result = (await server.call("GET", "/api/account", **bearer)).json
    return float(result["balance_usd"]), float(result["held_usd"])


async def test_processes_share_money_runs_and_metrics(either: Path) -> None:
    async with serving(either) as (server, _):
        bearer = {"Authorization": f"Bearer {server.key}"}
        chats = reach_every_process(server, "POST", "/v1/chat/completions", BODY, **bearer)
        images = [
            server.call("POST", "/api/anime", {"prompt": "a hill", "seed": seed}, **bearer)
            for seed in range(6)
        ]
        chatted, drawn = await asyncio.gather(chats, asyncio.gather(*images))
        assert Counter(response.status for response in chatted + drawn) == {200: len(chatted) + 6}
        spent = sum(float(response.headers["x-sixfold-cost"]) for response in chatted)
        spent += sum(float(response.json["cost"]) for response in drawn)
        balance, held = await account(server)
        assert (round(10 - balance, 6), held) == (round(spent, 6), 0)
        metrics = (await server.call("GET", "/metrics", **bearer)).body.decode()
        calls = 'sixfold_relay_calls_total{server="acme",status="succeeded"}'
        assert f"{calls} {len(chatted)}.0" in metrics
        assert await server.terminate() == 0
        status, text = await server.command("ledger", "verify")
        assert status == 0, text


async def test_event_streams_at_every_process_end_with_the_result(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _):
        bearer = {"Authorization": f"Bearer {server.key}"}
        body = {"input": {"prompt": "a hill"}}
        run = (await server.call("POST", "/api/containers/anime-image/queue/join", body, **bearer)).json
        assert "prediction_id" in run, run
        path = f"/api/containers/predictions/{run['prediction_id']}/events"
        answers = await reach_every_process(server, "GET", path, **bearer)
        events = [events_of(response.body.decode()) for response in answers]
        assert {(each[-1][0], each[-1][1]["status"]) for each in events} == {("status", "succeeded")}


def events_of(text: str) -> list[tuple[str, Any]]:
    """Return the names and documents of server-sent events."""
    results: list[tuple[str, Any]] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            results.append((fields["event"], json.loads(fields["data"])))
    return results


@pytest.mark.nightly
async def test_killed_process_keeps_the_ledger_and_calls_of_others(either: Path) -> None:
    async with serving(either) as (server, acme):
        bearer = {"Authorization": f"Bearer {server.key}"}
        acme.mode = "trickle"
        origin = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
            streams = await asyncio.gather(*(_begun(client, origin, bearer) for _ in range(30)))
            [victim, *others] = children(server)
            os.kill(victim, signal.SIGKILL)
            acme.go_on.set()
            ends = await asyncio.gather(*(last_line(lines) for _, lines in streams))
        assert 0 < ends.count("data: [DONE]") < 30
        await until_held_is_zero(server)
        status, text = await server.command("ledger", "verify")
        assert status == 0, text
        started = children(server)
        assert len(started) == COUNT - 1
        assert set(others) < set(started)


async def last_line(lines: AsyncIterator[str]) -> str:
    """Return the last line of a stream, or "" if the connection was lost."""
    last = ""
    try:
        async for line in lines:
            last = line or last
    except httpx.TransportError:
        return ""
    return last


async def until_held_is_zero(server: Server) -> None:
    """Wait until the replacement of a killed process has released its holds."""
    async with asyncio.timeout(100):
        while True:
            if not (await account(server))[1]:
                return
            await asyncio.sleep(0.2)


@pytest.mark.nightly
async def test_restarted_process_keeps_database_and_number(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _):
        bearer = {"Authorization": f"Bearer {server.key}"}
        config = tmp_path / "sixfold.toml"
        config.write_text(f'database_url = "postgresql://nowhere/x"\nhost = "::1"\n{config.read_text()}')
        [victim, other] = children(server)
        end = asyncio.create_task(wait_for_exit(os.pidfd_open(victim)))
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(processes.PATIENCE_SECONDS):
            await end
            while True:
                answers = [await server.call("GET", "/api/account", **bearer) for _ in range(10)]
                assert {response.status for response in answers} == {200}
                lines = [line for line in log_lines(server) if line["message"].startswith("GET /api/account")]
                if {line["process"] for line in lines} == set(range(COUNT)):
                    break
        assert len({*children(server), victim, other}) == COUNT


async def wait_for_exit(process: int) -> None:
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(process, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(process)
        os.close(process)


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_processes_end_with_process_zero(tmp_path: Path, number: signal.Signals) -> None:
    async with serving(tmp_path) as (server, _):
        ends = [asyncio.create_task(wait_for_exit(os.pidfd_open(pid))) for pid in children(server)]
        assert len(ends) == COUNT - 1
        server.process.send_signal(number)
        await server.wait_for_exit()
        async with asyncio.timeout(processes.PATIENCE_SECONDS):
            await asyncio.gather(*ends)
        await server.restart()
        assert len(children(server)) == COUNT - 1


async def test_port_of_another_server_is_refused(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    async with serving(tmp_path / "first") as (server, _):
        status, text = await server.command(
            "serve", "--port", str(server.port), SIXFOLD_DATA_DIR=str(tmp_path / "second")
        )
        assert status == 1
        assert f"Port {server.port} of 127.0.0.1 is in use" in text
