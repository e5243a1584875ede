"""Limits of graphs are checked in short steps."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sixfold.core.concurrency import fair_threads, memory_limit
from sixfold.core.concurrency.memory_limit import MemoryScope
from sixfold.core.workflows import slices
from sixfold.core.workflows.limits import DocumentMemory, GraphLimits, GraphTooLarge
from sixfold.errors import TooManyRequests

# CPU time of one step.
MAX_SECONDS = 0.02
GRAPHS: dict[str, dict[str, Any]] = {
    "nodes": {str(at): {"inputs": {f"a{n}": [[]] for n in range(8)}} for at in range(5_000)},
    "one list": {"1": {"inputs": {"a": [[]] * 99_000}}},
    "one node": {"1": {"inputs": {f"a{at}": [[]] for at in range(45_000)}}},
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_largest_graphs_are_checked_in_short_steps(name: str) -> None:
    longest: list[float] = []
    # Other work of the machine may slow a measurement.
    for _ in range(3):
        steps, seconds = GraphLimits().checking(GRAPHS[name]), [0.0]
        is_finished = False
        while not is_finished:
            start = time.thread_time()
            is_finished = next(steps, True) is True
            seconds.append(time.thread_time() - start)
        longest.append(max(seconds))
    assert min(longest) < MAX_SECONDS


def test_value_above_the_limit_is_refused_at_any_depth() -> None:
    limits = GraphLimits(nodes=2, values=10)
    slices.complete(limits.checking({"1": {"inputs": {"a": [1] * 9}}}))
    for inputs in ({"a": [1] * 10}, {"a": [[[1]]] * 4}, {f"a{at}": 1 for at in range(11)}):
        with pytest.raises(GraphTooLarge, match="10 values"):
            slices.complete(limits.checking({"1": {"inputs": inputs}}))


async def test_large_documents_wait_for_memory() -> None:
    memory = DocumentMemory(max_bytes=30 * 2**20, wait_seconds=0.01)
    first, second = MemoryScope(), MemoryScope()
    memory_limit.scope.set(first)
    fair_threads.owner.set("ada")
    await memory.reserve(60_000)
    assert memory.total == 0
    await memory.reserve(2**20)
    assert memory.total == 24 * 2**20
    memory_limit.scope.set(second)
    fair_threads.owner.set("bob")
    with pytest.raises(TooManyRequests, match="Too many large workflows at a time"):
        await memory.reserve(2**20)
    first.close()
    await memory.reserve(32 * 2**20)
    assert memory.total == 48 * 2**20
    second.close()
    assert memory.total == 0
