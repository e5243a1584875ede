"""Measure live sessions: time per frame, and the jitter of poses with many concurrent sessions.

.venv/bin/python -m bench sessions

Frames are drawn in this process on one core. Poses come from a real server in a separate process over
websockets. Jitter is the difference of the gap between two poses from 50 ms, after all sessions have
started; cores are CPU time per elapsed time. The same number of bare timers shows the timing precision of
the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import cv2

from bench.reporting import Row, calibration, of_samples
from bench.sockets import Watcher, watch
from sixfold.core.sessions.engine import Controls, EngineStep
from sixfold.engines.live.motion.engine import MotionEngine
from sixfold.engines.live.world.engine import WorldEngine
from tests.e2e import servers
from tests.harness import postgres

TITLE = "Live sessions: frames of 480 x 270, poses at 20 a second"
PROMPTS = ("a meadow by a lake", "snowy mountains", "desert at sunset", "forest in the rain")
FRAMES, POSES, MANY = 60, 60, (1, 20, 100)
# The number of sessions that two servers share.
SHARED = 200
BEAT = 0.05


def frames(prompt: str) -> list[float]:
    """Return the seconds of each frame of a camera path."""
    engine, state, seconds = WorldEngine(), None, []
    for _ in range(FRAMES):
        began = time.perf_counter()
        response = engine.step(EngineStep("world-model", {"prompt": prompt}, state, Controls(("w",)), 30))
        state = response.state
        seconds.append(time.perf_counter() - began)
    return seconds


def poses() -> list[float]:
    """Return the seconds of each pose of a dance."""
    engine, state, seconds = MotionEngine(), None, []
    for _ in range(400):
        began = time.perf_counter()
        state = engine.step(EngineStep("motion-model", {"prompt": "dance"}, state, Controls(), 20)).state
        seconds.append(time.perf_counter() - began)
    return seconds


def lateness(moments: list[float]) -> list[float]:
    """Return the absolute difference in seconds of each gap from the interval."""
    return [abs(after - before - BEAT) for before, after in itertools.pairwise(moments)]


async def timers(count: int) -> list[float]:
    """Return the lateness of `count` concurrent bare timers, on an absolute clock."""

    async def one() -> list[float]:
        began = time.perf_counter()
        moments: list[float] = []
        for number in range(POSES):
            await asyncio.sleep(max(0.0, began + (number + 1) * BEAT - time.perf_counter()))
            moments.append(time.perf_counter())
        return lateness(moments)

    return [late for result in await asyncio.gather(*(one() for _ in range(count))) for late in result]


def jitter(name: str, late: list[float]) -> Row:
    """Return a row with its 99th percentile."""
    p99 = sorted(late)[int(len(late) * 0.99)] * 1000
    return of_samples(name, late, "ms", f"p99 {p99:.1f} ms")


def read_stat(pid: int | str) -> list[str]:
    """Return the fields of `/proc/PID/stat` after the name of the process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def read_spent(*processes: int) -> float:
    """Return the processor time of live processes in seconds."""
    return sum(int(ticks) for pid in processes for ticks in read_stat(pid)[11:13]) / os.sysconf("SC_CLK_TCK")


def descendant_pids(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # the process may have ended
                parents[int(entry.name)] = int(read_stat(entry.name)[1])
    results = [pid]
    for parent in results:
        results += [child for child, its in parents.items() if its == parent]
    return results[1:]


async def open_session(server: servers.Server, key: str) -> tuple[Watcher, float]:
    """Open a session, and return it with the time to its first pose."""
    began, path = time.perf_counter(), "/api/containers/motion-model/sessions"
    reply = await server.call("POST", path, {}, Authorization=f"Bearer {key}")
    watcher = await watch(reply.json["ws_url"])
    return watcher, await watcher.first - began


async def arrivals(group: Sequence[servers.Server], count: int) -> list[Row]:
    """Return the time to the first pose of `count` sessions, how late poses are, and their CPU time."""
    key = group[0].key
    result = await asyncio.gather(*(open_session(group[number % len(group)], key) for number in range(count)))
    watchers = [watcher for watcher, _ in result]
    groups = {
        "server": [server.process.pid for server in group],
        "workers": [pid for server in group for pid in descendant_pids(server.process.pid)],
        "client": [os.getpid()],
    }
    before = {name: read_spent(*pids) for name, pids in groups.items()}
    began = time.perf_counter()
    for watcher in watchers:
        watcher.moments.clear()
    await asyncio.sleep(POSES * BEAT)
    seconds = time.perf_counter() - began
    cores = {name: (read_spent(*pids) - before[name]) / seconds for name, pids in groups.items()}
    late = [gap for watcher in watchers for gap in lateness(watcher.moments)]
    response = sum(len(watcher.moments) for watcher in watchers) / seconds
    for watcher in watchers:
        watcher.send('{"type":"close"}')
    await asyncio.gather(*(watcher.over for watcher in watchers))
    note = ", ".join(f"{name} {share:.2f}" for name, share in cores.items())
    where = "" if len(group) == 1 else f" on {len(group)} servers"
    each = {name: share / response * 1e6 for name, share in cores.items()}
    return [
        of_samples(f"first pose, {count} at once{where}", (first for _, first in result), "ms"),
        jitter(f"jitter of poses, {count} sessions{where}", late),
        Row(f"cores for {response:,.0f} poses a second{where}", sum(cores.values()), "", note=note),
        Row(
            f"server CPU per pose, {count} sessions{where}",
            each["server"],
            "µs",
            note=f"workers {each['workers']:.0f} µs",
        ),
    ]


async def one_server() -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        async with servers.serving(Path(folder) / "home", SIXFOLD_SESSION_LIMIT=str(max(MANY))) as server:
            for count in MANY:
                rows += await arrivals([server], count)
                rows.append(jitter(f"jitter of bare timers, {count} at once", await timers(count)))
    return rows


async def two_servers() -> list[Row]:
    """Return the arrivals from two servers on one PostgreSQL."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "postgres").mkdir()
        url = postgres.Databases(folder / "postgres").lend()
        environ = {"SIXFOLD_DATABASE_URL": url, "SIXFOLD_SESSION_LIMIT": str(SHARED)}
        secret = os.urandom(32)
        for home in ("0", "1"):
            (folder / home).mkdir()
            (folder / home / "server.key").write_bytes(secret)
        async with (
            servers.serving(folder / "0", **environ) as first,
            servers.serving(folder / "1", **environ) as second,
        ):
            return await arrivals([first, second], SHARED)


def rows() -> list[Row]:
    cv2.setNumThreads(1)
    result = calibration()
    for prompt in PROMPTS:
        first, *rest = frames(prompt)
        result.append(of_samples(f"frame, {prompt}", rest, "ms", f"terrain {first * 1000:.0f} ms, once"))
    result.append(of_samples("pose", poses(), "ms"))
    return result + asyncio.run(one_server()) + asyncio.run(two_servers())
