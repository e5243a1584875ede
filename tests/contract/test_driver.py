"""Contract of every driver; container and Ray are rows of `MAKERS`."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import pytest

from sixfold.core.catalog.engines import Task
from sixfold.core.workers.ports import (
    Driver,
    RunCompleted,
    RunFailed,
    RunReports,
    RunStopped,
    Worker,
    WorkerLost,
    WorkerSpec,
    WorkerStartFailed,
)
from sixfold.drivers.inline import InlineDriver
from sixfold.drivers.process import ProcessDriver, ProcessTimeouts
from sixfold.worker.protocol import Failpoint

FAILPOINTS: Mapping[str, Failpoint] = {"failing": "fail", "hanging": "hang", "crashing": "crash"}
FACTORIES: Mapping[str, Callable[[], Driver]] = {
    "inline": lambda: InlineDriver(failpoints=FAILPOINTS, cancel_seconds=0.2),
    "process": lambda: ProcessDriver(failpoints=FAILPOINTS, preload=(), timeouts=ProcessTimeouts(60, 0.2, 1)),
}


@dataclass
class RecordedReports:
    """The reports of one run, and an event for the first progress."""

    progress: list[float] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    running: asyncio.Event = field(default_factory=asyncio.Event)

    def reports(self) -> RunReports:
        return RunReports(self._progress, self.lines.append)

    def _progress(self, fraction: float) -> None:
        self.progress.append(fraction)
        self.running.set()


@pytest.fixture(params=sorted(FACTORIES))
async def driver(request: pytest.FixtureRequest) -> AsyncIterator[Driver]:
    result = FACTORIES[request.param]()
    yield result
    await result.close()


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


def spec(engine: str, scratch: Path, memory_bytes: int = 1 << 30) -> WorkerSpec:
    return WorkerSpec(engine.lower(), f"tests.fakes.engines:{engine}Engine", memory_bytes, scratch)


async def start_run(worker: Worker, task: Task) -> tuple[asyncio.Task[object], RecordedReports]:
    """Start a run of a slow engine and wait until it is running."""
    reports = RecordedReports()
    run = asyncio.create_task(worker.run(task, reports.reports()))
    await reports.running.wait()
    return run, reports


async def test_run_returns_files_and_data(driver: Driver, scratch: Path, tmp_path: Path) -> None:
    source = tmp_path / "input.bin"
    source.write_bytes(b"x" * 77)
    worker = await driver.start(spec("Echo", scratch))
    inputs = {"bytes": [10, 300_000, 0], "prompt": "a fox", "size": [1, 2], "ratio": 0.5, "none": None}
    outcome = await worker.run(Task("t1", "ra1", inputs, {"image": source}), RecordedReports().reports())
    assert isinstance(outcome, RunCompleted)
    assert [file.path.stat().st_size for file in outcome.files] == [10, 300_000, 0]
    assert [file.info for file in outcome.files] == [{"index": 0}, {"index": 1}, {"index": 2}]
    assert {file.path.parent for file in outcome.files} == {scratch}
    assert {file.path.stat().st_mode & 0o777 for file in outcome.files} == {0o600}
    assert {file.content_type for file in outcome.files} == {"application/octet-stream"}
    assert outcome.data == {"inputs": inputs, "files": {"image": 77}, "model": "ra1"}
    assert (outcome.quality, outcome.engine_version) == ("full", "1")
    assert outcome.run_us >= 0


async def test_a_worker_cannot_name_a_stored_file(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Echo", scratch))
    outcome = await worker.run(Task("a", "m", {"stored": ["key"]}), RecordedReports().reports())
    assert isinstance(outcome, RunCompleted)
    assert [(file.stored, file.path.exists()) for file in outcome.files] == [(None, False)]


async def test_files_of_two_runs_have_different_paths(driver: Driver, scratch: Path) -> None:
    workers = [await driver.start(spec("Echo", scratch)) for _ in range(2)]
    paths: list[Path] = []
    for worker in workers * 2:
        outcome = await worker.run(Task("same", "m", {"bytes": [3]}), RecordedReports().reports())
        assert isinstance(outcome, RunCompleted)
        paths += [file.path for file in outcome.files]
    assert len(set(paths)) == 4


async def test_progress_rises_and_ends_at_one(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Echo", scratch))
    for steps in (0, 1, 5000):
        reports = RecordedReports()
        await worker.run(Task("t", "m", {"steps": steps}), reports.reports())
        assert reports.progress == sorted(set(reports.progress))
        assert reports.progress[-1] == 1
        assert len(reports.progress) < 200, "progress is throttled at the source"


async def test_log_lines_arrive_in_order(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Echo", scratch))
    reports = RecordedReports()
    lines = [f"line {number}" for number in range(500)]
    await worker.run(Task("t", "m", {"log": [*lines, "two\nlines"]}), reports.reports())
    assert reports.lines == [*lines, "two", "lines"]


@pytest.mark.parametrize(
    ("kind", "message", "public"),
    [
        ("public", "No face was found in the image.", True),
        ("private", "ValueError: an internal detail", False),
        ("memory", "The model ran out of memory.", True),
    ],
)
async def test_a_raising_engine_fails_its_run_only(
    driver: Driver, scratch: Path, kind: str, message: str, public: bool
) -> None:
    worker = await driver.start(spec("Echo", scratch))
    outcome = await worker.run(Task("t", "m", {"raise": kind, "bytes": [5]}), RecordedReports().reports())
    assert isinstance(outcome, RunFailed)
    assert (outcome.message, outcome.public) == (message, public)
    assert ("Traceback" in outcome.detail) is (kind == "private")
    assert leftovers(scratch) == []
    assert isinstance(await worker.run(Task("t", "m", {}), RecordedReports().reports()), RunCompleted)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({str(number): number for number in range(100_001)}, "an object must have at most 100,000 members"),
        (reduce(lambda inner, _: [inner], range(99), 0), "a result must have at most 100 nesting levels"),
    ],
    ids=["members", "levels"],
)
async def test_a_result_above_a_limit_fails_its_run_only(
    driver: Driver, scratch: Path, value: object, problem: str
) -> None:
    worker = await driver.start(spec("Echo", scratch))
    inputs = {"bytes": [5], "value": value}
    outcome = await worker.run(Task("t", "m", inputs), RecordedReports().reports())
    message = f"The model returned too much: {problem}."
    assert outcome == RunFailed(message, public=True)
    assert isinstance(await worker.run(Task("t", "m", {}), RecordedReports().reports()), RunCompleted)
    assert leftovers(scratch) == []


def remaining_files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def leftovers(scratch: Path) -> list[str]:
    """Return the files in scratch, except a live worker's temporary folder."""
    return [path.name for path in scratch.rglob("*") if path.is_file()]


async def test_unserializable_task_is_a_failure(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Echo", scratch))
    outcome = await worker.run(Task("t", "m", {"object": object()}), RecordedReports().reports())
    assert isinstance(outcome, RunFailed)
    assert not outcome.public
    assert isinstance(await worker.run(Task("t", "m", {}), RecordedReports().reports()), RunCompleted)


async def test_canceled_run_stops_and_its_worker_continues(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Slow", scratch))
    run, _ = await start_run(worker, Task("t1", "m", {}))
    worker.cancel("another")
    worker.cancel("t1")
    worker.cancel("t1")
    assert await run == RunStopped()
    assert worker.alive
    # The cancellation is too late, and must not affect the next run.
    worker.cancel("t1")
    assert isinstance(
        await worker.run(Task("t1", "m", {"seconds": 0}), RecordedReports().reports()), RunCompleted
    )


async def test_run_that_ignores_cancelation_stops_with_its_worker(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Slow", scratch))
    run, _ = await start_run(worker, Task("t1", "m", {"stubborn": True, "seconds": 5}))
    worker.cancel("t1")
    assert await run == RunStopped()
    assert not worker.alive
    assert leftovers(scratch) == []


async def test_a_killed_worker_loses_its_run(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Slow", scratch))
    run, _ = await start_run(worker, Task("t", "m", {}))
    await worker.kill()
    await worker.kill()
    assert await run == WorkerLost("the worker was killed")
    assert not worker.alive
    assert leftovers(scratch) == []


async def test_a_crash_loses_the_run_and_a_new_worker_serves(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Echo", scratch))
    outcome = await worker.run(Task("t", "crashing", {}), RecordedReports().reports())
    assert isinstance(outcome, WorkerLost)
    assert not worker.alive
    assert isinstance(await worker.run(Task("t", "m", {}), RecordedReports().reports()), WorkerLost)
    second_worker = await driver.start(spec("Echo", scratch))
    assert isinstance(await second_worker.run(Task("t", "m", {}), RecordedReports().reports()), RunCompleted)


async def test_failpoints_fail_and_hang_a_run(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Echo", scratch))
    outcome = await worker.run(Task("t", "failing", {}), RecordedReports().reports())
    assert isinstance(outcome, RunFailed)
    run = asyncio.create_task(worker.run(Task("t2", "hanging", {}), RecordedReports().reports()))
    await asyncio.sleep(0)
    worker.cancel("t2")
    assert await run == RunStopped()
    run = asyncio.create_task(worker.run(Task("t3", "hanging", {}), RecordedReports().reports()))
    await asyncio.sleep(0)
    await worker.kill()
    assert isinstance(await run, WorkerLost)


async def test_two_workers_run_at_once(driver: Driver, scratch: Path) -> None:
    workers = [await driver.start(spec("Slow", scratch)) for _ in range(2)]
    runs = [await start_run(worker, Task(f"t{worker.id}", "m", {})) for worker in workers]
    for worker, (run, _) in zip(workers, runs, strict=True):
        worker.cancel(f"t{worker.id}")
        assert await run == RunStopped()


async def test_stopping_is_idempotent_and_final(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Echo", scratch))
    assert worker.alive
    await worker.stop()
    await worker.stop()
    await worker.kill()
    assert not worker.alive
    assert isinstance(await worker.run(Task("t", "m", {}), RecordedReports().reports()), WorkerLost)
    assert remaining_files(scratch) == []


async def test_stop_lets_a_short_run_complete(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Slow", scratch))
    run, _ = await start_run(worker, Task("t", "m", {"seconds": 0.02}))
    await worker.stop()
    assert isinstance(await run, RunCompleted)


async def test_engine_that_cannot_start_is_reported(driver: Driver, scratch: Path) -> None:
    with pytest.raises(WorkerStartFailed, match="the weights are missing"):
        await driver.start(spec("Broken", scratch))
    with pytest.raises(WorkerStartFailed, match="no_such_module"):
        await driver.start(WorkerSpec("none", "sixfold.no_such_module:Engine", 0, scratch))
    with pytest.raises(WorkerStartFailed, match="Nothing"):
        await driver.start(WorkerSpec("none", "tests.fakes.engines:Nothing", 0, scratch))
    assert leftovers(scratch) == []


async def test_run_of_a_canceled_caller_leaves_no_file(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Slow", scratch))
    run, _ = await start_run(worker, Task("t", "m", {}))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await worker.stop()
    assert leftovers(scratch) == []


async def test_a_closed_driver_has_no_workers_and_starts_none(driver: Driver, scratch: Path) -> None:
    worker = await driver.start(spec("Slow", scratch))
    run, _ = await start_run(worker, Task("t", "m", {}))
    await driver.close()
    await driver.close()
    assert isinstance(await run, WorkerLost)
    assert not worker.alive
    with pytest.raises(WorkerStartFailed):
        await driver.start(spec("Echo", scratch))


async def test_worker_starts_leak_no_file_descriptor(driver: Driver, scratch: Path) -> None:
    # The zygote opens its own descriptors at the first start.
    await (await driver.start(spec("Echo", scratch))).stop()
    before = descriptors()
    for number in range(30):
        worker = await driver.start(spec("Echo", scratch))
        assert isinstance(await worker.run(Task("t", "m", {}), RecordedReports().reports()), RunCompleted)
        await (worker.stop() if number % 2 else worker.kill())
    assert descriptors() == before


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts, and nothing else


async def test_drivers_have_the_signatures_of_the_port(driver: Driver, scratch: Path) -> None:
    for name, port in inspect.getmembers(Driver, inspect.isfunction):
        if not name.startswith("_"):
            assert (
                inspect.signature(getattr(type(driver), name)).parameters
                == inspect.signature(port).parameters
            )
    worker = await driver.start(spec("Echo", scratch))
    for name, port in inspect.getmembers(Worker, inspect.isfunction):
        if not name.startswith("_"):
            assert list(inspect.signature(getattr(type(worker), name)).parameters) == list(
                inspect.signature(port).parameters
            )
