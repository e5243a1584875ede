"""Engines with several concurrent runs: how the scheduler distributes runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions import queries
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.drivers.inline import InlineDriver
from sixfold.drivers.remote import DriverSet, RemoteDriver, ServerServices
from sixfold.net.addresses import AllowList
from sixfold.net.clients import HttpClients
from sixfold.net.fetch import Fetcher
from tests.harness.pipeline import PRICE, Options, PipelineFixture, models, running_pipeline

DAY_US = 86_400_000_000
FACTS: Mapping[str, Mapping[str, Any]] = {
    "batch": {"max_tasks": 4, "concurrency": 1, "options": {"key": "d"}},
    "far": {"max_tasks": 3, "concurrency": 1, "kind": "provider"},
}


def remote() -> RemoteDriver:
    clients = HttpClients(Fetcher(AllowList.parse("")))
    return RemoteDriver(ServerServices(clients, lambda name: f"the {name}"))


def options(**changes: Any) -> Options:
    engines = {"echo": "EchoEngine", "slow": "SlowEngine", "batch": "BatchEngine", "far": "FarEngine"}
    driver = DriverSet(InlineDriver(), remote())
    return Options(driver=driver, models=models(engines, FACTS), **changes)


@pytest.fixture
async def pipeline(tmp_path: Path) -> AsyncIterator[PipelineFixture]:
    async with running_pipeline(tmp_path, options(slots=1)) as result:
        yield result


async def ends(pipeline: PipelineFixture, *waiting: Prediction) -> list[Prediction]:
    return await asyncio.gather(*(pipeline.service.wait(prediction, 60) for prediction in waiting))


def together(ended: Prediction) -> int:
    assert ended.state is PredictionState.SUCCEEDED, ended.error
    assert ended.output is not None
    return int(ended.output.data["together"])


async def test_runs_that_wait_for_one_worker_form_a_batch(pipeline: PipelineFixture, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = await pipeline.service.submit(pipeline.request("batch", extras={"gate": str(gate)}))
    others = [
        await pipeline.service.submit(pipeline.request("batch", extras={"shape": "s"})) for _ in range(3)
    ]
    for prediction in others:
        await is_running(pipeline, prediction)
    gate.touch()
    assert together((await ends(pipeline, first))[0]) == 1
    ended = await ends(pipeline, *others)
    assert sorted(map(together, ended)) in ([1, 2, 2], [3, 3, 3]), "each told how many sang"
    assert {prediction.output.data["key"] for prediction in ended if prediction.output} == {"d"}
    assert await pipeline.faults() == ()
    assert (await pipeline.account()).posted == 1_000_000 - 4 * PRICE


async def test_a_worker_with_max_tasks_uses_one_slot(pipeline: PipelineFixture, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    submissions = [pipeline.request("batch", extras={"gate": str(gate)}) for _ in range(6)]
    waiting = [await pipeline.service.submit(request) for request in submissions]
    blocked = await pipeline.service.submit(pipeline.request("echo"))
    await is_running(pipeline, waiting[0])
    assert pipeline.scheduler.snapshot()["batch"] == {"busy": 1, "idle": 0}
    assert (
        await pipeline.service.get(blocked.id, Tenant(pipeline.payer.id))
    ).state is PredictionState.QUEUED, "the only slot is taken"
    gate.touch()
    assert {prediction.state for prediction in await ends(pipeline, *waiting, blocked)} == {
        PredictionState.SUCCEEDED
    }


async def is_running(pipeline: PipelineFixture, prediction: Prediction) -> None:
    async for _ in pipeline.service.events(prediction):
        current = await pipeline.service.get(prediction.id, Tenant(pipeline.payer.id))
        if current.state in {PredictionState.RUNNING, PredictionState.SUCCEEDED}:
            return


async def test_remote_runs_take_no_slot_of_this_machine(pipeline: PipelineFixture) -> None:
    away = [await pipeline.service.submit(pipeline.request("far", extras={"seconds": 600})) for _ in range(3)]
    for prediction in away:
        await is_running(pipeline, prediction)
    near = await pipeline.run("echo")
    assert near.state is PredictionState.SUCCEEDED, "three wait elsewhere and the one slot is free"
    for prediction in away:
        await pipeline.service.cancel(prediction.id, Tenant(pipeline.payer.id))
    assert {prediction.state for prediction in await ends(pipeline, *away)} == {PredictionState.CANCELED}
    assert (await pipeline.account()).posted == 1_000_000 - PRICE
    assert (await pipeline.account()).held == 0


async def test_cost_of_a_provider_is_stored_beside_the_price(pipeline: PipelineFixture) -> None:
    ended = await pipeline.run("far")
    assert ended.state is PredictionState.SUCCEEDED
    assert ended.output is not None
    assert ended.output.data == {"key": "the fal_key"}
    spent = await pipeline.database.read(queries.by_engine(DAY_US))
    assert [(cost.engine, cost.runs, cost.earned, cost.spent, cost.runs_with_cost) for cost in spent] == [
        ("far", 1, PRICE, 1_500, 1)
    ]


async def test_remote_run_above_its_time_limit_ends_alone(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, options(slots=1, run_limit_seconds=0.5)) as pipeline:
        slow = await pipeline.service.submit(pipeline.request("far", extras={"seconds": 600}))
        await is_running(pipeline, slow)
        quick = await pipeline.run("far")
        assert quick.state is PredictionState.SUCCEEDED
        ended = (await ends(pipeline, slow))[0]
        assert ended.state is PredictionState.FAILED
        assert ended.error == "The run took longer than 0.5 seconds"
        assert (
            pipeline.scheduler.snapshot()["far"]["busy"] + pipeline.scheduler.snapshot()["far"]["idle"] == 1
        )
        assert (await pipeline.account()).posted == 1_000_000 - PRICE


async def test_no_worker_is_started_for_an_engine_without_runs(pipeline: PipelineFixture) -> None:
    await pipeline.run("echo")
    assert pipeline.scheduler.snapshot()["batch"] == {"busy": 0, "idle": 0}
