"""Short runs are claimed before a worker is free, and returned if none becomes free soon."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.events import StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workers import pool as workers_pool
from tests.harness.pipeline import Options, PipelineFixture, running_pipeline

SHORT, LONG = {"seconds": 0}, {"seconds": 60}
ONE = Options(slots=1)


@pytest.fixture(autouse=True)
def any_run_is_brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    # The result must not depend on the load of the machine.
    monkeypatch.setattr(workers_pool, "BRISK_SECONDS", 60)


@asynccontextmanager
async def _busy(folder: Path, options: Options = ONE) -> AsyncIterator[tuple[PipelineFixture, Prediction]]:
    """Run a pipeline whose one worker has finished a short run and is in a long one."""
    async with running_pipeline(folder, options) as pipeline:
        assert (await pipeline.run("slow", extras=SHORT)).state is PredictionState.SUCCEEDED
        long = await pipeline.service.submit(pipeline.request("slow", extras=LONG))
        await _until(pipeline, long, PredictionState.RUNNING)
        yield pipeline, long


async def _until(pipeline: PipelineFixture, prediction: Prediction, state: PredictionState) -> Prediction:
    async with asyncio.timeout(30):
        async for event in pipeline.service.events(prediction):
            if isinstance(event, StateChanged) and event.prediction.state is state:
                return event.prediction
    raise AssertionError(f"it never was {state}")


async def test_short_run_is_claimed_while_its_worker_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_pool, "TURN_SECONDS", 60)
    async with _busy(tmp_path) as (pipeline, long):
        short = await pipeline.service.submit(pipeline.request("slow", extras=SHORT))
        assert (await _until(pipeline, short, PredictionState.RUNNING)).attempt == 1
        await pipeline.service.cancel(long.id, Tenant(pipeline.payer.id))
        ended = await pipeline.service.wait(short, 60)
        assert (ended.state, ended.attempt) == (PredictionState.SUCCEEDED, 1)
        assert await pipeline.faults() == ()


async def test_idle_time_follows_the_run_claimed_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_pool, "TURN_SECONDS", 60)
    messages: list[str] = []
    async with _busy(tmp_path, dataclasses.replace(ONE, idle_of=messages.append)) as (pipeline, long):
        short = await pipeline.service.submit(pipeline.request("slow", extras=SHORT))
        await _until(pipeline, short, PredictionState.RUNNING)
        assert messages == ["slow", "slow"], "by the two that have had the worker"
        await pipeline.service.cancel(long.id, Tenant(pipeline.payer.id))
        await pipeline.service.wait(short, 60)
        assert messages == ["slow", "slow", "slow"]


async def test_run_claimed_too_early_is_queued_again_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_pool, "TURN_SECONDS", 0.2)
    async with _busy(tmp_path) as (pipeline, long):
        short = await pipeline.service.submit(pipeline.request("slow", extras=SHORT))
        await _until(pipeline, short, PredictionState.RUNNING)
        backend = await _until(pipeline, short, PredictionState.QUEUED)
        assert (backend.attempt, backend.started_at, backend.created_at) == (0, None, short.created_at)
        await pipeline.service.cancel(long.id, Tenant(pipeline.payer.id))
        ended = await pipeline.service.wait(short, 60)
        assert (ended.state, ended.attempt) == (PredictionState.SUCCEEDED, 1)
        assert await pipeline.faults() == ()


async def test_run_claimed_early_stays_running_on_a_slow_machine(tmp_path: Path) -> None:
    async with _busy(tmp_path) as (pipeline, long):
        short = await pipeline.service.submit(pipeline.request("slow", extras=SHORT))
        await _until(pipeline, short, PredictionState.RUNNING)
        # Four short runs and their commits take this long on a machine with many busy processes.
        await asyncio.sleep(0.5)
        assert (await pipeline.service.get_any(short.id)).state is PredictionState.RUNNING
        await pipeline.service.cancel(long.id, Tenant(pipeline.payer.id))
        assert (await pipeline.service.wait(short, 60)).state is PredictionState.SUCCEEDED


async def test_run_claimed_early_is_canceled_for_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_pool, "TURN_SECONDS", 0.2)
    async with _busy(tmp_path) as (pipeline, long):
        short = await pipeline.service.submit(pipeline.request("slow", extras=SHORT))
        await _until(pipeline, short, PredictionState.RUNNING)
        await pipeline.service.cancel(short.id, Tenant(pipeline.payer.id))
        ended = await pipeline.service.wait(short, 60)
        assert (ended.state, ended.cost) == (PredictionState.CANCELED, 0)
        assert (await pipeline.service.get_any(long.id)).state is PredictionState.RUNNING
        assert await pipeline.faults() == ()


async def test_no_early_claim_while_another_engine_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_pool, "TURN_SECONDS", 60)
    async with _busy(tmp_path) as (pipeline, long):
        other = await pipeline.service.submit(pipeline.request())
        short = await pipeline.service.submit(pipeline.request("slow", extras=SHORT))
        await pipeline.service.cancel(long.id, Tenant(pipeline.payer.id))
        first, second = [await pipeline.service.wait(each, 60) for each in (other, short)]
        assert first.started_at is not None
        assert second.started_at is not None
        assert first.started_at < second.started_at


async def test_run_claimed_early_runs_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_pool, "TURN_SECONDS", 60)
    async with _busy(tmp_path) as (pipeline, _):
        short = await pipeline.service.submit(pipeline.request("slow", extras=SHORT))
        await _until(pipeline, short, PredictionState.RUNNING)
    async with running_pipeline(tmp_path, Options(slots=2)) as later:
        assert (await later.service.wait(short, 60)).state is PredictionState.SUCCEEDED
        assert await later.faults() == ()
