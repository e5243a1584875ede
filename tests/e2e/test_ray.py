"""Two hundred runs on a Ray cluster of three nodes: one node is killed, and later the server."""

from __future__ import annotations

import importlib.util
import json
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from tests.e2e.ray_cluster import read_line, running, running_cluster
from tests.harness import processes
from tests.harness.pipeline import HARDWARE

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`"),
]
CREDIT, ORDERS = 1_000_000, 200


async def _wait_for_end(child: Process, count: int) -> None:
    for _ in range(count):
        await read_line(child, "ended")


async def test_killed_node_and_server_lose_nothing_and_charge_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with running_cluster(tmp_path, 2, [HARDWARE]) as rays:
        async with running(tmp_path, "ray_child.py", str(home), rays.address) as first:
            await _wait_for_end(first, 30)
            await rays.crash()
            await _wait_for_end(first, 60)
        async with running(tmp_path, "ray_child.py", str(home), rays.address) as second:
            await _wait_for_end(second, ORDERS)
            response = json.loads(await read_line(second, "{"))
            await processes.wait_for_exit(second)
    assert response["states"] == {"succeeded": ORDERS}
    assert response["files"] == ORDERS
    assert response["again"] > 0
    assert response["faults"] == []
    assert (response["posted"], response["held"]) == (CREDIT - response["charged"], 0)
