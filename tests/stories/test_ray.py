"""Two hundred runs on a Ray cluster of three machines: one is killed in the middle, and later the server."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sixfold import settings
from tests.road import HARDWARE

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`"),
]
CREDIT, ORDERS = 1_000_000, 200
QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@asynccontextmanager
async def raylets(folder: Path, machines: int) -> AsyncIterator[tuple[Process, str]]:
    """A cluster and its address, for the length of a test."""
    child = await _python(folder, "raylets.py", str(machines), HARDWARE)
    assert child.stdin is not None
    try:
        yield child, (await _heard(child, "at ")).removeprefix("at ")
    finally:
        child.stdin.close()
        await child.wait()


async def _python(folder: Path, script: str, *arguments: str) -> Process:
    path = Path(__file__).with_name(script)
    with (folder / f"{path.stem}.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            str(path),
            *arguments,
            env={**settings.worker_environment(), **QUIET, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
        )


async def _heard(child: Process, start: str) -> str:
    """The next line that begins so; Ray has lines of its own to say in between."""
    assert child.stdout is not None
    while line := (await child.stdout.readline()).decode():
        if line.startswith(start):
            return line.strip()
    raise AssertionError(f"it ended without {start!r}")


async def _ended(child: Process, count: int) -> None:
    for _ in range(count):
        await _heard(child, "ended")


async def test_nothing_is_lost_or_paid_twice_when_a_machine_and_then_the_server_die(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with raylets(tmp_path, 3) as (cluster, address):
        first = await _python(tmp_path, "ray_child.py", str(home), address)
        await _ended(first, 30)
        assert cluster.stdin is not None
        cluster.stdin.write(b"kill\n")
        await _heard(cluster, "killed")
        await _ended(first, 60)
        first.kill()
        await first.wait()
        second = await _python(tmp_path, "ray_child.py", str(home), address)
        await _ended(second, ORDERS)
        told = json.loads(await _heard(second, "{"))
        await second.wait()
    assert told["states"] == {"succeeded": ORDERS}
    assert told["files"] == ORDERS
    assert told["again"] > 0
    assert told["faults"] == []
    assert (told["posted"], told["held"]) == (CREDIT - told["charged"], 0)
