"""A run whose lease expired while its server was disconnected, and that this server claims again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions import repository
from sixfold.core.predictions.events import StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from tests.harness.pipeline import PipelineFixture, running_pipeline
from tests.harness.waiting import wait_until


async def _running(pipeline: PipelineFixture, prediction: Prediction, attempt: int) -> None:
    async with asyncio.timeout(30):
        async for event in pipeline.service.events(prediction):
            if not isinstance(event, StateChanged):
                continue
            if (event.prediction.state, event.prediction.attempt) == (PredictionState.RUNNING, attempt):
                return
    raise AssertionError(f"attempt {attempt} never ran")


async def test_an_outdated_attempt_does_not_end_its_successor(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path) as pipeline:
        scheduler = pipeline.scheduler
        prediction = await pipeline.service.submit(pipeline.request("slow", extras={"seconds": 60}))
        await _running(pipeline, prediction, 1)
        outdated = scheduler._runs[prediction.id]
        await pipeline.database.write(repository.lose(prediction.id, 1, 3, "its lease expired"))
        scheduler.notify_work("slow")
        await _running(pipeline, prediction, 2)
        outdated.cancel()
        await wait_until(lambda: scheduler.snapshot()["slow"]["busy"] == 1)
        assert scheduler.running() == (prediction.id,), "otherwise its lease would expire"
        await pipeline.service.cancel(prediction.id, Tenant(pipeline.payer.id))
        ended = await pipeline.service.wait(prediction, 60)
        assert (ended.state, ended.attempt, ended.cost) == (PredictionState.CANCELED, 2, 0)
        await wait_until(lambda: scheduler.snapshot()["slow"]["busy"] == 0)
        assert await pipeline.faults() == ()
