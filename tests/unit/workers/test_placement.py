"""Placement of runs: required hardware, failed workers, and capable workers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workers.ports import WorkerSpec
from sixfold.drivers.inline import InlineDriver, InlineWorker
from tests.harness.pipeline import HARDWARE, Options, running_pipeline
from tests.harness.waiting import wait_until


class Placing(InlineDriver):
    """Driver with a number of slots that records where each worker was placed."""

    def __init__(self, capacity: int = 9) -> None:
        super().__init__()
        self.started: list[str] = []
        self.capacity = asyncio.Semaphore(capacity)

    async def start(self, spec: WorkerSpec) -> InlineWorker:
        """A worker, once there is room."""
        await self.capacity.acquire()
        self.started.append(spec.hardware)
        return await super().start(spec)


async def test_worker_runs_on_the_hardware_of_its_runs(tmp_path: Path) -> None:
    driver = Placing()
    async with running_pipeline(tmp_path, Options(slots=2, driver=driver, placed=True)) as pipeline:
        submissions = [pipeline.run(hardware=HARDWARE if number % 2 else None) for number in range(12)]
        assert {ended.state for ended in await asyncio.gather(*submissions)} == {PredictionState.SUCCEEDED}
        assert set(driver.started) == {"", HARDWARE}
        assert len(driver.started) <= 4
        assert await pipeline.faults() == ()


async def test_single_server_runs_all_hardware_on_this_machine(tmp_path: Path) -> None:
    driver = Placing()
    async with running_pipeline(tmp_path, Options(slots=1, driver=driver)) as pipeline:
        for hardware in (HARDWARE, None, HARDWARE):
            assert (await pipeline.run(hardware=hardware)).state is PredictionState.SUCCEEDED
        assert driver.started == [""]


async def test_runs_succeed_if_a_worker_cannot_be_placed(tmp_path: Path) -> None:
    driver = Placing(capacity=1)
    async with running_pipeline(tmp_path, Options(slots=3, driver=driver, placed=True)) as pipeline:
        ended = await asyncio.gather(*(pipeline.run(extras={"n": number}) for number in range(9)))
        assert {prediction.state for prediction in ended} == {PredictionState.SUCCEEDED}
        assert driver.started == [""]


async def test_idle_worker_is_stopped_for_one_that_cannot_start(tmp_path: Path) -> None:
    driver = Placing(capacity=1)
    async with running_pipeline(tmp_path, Options(slots=3, driver=driver, placed=True)) as pipeline:
        await pipeline.run()
        slow = asyncio.create_task(pipeline.run("slow", extras={"seconds": 0}))
        (idle,) = driver.workers
        await wait_until(lambda: not idle.alive)
        driver.capacity.release()
        assert (await slow).state is PredictionState.SUCCEEDED


async def test_run_without_a_local_engine_stays_queued(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(slots=2)) as pipeline:
        pipeline.scheduler.can_run = lambda engine: engine != "slow"
        left = await pipeline.service.submit(pipeline.request("slow", extras={"seconds": 0}))
        assert (await pipeline.run()).state is PredictionState.SUCCEEDED
        assert (await pipeline.service.get(left.id, Tenant.of(left))).state is PredictionState.QUEUED
        pipeline.scheduler.can_run = lambda _engine: True
        assert (await pipeline.service.wait(left, 60)).state is PredictionState.SUCCEEDED
