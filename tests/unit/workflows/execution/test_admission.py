"""Memory and turns that running graphs share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.workflows.execution.admission import GraphMemory, MemoryShare
from sixfold.core.workflows.execution.execute import execute
from sixfold.core.workflows.limits import GraphTooLarge
from sixfold.core.workflows.ports import NodeEvent
from sixfold.core.workflows.validate import validate
from tests.unit.workflows.tiny_graphs import CLASSES, ExecutionFixture, node


class ControlledUses:
    """Uses of a shared resource, started and ended one by one."""

    def __init__(self) -> None:
        self.started_names: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def use(self, name: str, context: Any) -> None:
        self.ends[name] = asyncio.Event()

        async def run() -> None:
            async with context:
                self.started_names.append(name)
                await self.ends[name].wait()

        self.tasks[name] = asyncio.create_task(run())

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await let_tasks_run()


async def let_tasks_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_nodes_wait_in_order_for_memory() -> None:
    memory, gate = GraphMemory(100), ControlledUses()
    for name, count in (("a", 60), ("b", 60), ("c", 10)):
        gate.use(name, memory.working(count))
    await let_tasks_run()
    assert (gate.started_names, memory.used) == (["a"], 60)
    await gate.end("a")
    assert (gate.started_names, memory.used) == (["a", "b", "c"], 70)
    await gate.end("b")
    await gate.end("c")
    assert memory.used == 0


async def test_node_above_the_memory_limit_runs_alone() -> None:
    memory, gate = GraphMemory(100), ControlledUses()
    gate.use("small", memory.working(10))
    await let_tasks_run()
    gate.use("large", memory.working(1000))
    await let_tasks_run()
    assert gate.started_names == ["small"]
    await gate.end("small")
    assert gate.started_names == ["small", "large"]
    await gate.end("large")
    assert memory.used == 0


async def test_canceled_waiting_node_frees_its_place() -> None:
    memory, gate = GraphMemory(100), ControlledUses()
    for name, count in (("a", 90), ("b", 90), ("c", 10)):
        gate.use(name, memory.working(count))
    await let_tasks_run()
    gate.tasks["b"].cancel()
    await let_tasks_run()
    gate.use("d", memory.working(95))
    await gate.end("a")
    assert gate.started_names == ["a", "c"]
    await gate.end("c")
    assert gate.started_names == ["a", "c", "d"]
    await gate.end("d")
    assert memory.used == 0


def waits(task: asyncio.Task[None]) -> bool:
    return not task.done()


async def test_values_are_admitted_beside_node_reservations() -> None:
    memory = GraphMemory(100)
    async with memory.working(300):
        share = memory.join()
        share.hold(60)
        assert (share.admitted, share.pending, memory.used) == (60, 0, 360)
        share.close()
    assert (memory.used, memory.admitted) == (0, 0)


async def test_a_run_waits_until_another_one_frees_its_values() -> None:
    memory = GraphMemory(100)
    first, second = memory.join(), memory.join()
    first.hold(60)
    second.hold(50)
    waiting = asyncio.create_task(second.wait_for_capacity())
    await let_tasks_run()
    assert waits(waiting)
    first.hold(40)
    await first.wait_for_capacity()
    first.hold(-50)
    await waiting
    assert (memory.admitted, memory.used) == (100, 100)
    first.close()
    second.close()
    assert (memory.admitted, memory.used) == (0, 0)


async def test_run_without_values_yields_to_waiting_runs() -> None:
    memory = GraphMemory(100)
    first, second, third = (memory.join() for _ in range(3))
    first.hold(90)
    second.hold(50)
    turns = [asyncio.create_task(second.wait_for_capacity())]
    await let_tasks_run()
    third.hold(5)
    assert third.pending == 5
    turns.append(asyncio.create_task(third.wait_for_capacity()))
    await let_tasks_run()
    assert all(map(waits, turns))
    first.close()
    await asyncio.gather(*turns)
    assert memory.admitted == 55


async def test_newest_of_runs_in_a_deadlock_fails() -> None:
    memory = GraphMemory(100)
    shares = [memory.join() for _ in range(3)]
    for share, count in zip(shares, (50, 30, 20), strict=True):
        share.hold(count)
    for share in shares:
        share.hold(15)

    async def run(share: MemoryShare) -> None:
        try:
            await share.wait_for_capacity()
        finally:
            share.close()

    tasks = [asyncio.create_task(run(share)) for share in shares]
    async with asyncio.timeout(30):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[:2] == [None, None]
    assert isinstance(results[2], GraphTooLarge)
    assert "try again later" in results[2].message
    assert (memory.admitted, memory.used) == (0, 0)


async def test_canceled_waiting_run_yields_to_others() -> None:
    memory = GraphMemory(100)
    first, second, third = (memory.join() for _ in range(3))
    first.hold(60)
    second.hold(90)
    third.hold(30)
    assert (second.pending, third.pending) == (90, 0)
    third.hold(20)
    turns = [asyncio.create_task(share.wait_for_capacity()) for share in (second, third)]
    await let_tasks_run()
    turns[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await turns[0]
    second.close()
    first.close()
    await turns[1]
    assert (memory.admitted, memory.used) == (50, 50)


async def test_single_run_above_the_limit_fails() -> None:
    memory = GraphMemory(2**20)
    share = memory.join()
    share.hold(2**20)
    await share.wait_for_capacity()
    with pytest.raises(GraphTooLarge, match="more than 1 MiB at a time"):
        share.hold(1)


async def test_graph_waits_for_values_of_another_and_frees_its_own(tmp_path: Path) -> None:
    memory = GraphMemory(2**20)
    fixture = ExecutionFixture(tmp_path, lambda words: words * 700_000)
    graph = {"1": node("Ask", words="x"), "2": node("Show", value=["1", 0])}
    location = fixture.location.__class__(
        fixture, fixture, fixture, fixture.location.packer, tmp_path, None, memory
    )
    other = memory.join()
    other.hold(500_000)
    finished = asyncio.Event()

    def hear(event: NodeEvent) -> None:
        if event.type == "finished":
            finished.set()

    running = asyncio.create_task(execute(validate(graph, CLASSES), location, hear))
    await finished.wait()
    await let_tasks_run()
    assert memory.used == 1_200_000
    assert not running.done()
    other.close()
    end = await running
    assert end.executed == ("1", "2")
    assert (memory.admitted, memory.used) == (0, 0)


async def test_graphs_run_while_another_has_reserved_all_memory(tmp_path: Path) -> None:
    memory = GraphMemory(2**20)
    fixture = ExecutionFixture(tmp_path)
    graph = {"1": node("Ask", words="x"), "2": node("Show", value=["1", 0])}
    location = fixture.location.__class__(
        fixture, fixture, fixture, fixture.location.packer, tmp_path, None, memory
    )
    async with memory.working(3 * 2**20):
        end = await execute(validate(graph, CLASSES), location, lambda _event: None)
    assert end.outputs["2"] == {"text": ("X",)}
