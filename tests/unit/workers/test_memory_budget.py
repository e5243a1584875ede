"""Memory budget of the machine: models that do not fit together run in turn."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workers import memory_budget as machines
from sixfold.core.workers.memory_budget import MemoryBudget
from sixfold.core.workers.ports import WorkerSpec
from sixfold.drivers import process_memory
from sixfold.drivers.inline import InlineDriver, InlineWorker
from sixfold.drivers.process import ProcessDriver
from tests.harness.pipeline import Options, PipelineFixture, models, running_pipeline
from tests.harness.waiting import wait_until

GIB = 2**30
ENGINES = {"echo": "EchoEngine", "slow": "SlowEngine", "other": "EchoEngine"}


class Counting(InlineDriver):
    """Driver that records which engines had a worker at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.beside: list[list[str]] = []
        self._live: dict[InlineWorker, str] = {}

    async def start(self, spec: WorkerSpec) -> InlineWorker:
        worker = await super().start(spec)
        self._live = {other: name for other, name in self._live.items() if other.alive} | {
            worker: spec.engine
        }
        self.beside.append(sorted(self._live.values()))
        return worker


def size_of(driver: Counting, gigabytes: int = 16, **sizes: float) -> Options:
    rows = {engine: {"ram_gb": size} for engine, size in sizes.items()}
    return Options(
        slots=2, driver=driver, machine=MemoryBudget(gigabytes * GIB), models=models(ENGINES, rows)
    )


async def running(pipeline: PipelineFixture, model: str) -> str:
    """Start a long run; return its id."""
    prediction = await pipeline.service.submit(pipeline.request(model, extras={"seconds": 600}))
    async for _ in pipeline.service.events(prediction):
        if (await pipeline.service.get_any(prediction.id)).state is PredictionState.RUNNING:
            break
    return prediction.id


async def cramp(pipeline: PipelineFixture) -> None:
    """Wait until an engine waits for memory."""
    await wait_until(lambda: pipeline.scheduler.memory()[2])


async def test_two_models_that_do_not_fit_together_run_in_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sixfold.scheduler")
    driver = Counting()
    async with running_pipeline(tmp_path, size_of(driver, slow=12, echo=12)) as pipeline:
        first = await running(pipeline, "slow")
        second = await pipeline.service.submit(pipeline.request("echo"))
        await cramp(pipeline)
        assert (await pipeline.service.get_any(second.id)).state is PredictionState.QUEUED
        assert pipeline.scheduler.memory() == (12 * GIB, 16 * GIB, 1)
        await pipeline.service.cancel(first, Tenant(pipeline.payer.id))
        assert (await pipeline.service.wait(second, 60)).state is PredictionState.SUCCEEDED
        assert driver.beside == [["slow"], ["echo"]]
        assert pipeline.scheduler.memory() == (12 * GIB, 16 * GIB, 0)
        assert [each.message for each in caplog.records].count("a worker waits for memory") == 1
        assert await pipeline.faults() == ()


async def test_run_that_waits_longest_for_memory_starts_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "PATIENCE_SECONDS", 0.0)
    driver = Counting()
    async with running_pipeline(tmp_path, size_of(driver, slow=12, echo=12, other=1)) as pipeline:
        first = await running(pipeline, "slow")
        large = await pipeline.service.submit(pipeline.request("echo"))
        await cramp(pipeline)
        small = await pipeline.service.submit(pipeline.request("other"))
        await pipeline.service.cancel(first, Tenant(pipeline.payer.id))
        assert (await pipeline.service.wait(large, 60)).state is PredictionState.SUCCEEDED
        assert (await pipeline.service.wait(small, 60)).state is PredictionState.SUCCEEDED
        assert driver.beside == [["slow"], ["echo"], ["echo", "other"]]


async def test_run_does_not_wait_for_a_canceled_larger_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "PATIENCE_SECONDS", 0.0)
    async with running_pipeline(tmp_path, size_of(Counting(), slow=12, echo=12, other=1)) as pipeline:
        await running(pipeline, "slow")
        large = await pipeline.service.submit(pipeline.request("echo"))
        await cramp(pipeline)
        await pipeline.service.cancel(large.id, Tenant(pipeline.payer.id))
        assert (await pipeline.run("other")).state is PredictionState.SUCCEEDED
        assert pipeline.scheduler.memory()[2] == 0


async def test_run_that_fits_in_memory_does_not_wait(tmp_path: Path) -> None:
    driver = Counting()
    async with running_pipeline(tmp_path, size_of(driver, slow=12, echo=3)) as pipeline:
        await running(pipeline, "slow")
        assert (await pipeline.run()).state is PredictionState.SUCCEEDED
        assert driver.beside[-1] == ["echo", "slow"]


async def test_longest_idle_workers_stop_and_no_more_than_needed(tmp_path: Path) -> None:
    driver = Counting()
    async with running_pipeline(tmp_path, size_of(driver, slow=6, echo=6, other=6)) as pipeline:
        await pipeline.run("slow", extras={"seconds": 0})
        await pipeline.run("echo")
        assert (await pipeline.run("other")).state is PredictionState.SUCCEEDED
        assert driver.beside == [["slow"], ["echo", "slow"], ["echo", "other"]]


async def test_run_larger_than_the_memory_runs_alone(tmp_path: Path) -> None:
    driver = Counting()
    async with running_pipeline(tmp_path, size_of(driver, slow=1, echo=64)) as pipeline:
        await pipeline.run("slow", extras={"seconds": 0})
        assert (await pipeline.run()).state is PredictionState.SUCCEEDED
        assert driver.beside == [["slow"], ["echo"]]


async def test_idle_worker_stays_while_the_queue_is_empty(tmp_path: Path) -> None:
    driver = Counting()
    async with running_pipeline(tmp_path, size_of(driver, slow=10, echo=6)) as pipeline:
        await pipeline.run("slow", extras={"seconds": 0})
        for number in range(3):
            await pipeline.run(extras={"n": number})
        assert driver.beside == [["slow"], ["echo", "slow"]]


async def test_measured_memory_of_a_worker_is_used_later(tmp_path: Path) -> None:
    async with running_pipeline(
        tmp_path, Options(driver=ProcessDriver(), machine=MemoryBudget(16 * GIB))
    ) as pipeline:
        await pipeline.run()
        await wait_until(lambda: pipeline.scheduler.memory()[0])


def test_memory_is_the_smallest_limit_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    (tmp_path / "max").write_text("max\n")
    (tmp_path / "limited").write_text(f"{2 * GIB}\n")
    none, limited = str(tmp_path / "max"), str(tmp_path / "limited")
    assert process_memory.for_workers(tmp_path, (none, "/none")) == int(16 * GIB * 0.9)
    assert process_memory.for_workers(tmp_path, (none, limited)) == int(2 * GIB * 0.9)
    assert process_memory.for_workers(tmp_path / "elsewhere", ()) == 0


def test_memory_of_a_family_is_that_of_its_largest_model(tmp_path: Path) -> None:
    for name, size in (("small", 10), ("large", 100), (".half", 1000)):
        (tmp_path / name / "unet").mkdir(parents=True)
        (tmp_path / name / "unet" / "weights").write_bytes(bytes(size))
    assert process_memory.folder(tmp_path) == 100
    assert process_memory.folder(tmp_path / "none") == 0
