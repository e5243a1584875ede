"""Graph nodes in processes: the same bytes as in threads, a memory limit, and prompt termination."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.catalog.engines import EngineError
from sixfold.core.workflows.execution import execute
from sixfold.core.workflows.execution.execute import NodeError
from sixfold.core.workflows.validate import validate
from sixfold.drivers.node_workers import NodeWorkers
from sixfold.drivers.process import ProcessDriver
from sixfold.engines.workflow_nodes import registry
from tests.unit.engines.workflow_nodes.graph_fixtures import Graph, GraphFixture
from tests.unit.engines.workflow_nodes.test_graphs import PAINT, node, put

LIMIT = 512 * 2**20


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[NodeWorkers]:
    result = NodeWorkers(ProcessDriver(), tmp_path / "workers", LIMIT, owned=True)
    yield result
    await result.close()
    assert list((tmp_path / "workers").glob("*")) == []


@pytest.fixture
def here(tmp_path: Path) -> GraphFixture:
    (tmp_path / "here").mkdir()
    return GraphFixture(tmp_path / "here")


@pytest.fixture
def process_workers(tmp_path: Path, workers: NodeWorkers) -> GraphFixture:
    (tmp_path / "apart").mkdir()
    return GraphFixture(tmp_path / "apart", workers)


def pixels(side: int = 64) -> Graph:
    """Return a graph of images, masks, a size as a text, and a long text."""
    return {
        "image": node("LoadImage", image="example.png"),
        "scaled": node(
            "ImageScale", image=["image", 0], upscale_method="lanczos", width=side, height=side, crop="center"
        ),
        "inverted": node("ImageInvert", image=["scaled", 0]),
        "size": node("GetImageSize", image=["inverted", 0]),
        "again": node("EmptyImage", width=["size", 0], height=["size", 1], batch_size=1, color=255),
        "blend": node(
            "ImageBlend", image1=["inverted", 0], image2=["again", 0], blend_factor=0.5, blend_mode="multiply"
        ),
        "saved": node("SaveImage", images=["blend", 0], filename_prefix="made"),
        "shown": node("PreviewAny", source=["size", 0]),
        "what": node("PreviewAny", source=["blend", 0]),
        "text": node("PrimitiveString", value="ab" * 10_000),
        "upper": node("CaseConverter", string=["text", 0], mode="UPPERCASE"),
        "length": node("StringLength", string=["upper", 0]),
        "count": node("PreviewAny", source=["length", 0]),
    }


async def test_nodes_in_processes_and_threads_give_equal_outputs(
    here: GraphFixture, process_workers: GraphFixture
) -> None:
    for graph_fixture in (here, process_workers):
        put(graph_fixture)
    graphs: list[Graph] = [pixels(), PAINT, pixels(), pixels(48)]
    for graph in graphs:
        first, second = await here.run(graph), await process_workers.run(graph)
        assert json.dumps(first.outputs) == json.dumps(second.outputs)
        assert sorted(first.executed) == sorted(second.executed)
        assert first.cached == second.cached
    assert [data for _, _, data in here.outputs.outputs] == [
        data for _, _, data in process_workers.outputs.outputs
    ]
    assert here.cache.keys() == process_workers.cache.keys()
    assert {key: each.packed for key, each in here.cache.items()} == {
        key: each.packed for key, each in process_workers.cache.items()
    }
    assert here.children.requests == process_workers.children.requests


async def test_idle_worker_is_reused_by_the_next_run(
    process_workers: GraphFixture, workers: NodeWorkers
) -> None:
    put(process_workers)
    await process_workers.run(pixels(32))
    [first] = workers._idle
    await process_workers.run(pixels(33))
    assert workers._idle == [first]
    assert list((process_workers.folder / "scratch").iterdir()) == []


async def test_node_over_the_memory_limit_fails_its_run(process_workers: GraphFixture) -> None:
    graph: Graph = {
        "0": node("EmptyImage", width=8192, height=8192, batch_size=1, color=1),
        "out": node("PreviewImage", images=["0", 0]),
    }
    with pytest.raises(NodeError) as excinfo:
        await process_workers.run(graph)
    assert excinfo.value.message == (
        "EmptyImage (node 0): the node exceeds the memory of a node worker; its limit is 512 MiB "
        "(SIXFOLD_WORKER_MEMORY_BYTES)"
    )
    put(process_workers)
    await process_workers.run(pixels())


async def start_run(graph_fixture: GraphFixture, graph: Graph) -> asyncio.Task[Any]:
    """Start a run and wait until its first node is running."""
    began = asyncio.Event()

    def receive(event: Any) -> None:
        if event.type == "progress":
            began.set()

    verdict = validate(graph, registry.registry())
    run = asyncio.create_task(execute.execute(verdict, graph_fixture.location, receive))
    pending_task = asyncio.create_task(began.wait())
    await asyncio.wait({run, pending_task}, return_when=asyncio.FIRST_COMPLETED)
    pending_task.cancel()
    return run


LONG: Graph = {
    "0": node("EmptyImage", width=640, height=480, batch_size=30, color=1),
    "1": node("SaveWEBM", images=["0", 0], filename_prefix="x", codec="vp9", fps=24.0, crf=32.0),
}


async def test_killed_worker_fails_its_run_with_one_sentence(
    process_workers: GraphFixture, workers: NodeWorkers
) -> None:
    run = await start_run(process_workers, LONG)
    [worker] = workers._workers
    assert worker.pid is not None
    os.kill(worker.pid, 9)
    with pytest.raises(NodeError) as excinfo:
        await run
    assert isinstance(excinfo.value.reason, EngineError)
    assert excinfo.value.message == (
        "SaveWEBM (node 1): the node worker was killed by SIGKILL; its limit is 512 MiB "
        "(SIXFOLD_WORKER_MEMORY_BYTES)"
    )
    assert workers._workers == set()


async def test_a_canceled_run_ends_its_worker_at_once(
    process_workers: GraphFixture, workers: NodeWorkers
) -> None:
    run = await start_run(process_workers, LONG)
    [worker] = workers._workers
    pid = worker.pid
    assert pid is not None
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert workers._workers == set()
    assert workers._idle == []
