"""Steps of several sessions in one message: the contract of local drivers for shared workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.sessions.engine import Controls, LiveWorker, PackedStepResult, StepRequest
from sixfold.core.workers.ports import Driver, RunFailed, WorkerSpec
from tests.contract.test_driver import FACTORIES

FACTORY = "sixfold.engines.live.motion.engine:MotionEngine"


@pytest.fixture(params=sorted(FACTORIES))
async def driver(request: pytest.FixtureRequest) -> AsyncIterator[Driver]:
    result = FACTORIES[request.param]()
    yield result
    await result.close()


def ask(**inputs: Any) -> StepRequest:
    return StepRequest("m", {"prompt": "walk", **inputs}, None, Controls(), 20)


async def test_step_that_cannot_be_serialized_fails_alone(driver: Driver, tmp_path: Path) -> None:
    worker = await driver.start(WorkerSpec("motion", FACTORY, 0, tmp_path))
    assert isinstance(worker, LiveWorker)
    answers = await worker.steps([ask(), ask(odd=object()), ask(prompt="run"), ask(large=2**70)])
    assert [type(answer) for answer in answers] == [PackedStepResult, RunFailed, PackedStepResult, RunFailed]
    good, odd, best, large = answers
    assert isinstance(good, PackedStepResult)
    assert isinstance(best, PackedStepResult)
    assert good.state != best.state, "each has his own answer"
    for failed in (odd, large):
        assert isinstance(failed, RunFailed)
        assert failed.message.startswith("The step cannot be sent to a worker: ")
        assert not failed.public
    assert [type(answer) for answer in await worker.steps([ask(odd=object())])] == [RunFailed]
    assert [type(answer) for answer in await worker.steps([ask()])] == [PackedStepResult]
