"""Ray cluster on loopback for the duration of a test, in a separate process (see `raylets`)."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sixfold import settings
from tests.harness import processes

QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass(frozen=True)
class RayCluster:
    """Cluster address and control of its nodes."""

    address: str
    child: Process

    async def crash(self) -> None:
        """Kill one node as a power loss would."""
        await self._order("kill", "killed")

    async def add(self) -> None:
        await self._order("add", "added")

    async def _order(self, word: str, answer: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{word}\n".encode())
        await read_line(self.child, answer)


@asynccontextmanager
async def running_cluster(folder: Path, processors: int, kinds: Iterable[str]) -> AsyncIterator[RayCluster]:
    """Start three nodes; all but the first have `processors` CPUs and each kind of hardware."""
    child = await python(folder, "ray_multi_node.py", "3", str(processors), ",".join(kinds))
    assert child.stdin is not None
    try:
        yield RayCluster((await read_line(child, "at ")).removeprefix("at "), child)
    finally:
        child.stdin.close()
        # A cluster that does not stop is killed, and its raylets remain.
        await processes.wait_for_exit(child)


async def python(folder: Path, script: str, *arguments: str) -> Process:
    """Start a script of this folder in a process that may connect to Ray."""
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


@asynccontextmanager
async def running(folder: Path, script: str, *arguments: str) -> AsyncIterator[Process]:
    """Run a script within the block, and kill it at the end."""
    child = await python(folder, script, *arguments)
    try:
        yield child
    finally:
        await processes.kill_and_wait(child)


async def read_line(child: Process, start: str) -> str:
    """Return the next line with this prefix; Ray prints other lines in between."""
    assert child.stdout is not None
    async with asyncio.timeout(processes.STORY_SECONDS):
        while line := (await child.stdout.readline()).decode():
            if line.startswith(start):
                return line.strip()
    raise AssertionError(f"it ended without {start!r}")
