"""Workers that wait for another machine: many concurrent runs, each with its own result."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.core.workers.ports import (
    Outcome,
    RunCompleted,
    RunFailed,
    RunStopped,
    Worker,
    WorkerLost,
    WorkerSpec,
)
from sixfold.core.workers.ports import WorkerStartFailed as StartFailed
from sixfold.drivers.inline import InlineDriver
from sixfold.drivers.remote import DriverSet, RemoteDriver, ServerServices
from sixfold.net.addresses import AllowList
from sixfold.net.clients import HttpClients
from sixfold.net.fetch import Fetcher
from tests.contract.test_driver import RecordedReports


class Content:
    """Something large that a run has read."""


FAR = "tests.fakes.engines:FarEngine"


@pytest.fixture
async def driver() -> AsyncIterator[RemoteDriver]:
    clients = HttpClients(Fetcher(AllowList.parse("")))
    keys: Mapping[str, str] = {"fal_key": "k-123"}
    result = RemoteDriver(
        ServerServices(clients, lambda name: keys.get(name, "")),
        failpoints={"failing": "fail", "crashing": "crash"},
    )
    yield result
    await result.close()
    await clients.aclose()


@pytest.fixture
async def worker(driver: RemoteDriver, tmp_path: Path) -> Worker:
    return await driver.start(WorkerSpec("far", FAR, 0, tmp_path / "scratch", max_tasks=3, remote=True))


async def run(
    worker: Worker, name: str = "t", model: str = "m", **inputs: object
) -> tuple[Outcome, RecordedReports]:
    reports = RecordedReports()
    return await worker.run(Task(name, model, inputs), reports.reports()), reports


async def start_runs(worker: Worker, name: str) -> tuple[asyncio.Task[Outcome], RecordedReports]:
    reports = RecordedReports()
    pending_task = asyncio.create_task(worker.run(Task(name, "m", {"seconds": 600}), reports.reports()))
    await reports.running.wait()
    return pending_task, reports


async def test_run_returns_its_file_and_provider_cost(worker: Worker, tmp_path: Path) -> None:
    outcome, response = await run(worker, "t1")
    assert isinstance(outcome, RunCompleted)
    assert [file.path.read_text() for file in outcome.files] == ["t1"]
    assert (outcome.data, outcome.quality, outcome.upstream_cost_micros) == ({"key": "k-123"}, "full", 1_500)
    assert response.lines == ["sent t1"]
    assert response.progress[-1] == 1
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == [outcome.files[0].path.name]


async def test_canceled_run_does_not_affect_others_of_the_worker(worker: Worker) -> None:
    (first, reports), (second, _) = await start_runs(worker, "a"), await start_runs(worker, "b")
    worker.cancel("a")
    assert await first == RunStopped()
    assert reports.lines == ["sent a", "canceled a"]
    assert not second.done()
    await worker.give_up("b")
    assert await second == RunStopped()
    assert worker.alive


async def test_canceled_wait_cancels_the_remote_run(worker: Worker) -> None:
    pending_task, response = await start_runs(worker, "a")
    pending_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending_task
    assert isinstance((await run(worker, "b"))[0], RunCompleted)
    assert response.lines == ["sent a", "canceled a"]


async def test_killed_worker_loses_its_runs_and_accepts_none(worker: Worker) -> None:
    pending_task, _ = await start_runs(worker, "a")
    await worker.kill()
    assert isinstance(await pending_task, WorkerLost)
    assert isinstance((await run(worker))[0], WorkerLost)


async def test_public_error_is_shown_and_private_one_is_hidden(worker: Worker) -> None:
    public, _ = await run(worker, **{"raise": "public"})
    private, _ = await run(worker, **{"raise": "private"})
    assert public == RunFailed("The provider account has no credit left.", public=True)
    assert isinstance(private, RunFailed)
    assert not private.public


async def test_a_failed_run_leaves_nothing_behind(
    worker: Any, monkeypatch: pytest.MonkeyPatch, without_gc: None
) -> None:
    contents: list[weakref.ref[Content]] = []

    async def fail(_task: Task, _context: Context) -> Result:
        content = Content()
        contents.append(weakref.ref(content))
        raise EngineError("no")

    monkeypatch.setattr(worker._engine, "run", fail)
    assert isinstance((await run(worker))[0], RunFailed)
    # The last reference is in a callback of the event loop.
    await asyncio.sleep(0)
    assert [content() for content in contents] == [None]


async def test_failpoints_reach_remote_engines(worker: Worker) -> None:
    failed, _ = await run(worker, model="failing")
    crashed, _ = await run(worker, model="crashing")
    assert isinstance(failed, RunFailed)
    assert isinstance(crashed, WorkerLost)


async def test_tasks_beyond_the_worker_slots_are_refused(worker: Worker) -> None:
    runs = [await start_runs(worker, name) for name in "abc"]
    with pytest.raises(RuntimeError, match="3"):
        await run(worker, "d")
    await worker.kill()
    await asyncio.gather(*(pending_task for pending_task, _ in runs))


@pytest.mark.parametrize("factory", ["sixfold.no_such_module:Engine", "tests.fakes.engines:Nothing"])
async def test_engine_that_cannot_be_created_is_named(
    driver: RemoteDriver, tmp_path: Path, factory: str
) -> None:
    with pytest.raises(StartFailed, match=factory.replace(".", r"\.")):
        await driver.start(WorkerSpec("none", factory, 0, tmp_path, remote=True))


async def test_spec_selects_its_driver(driver: RemoteDriver, tmp_path: Path) -> None:
    both = DriverSet(InlineDriver(), driver)
    far = await both.start(WorkerSpec("far", FAR, 0, tmp_path, max_tasks=2, remote=True))
    near = await both.start(WorkerSpec("echo", "tests.fakes.engines:EchoEngine", 0, tmp_path))
    assert type(far).__name__ == "RemoteWorker"
    assert type(near).__name__ == "InlineWorker"
    await both.close()
    assert not far.alive
    assert not near.alive
