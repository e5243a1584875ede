"""A Ray cluster on loopback for the length of a test, in a process of its own (see `raylets`)."""

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
class Rays:
    """The cluster: where it is, and its machines to be killed."""

    address: str
    child: Process

    async def crash(self) -> None:
        """End one machine as a power cut would."""
        await self._order("kill", "killed")

    async def add(self) -> None:
        """One machine more."""
        await self._order("add", "added")

    async def _order(self, word: str, answer: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{word}\n".encode())
        await heard(self.child, answer)


@asynccontextmanager
async def raylets(folder: Path, processors: int, kinds: Iterable[str]) -> AsyncIterator[Rays]:
    """Three machines; all but the first have so many processors, and each kind of hardware."""
    child = await python(folder, "ray_multi_node.py", "3", str(processors), ",".join(kinds))
    assert child.stdin is not None
    try:
        yield Rays((await heard(child, "at ")).removeprefix("at "), child)
    finally:
        child.stdin.close()
        await processes.gone(child)  # one that does not stop is killed, its raylets left to the system


async def python(folder: Path, script: str, *arguments: str) -> Process:
    """A script beside this module, in a process that Ray may talk to."""
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
    """The same for the length of a block, at whose end it is killed."""
    child = await python(folder, script, *arguments)
    try:
        yield child
    finally:
        await processes.killed(child)


async def heard(child: Process, start: str) -> str:
    """The next line that begins so; Ray has lines of its own to say in between."""
    assert child.stdout is not None
    async with asyncio.timeout(processes.STORY_SECONDS):
        while line := (await child.stdout.readline()).decode():
            if line.startswith(start):
                return line.strip()
    raise AssertionError(f"it ended without {start!r}")
