"""While a result is stored, its worker takes the next run, up to the number of slots."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.predictions.states import PredictionState
from tests.harness.pipeline import Options, running_pipeline


async def test_worker_runs_the_next_task_while_outputs_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_pipeline(tmp_path, Options(slots=1)) as pipeline:
        gate, last, states = asyncio.Event(), asyncio.Event(), list[str]()
        store = pipeline.media.store_outputs

        async def slowly(prediction_id: str, *rest: Any) -> Any:
            states.append(prediction_id)
            if len(states) == 3:
                last.set()
            # The first and the third store are held back.
            if len(states) != 2:
                await gate.wait()
            return await store(prediction_id, *rest)

        monkeypatch.setattr(pipeline.media, "store_outputs", slowly)
        first = await pipeline.service.submit(pipeline.request(extras={"n": 1}))
        second = await pipeline.run(extras={"n": 2})
        assert states == [first.id, second.id]
        assert second.state is PredictionState.SUCCEEDED
        assert (await pipeline.service.get_any(first.id)).state is PredictionState.RUNNING
        third = await pipeline.service.submit(pipeline.request(extras={"n": 3}))
        fourth = await pipeline.service.submit(pipeline.request(extras={"n": 4}))
        await last.wait()
        assert fourth.id not in states
        gate.set()
        for each in (first, third, fourth):
            assert (await pipeline.service.wait(each, 60)).state is PredictionState.SUCCEEDED
        assert await pipeline.faults() == ()
