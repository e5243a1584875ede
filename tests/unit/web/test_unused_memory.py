"""Memory is returned to the system after many connections have been closed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, cast

import pytest
import uvicorn

from sixfold.cli.server.serve import Server
from sixfold.web.connections.sweep import ConnectionSweep
from sixfold.web.connections.unused_memory import MANY_CONNECTIONS, SECONDS, UnusedMemory

# Prints the statistics of the allocator at the start, after many objects were freed, and after the release.
PROGRAM = """
import asyncio
import gc
import sys

import uvloop

from sixfold.web.connections.unused_memory import release

COUNT, STEP = 100_000, 500


def nothing():
    pass


def free(objects):
    # The objects that are freed first are kept for reuse. They are far from each other.
    objects[::STEP] = [None] * (COUNT // STEP)
    objects.clear()


async def main():
    loop = asyncio.get_running_loop()
    gc.disable()
    sys._debugmallocstats()
    future = loop.create_future()
    iterators = [future.__await__() for _ in range(COUNT)]
    handles = [loop.call_soon(nothing) for _ in range(COUNT)]
    timers = [loop.call_later(60, nothing) for _ in range(COUNT // 2)]
    tuples = [(number, number) for number in range(COUNT)]
    for timer in timers:
        timer.cancel()
    timers += [None] * (COUNT // 2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for objects in (iterators, handles, timers, tuples):
        free(objects)
    sys._debugmallocstats()
    release(loop)
    for _ in range(3):
        await asyncio.sleep(0)
    sys._debugmallocstats()


uvloop.run(main())
"""


def _arenas() -> list[int]:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    return [
        int(line.rpartition("=")[2].replace(",", ""))
        for line in result.stderr.splitlines()
        if line.startswith("# arenas allocated current")
    ]


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="requires the allocator of CPython")
def test_arenas_with_only_objects_kept_for_reuse_are_returned() -> None:
    before, kept, after = _arenas()
    assert kept - before > 30
    assert after - before <= 10


def _calls(connections: list[int]) -> int:
    calls = list[None]()
    memory = UnusedMemory(lambda: calls.append(None))
    for count in connections:
        memory.check(count)
    return len(calls)


def test_memory_is_released_after_most_connections_ended() -> None:
    most = MANY_CONNECTIONS
    assert _calls([0, most, most // 2, most // 4 + 1]) == 0
    assert _calls([0, most, most // 4]) == 1


def test_memory_is_released_for_a_limited_time() -> None:
    assert _calls([MANY_CONNECTIONS, *[0] * (2 * SECONDS)]) == SECONDS


def test_few_connections_do_not_release_memory() -> None:
    assert _calls([MANY_CONNECTIONS - 1, 0, 0, MANY_CONNECTIONS - 1, 0]) == 0


async def test_server_checks_its_connections_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = list[int]()
    monkeypatch.setattr(UnusedMemory, "check", lambda _, connections: counts.append(connections))
    config = uvicorn.Config(lambda *_: None, lifespan="off", log_config=None)
    config.load()
    server = Server(config, ConnectionSweep(30, 0, 0), None)
    server._memory = UnusedMemory(lambda: None)
    cast("set[Any]", server.server_state.connections).add(object())
    for counter in range(11):
        await server.on_tick(counter)
    assert counts == [1, 1]
