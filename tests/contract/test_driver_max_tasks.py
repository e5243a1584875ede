"""Workers that run several tasks at once: the contract of local drivers for engines with batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from sixfold.core.catalog.engines import Task
from sixfold.core.workers.ports import (
    Driver,
    Outcome,
    RunCompleted,
    RunFailed,
    RunStopped,
    Worker,
    WorkerLost,
    WorkerSpec,
)
from sixfold.drivers.inline import InlineDriver
from sixfold.drivers.process import ProcessDriver, ProcessTimeouts
from tests.contract.test_driver import RecordedReports

MAX_TASKS = 4
# A loaded machine must not end a worker before it has received the cancelation.
FACTORIES: Mapping[str, Callable[[], Driver]] = {
    "inline": lambda: InlineDriver(cancel_seconds=60),
    "process": lambda: ProcessDriver(preload=(), timeouts=ProcessTimeouts(60, 60, 1)),
}


@pytest.fixture(params=sorted(FACTORIES))
async def driver(request: pytest.FixtureRequest) -> AsyncIterator[Driver]:
    result = FACTORIES[request.param]()
    yield result
    await result.close()


async def singers(driver: Driver, scratch: Path) -> Worker:
    factory = "tests.fakes.engines:BatchEngine"
    spec = WorkerSpec("batch", factory, 1 << 30, scratch, options={"key": "c minor"}, max_tasks=MAX_TASKS)
    return await driver.start(spec)


class TaskRuns:
    """A worker whose first task waits until all others are in its inbox."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.reports: dict[str, RecordedReports] = {}
        self.runs: dict[str, asyncio.Task[Outcome]] = {}

    def send(self, name: str, **inputs: object) -> None:
        self.reports[name] = RecordedReports()
        run = self.worker.run(Task(name, "m", inputs), self.reports[name].reports())
        self.runs[name] = asyncio.create_task(run)

    async def hold(self) -> None:
        self.send("holder", held=True)
        await self.reports["holder"].running.wait()

    async def release(self) -> dict[str, Outcome]:
        # Send every run to the worker, which receives its messages in order: the cancelation is the last.
        await asyncio.sleep(0)
        self.worker.cancel("holder")
        return dict(zip(self.runs, await asyncio.gather(*self.runs.values()), strict=True))


@pytest.fixture
async def runs(driver: Driver, tmp_path: Path) -> TaskRuns:
    task_runs = TaskRuns(await singers(driver, tmp_path / "scratch"))
    await task_runs.hold()
    return task_runs


def together(outcome: Outcome) -> int:
    assert isinstance(outcome, RunCompleted)
    return int(outcome.data["together"])


async def test_tasks_of_one_shape_share_a_batch_with_own_files(runs: TaskRuns) -> None:
    for name in ("a", "b", "c"):
        runs.send(name, shape="square")
    outcomes = await runs.release()
    assert [together(outcomes[name]) for name in ("holder", "a", "b", "c")] == [1, 3, 3, 3]
    texts = {name: outcome.files[0].path.read_text() for name, outcome in outcomes.items()}  # pyright: ignore[reportAttributeAccessIssue] - Completed, as asserted
    assert texts == {"holder": "alone: holder", **{n: f"together: {n}" for n in ("a", "b", "c")}}


async def test_task_of_another_shape_runs_in_another_batch(runs: TaskRuns) -> None:
    runs.send("a", shape="square")
    runs.send("wide", shape="wide")
    runs.send("b", shape="square")
    outcomes = await runs.release()
    assert [together(outcomes[name]) for name in ("a", "wide", "b")] == [2, 1, 2]


async def test_each_run_gets_only_its_own_log(runs: TaskRuns) -> None:
    runs.send("a", shape="square")
    runs.send("b", shape="square")
    await runs.release()
    assert runs.reports["a"].lines == ["a runs"]
    assert runs.reports["b"].lines == ["b runs"]


async def test_failed_task_does_not_affect_its_batch(runs: TaskRuns) -> None:
    runs.send("a", shape="square")
    runs.send("b", shape="square", fails=True)
    outcomes = await runs.release()
    assert together(outcomes["a"]) == 2
    assert outcomes["b"] == RunFailed("b failed.", public=True)


async def test_canceled_task_does_not_affect_its_batch(runs: TaskRuns) -> None:
    runs.send("a", shape="square")
    runs.send("b", shape="square")
    await asyncio.sleep(0)
    runs.worker.cancel("b")
    outcomes = await runs.release()
    assert together(outcomes["a"]) == 2
    assert outcomes["b"] == RunStopped()


async def test_a_killed_worker_loses_all_its_runs(runs: TaskRuns) -> None:
    runs.send("a", shape="square")
    await asyncio.sleep(0)
    await runs.worker.kill()
    outcomes = await runs.release()
    assert {type(outcome) for outcome in outcomes.values()} == {WorkerLost}


async def test_a_task_above_max_tasks_is_refused(runs: TaskRuns) -> None:
    for name in ("a", "b", "c"):
        runs.send(name, shape="square")
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="4"):
        await runs.worker.run(Task("d", "m", {}), RecordedReports().reports())
    await runs.release()


async def test_options_reach_the_engine(runs: TaskRuns) -> None:
    outcome = (await runs.release())["holder"]
    assert isinstance(outcome, RunCompleted)
    assert outcome.data["key"] == "c minor"
