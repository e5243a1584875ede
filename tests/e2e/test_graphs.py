"""The server or a worker is killed during graphs: nothing is lost, and charges are exact."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e import servers
from tests.e2e.servers import Server
from tests.harness.waiting import wait_until

# A custom model that writes its process id and waits for a file.
GATE = '''
import os, time
from pathlib import Path
import sixfold

@sixfold.model(name="gate")
def gate(word: str, folder: str, image: sixfold.Picture) -> str:
    """Wait until it is opened."""
    place = Path(folder)
    with (place / "runs").open("a") as runs:
        runs.write(f"{os.getpid()}\\n")
    while not (place / "open").exists():
        time.sleep(0.02)
    return word
'''
COMMON = {"steps": 8, "width": 64, "height": 64}


def graph(folder: Path) -> dict[str, Any]:
    """Return a graph with a paid image first, and then the gate."""
    response = json.dumps({"word": "through", "folder": str(folder)})
    return {
        "1": {"class_type": "SixfoldTextToImage", "inputs": {"prompt": "a hut", "seed": 3, **COMMON}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "hut"}},
        "3": {
            "class_type": "SixfoldTemplate",
            "inputs": {"template": "template:gate", "input": response, "image": ["1", 0]},
        },
        "4": {"class_type": "PreviewAny", "inputs": {"source": ["3", 3]}},
    }


@asynccontextmanager
async def in_the_middle(tmp_path: Path) -> AsyncIterator[tuple[Server, str, Path]]:
    """A server, and the id of a graph that has its image and waits at the gate."""
    folder, run_folder = tmp_path / "data", tmp_path / "place"
    (folder / "models").mkdir(parents=True)
    run_folder.mkdir()
    (folder / "models" / "gate.py").write_text(GATE)
    environ = {"SIXFOLD_LEASE_SECONDS": "1", "SIXFOLD_WORKERS": "2", "SIXFOLD_SANDBOX": "off"}
    async with servers.serving(folder, **environ) as server:
        async with asyncio.timeout(60):
            while "name" not in await call(server, "GET", "/api/containers/templates/gate"):  # noqa: ASYNC110  # of another process there is no event
                await asyncio.sleep(0.05)
        body = {"workflow": graph(run_folder), "name": "gated"}
        imported = await call(server, "POST", "/api/graph/spaces", body)
        assert imported["slug"] == "gated", imported
        response = await call(server, "POST", "/api/graph/spaces/gated/run", {"input": {}, "wait": 0})
        assert response["status"] in ("queued", "starting", "running"), response
        await poll_until(lambda: len(runs(run_folder)) == 1)
        yield server, response["id"], run_folder


def runs(run_folder: Path) -> list[int]:
    """Return the processes that waited at the gate."""
    path = run_folder / "runs"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def poll_until(holds: Any) -> None:
    """Poll until a condition holds; another process sends no events."""
    await wait_until(holds)


async def call(server: Server, method: str, path: str, body: Any = None) -> Any:
    reply = await server.call(method, path, body, Authorization=f"Bearer {server.key}")
    return reply.json


async def finished_prediction(server: Server, prediction_id: str) -> Any:
    async with asyncio.timeout(90):
        while True:
            response = await call(server, "GET", f"/api/containers/predictions/{prediction_id}")
            if response["status"] in ("succeeded", "failed", "canceled", "expired"):
                return response
            await asyncio.sleep(0.05)


async def money(server: Server) -> tuple[str, str]:
    """Return the posted and held balance after verifying the ledger."""
    assert (await server.command("ledger", "verify"))[0] == 0
    response = await call(server, "GET", "/api/account")
    return response["balance_usd"], response["held_usd"]


async def children(server: Server, parent_id: str) -> list[Any]:
    page = await call(server, "GET", "/api/containers/predictions?limit=50")
    return [each for each in page["predictions"] if each["parent_id"] == parent_id]


async def test_graph_survives_killed_worker_and_server_charged_once(tmp_path: Path) -> None:
    async with in_the_middle(tmp_path) as (server, parent_id, run_folder):
        os.kill(runs(run_folder)[0], signal.SIGKILL)
        await poll_until(lambda: len(runs(run_folder)) == 2)
        await server.kill()
        (run_folder / "open").touch()
        await server.restart()
        response = await finished_prediction(server, parent_id)
        assert (response["status"], response["error"]) == ("succeeded", None)
        result = await children(server, parent_id)
        assert {(each["model"], each["status"], each["attempt"]) for each in result} == {
            ("gate", "succeeded", 3),
            ("graph-image", "succeeded", 1),
        }
        paid = sum(round(float(each["cost"]) * 1_000_000) for each in result)
        assert round(float(response["cost"]) * 1_000_000) == paid > 40_000
        posted, held = await money(server)
        assert (round((10 - float(posted)) * 1_000_000), held) == (paid, "0.00")
