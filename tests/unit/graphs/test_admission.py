"""Memory and turns that running graphs share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.graphs.admission import FreeRuns, GraphMemory
from sixfold.core.graphs.execute import execute
from sixfold.core.graphs.limits import GraphTooLarge
from sixfold.core.graphs.validate import validate
from tests.unit.graphs.small import CLASSES, World, node


class Gate:
    """Uses of a shared thing, begun and let go one by one."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def use(self, name: str, context: Any) -> None:
        self.ends[name] = asyncio.Event()

        async def run() -> None:
            async with context:
                self.begun.append(name)
                await self.ends[name].wait()

        self.tasks[name] = asyncio.create_task(run())

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_nodes_at_work_wait_in_turn_for_memory() -> None:
    memory, gate = GraphMemory(100), Gate()
    for name, count in (("a", 60), ("b", 60), ("c", 10)):
        gate.use(name, memory.working(count))
    await settled()
    assert (gate.begun, memory.used) == (["a"], 60)
    await gate.end("a")
    assert (gate.begun, memory.used) == (["a", "b", "c"], 70)
    await gate.end("b")
    await gate.end("c")
    assert memory.used == 0


async def test_a_node_too_large_for_the_memory_works_alone() -> None:
    memory, gate = GraphMemory(100), Gate()
    gate.use("small", memory.working(10))
    await settled()
    gate.use("large", memory.working(1000))
    await settled()
    assert gate.begun == ["small"]
    await gate.end("small")
    assert gate.begun == ["small", "large"]
    await gate.end("large")
    assert memory.used == 0


async def test_a_node_canceled_while_it_waits_frees_its_place() -> None:
    memory, gate = GraphMemory(100), Gate()
    for name, count in (("a", 90), ("b", 90), ("c", 10)):
        gate.use(name, memory.working(count))
    await settled()
    gate.tasks["b"].cancel()
    await settled()
    gate.use("d", memory.working(95))
    await gate.end("a")
    assert gate.begun == ["a", "c"]
    await gate.end("c")
    assert gate.begun == ["a", "c", "d"]
    await gate.end("d")
    assert memory.used == 0


async def test_values_of_all_graphs_share_one_limit_and_are_returned(tmp_path: Path) -> None:
    memory = GraphMemory(2**20)
    world = World(tmp_path, lambda words: words * 700_000)
    graph = {"1": node("Ask", words="x"), "2": node("Show", value=["1", 0])}
    place = world.place.__class__(world, world, world, world.place.packer, tmp_path, None, memory)
    await execute(validate(graph, CLASSES), place, lambda _event: None)
    assert memory.used == 0
    memory.hold(500_000)
    with pytest.raises(GraphTooLarge, match="1 MiB at once"):
        await execute(validate(graph, CLASSES), place, lambda _event: None)
    assert memory.used == 500_000


async def test_free_runs_of_one_account_wait_and_others_do_not() -> None:
    runs, gate = FreeRuns(2), Gate()
    for name in ("a1", "a2", "a3", "b1"):
        gate.use(name, runs.turn(name[0]))
    await settled()
    assert gate.begun == ["a1", "a2", "b1"]
    await gate.end("a1")
    assert gate.begun == ["a1", "a2", "b1", "a3"]
    for name in ("a2", "a3", "b1"):
        await gate.end(name)
    assert runs._accounts == {}
