"""Live sessions: how long a frame takes, and how evenly poses arrive when many sessions run at once.

.venv/bin/python -m bench sessions

Frames are drawn in this process, on one core. The poses come from a real server in a process of its own, over
real websockets, each session with a worker process; jitter is the gap between two poses less 50 ms, counted
from when every session has begun. A bare timer of the same beat, as many at once, says how this machine keeps
time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
import time
from pathlib import Path

import cv2
import websockets

from bench.table import Row, calibration, of_samples
from sixfold.core.work.live import Controls, Step
from sixfold.engines.live.motion.engine import MotionEngine
from sixfold.engines.live.world.engine import WorldEngine
from tests.stories import servers

TITLE = "Live sessions: frames of 480 x 270, poses at 20 a second"
PROMPTS = ("a meadow by a lake", "snowy mountains", "desert at sunset", "forest in the rain")
FRAMES, POSES, MANY = 60, 60, (1, 20, 100)
BEAT = 0.05


def frames(prompt: str) -> list[float]:
    """Seconds of each frame of a walk."""
    engine, state, taken = WorldEngine(), None, []
    for _ in range(FRAMES):
        began = time.perf_counter()
        told = engine.step(Step("world-model", {"prompt": prompt}, state, Controls(("w",)), 30))
        state = told.state
        taken.append(time.perf_counter() - began)
    return taken


def poses() -> list[float]:
    """Seconds of each pose of a dance."""
    engine, state, taken = MotionEngine(), None, []
    for _ in range(400):
        began = time.perf_counter()
        state = engine.step(Step("motion-model", {"prompt": "dance"}, state, Controls(), 20)).state
        taken.append(time.perf_counter() - began)
    return taken


def lateness(moments: list[float]) -> list[float]:
    """How far each gap is from a beat."""
    return [abs(after - before - BEAT) for before, after in itertools.pairwise(moments)]


async def timers(count: int) -> list[float]:
    """The lateness of `count` bare timers at once, on an absolute clock."""

    async def one() -> list[float]:
        began = time.perf_counter()
        moments: list[float] = []
        for number in range(POSES):
            await asyncio.sleep(max(0.0, began + (number + 1) * BEAT - time.perf_counter()))
            moments.append(time.perf_counter())
        return lateness(moments)

    return [late for found in await asyncio.gather(*(one() for _ in range(count))) for late in found]


def jitter(name: str, late: list[float]) -> Row:
    """A row with its p99."""
    p99 = sorted(late)[int(len(late) * 0.99)] * 1000
    return of_samples(name, late, "ms", f"p99 {p99:.1f} ms")


async def arrivals(server: servers.Server, count: int) -> tuple[list[float], list[float]]:
    """With `count` sessions at once: seconds to each one's first pose, and every pose's lateness."""
    key = {"Authorization": f"Bearer {server.key}"}
    begun = asyncio.Barrier(count)

    async def one() -> tuple[float, list[float]]:
        began = time.perf_counter()
        reply = await server.call("POST", "/api/containers/motion-model/sessions", {}, **key)
        moments: list[float] = []
        first, others = 0.0, None
        async with websockets.connect(reply.json["ws_url"]) as socket:
            await socket.send('{"type":"hello"}')
            while len(moments) < POSES:
                if json.loads(await socket.recv())["type"] == "pose":
                    first = first or time.perf_counter()
                    others = others or asyncio.create_task(begun.wait())
                    if others.done():
                        moments.append(time.perf_counter())
            await socket.send('{"type":"close"}')
        return first - began, lateness(moments)

    found = await asyncio.gather(*(one() for _ in range(count)))
    return [first for first, _ in found], [gap for _, gaps in found for gap in gaps]


async def served() -> list[Row]:
    """What arrives from a server."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        async with servers.serving(Path(folder) / "home", SIXFOLD_SESSION_LIMIT=str(max(MANY))) as server:
            for count in MANY:
                firsts, late = await arrivals(server, count)
                rows.append(of_samples(f"first pose, {count} at once", firsts, "ms"))
                rows.append(jitter(f"jitter of poses, {count} sessions", late))
                rows.append(jitter(f"jitter of bare timers, {count} at once", await timers(count)))
    return rows


def rows() -> list[Row]:
    """The table."""
    cv2.setNumThreads(1)
    found = calibration()
    for prompt in PROMPTS:
        first, *rest = frames(prompt)
        found.append(of_samples(f"frame, {prompt}", rest, "ms", f"the land {first * 1000:.0f} ms, once"))
    found.append(of_samples("pose", poses(), "ms"))
    return found + asyncio.run(served())
