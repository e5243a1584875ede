"""Steps of several sessions in one message: what every local driver keeps for those who share a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.sessions.engine import Ask, Controls, LiveWorker, Shown
from sixfold.core.workers.ports import Driver, Failed, WorkerSpec
from tests.contract.test_driver import MAKERS

FACTORY = "sixfold.engines.live.motion.engine:MotionEngine"


@pytest.fixture(params=sorted(MAKERS))
async def driver(request: pytest.FixtureRequest) -> AsyncIterator[Driver]:
    made = MAKERS[request.param]()
    yield made
    await made.close()


def ask(**inputs: Any) -> Ask:
    """One tick."""
    return Ask("m", {"prompt": "walk", **inputs}, None, Controls(), 20)


async def test_a_step_that_cannot_be_sent_fails_alone(driver: Driver, tmp_path: Path) -> None:
    worker = await driver.start(WorkerSpec("motion", FACTORY, 0, tmp_path))
    assert isinstance(worker, LiveWorker)
    answers = await worker.steps([ask(), ask(odd=object()), ask(prompt="run"), ask(large=2**70)])
    assert [type(answer) for answer in answers] == [Shown, Failed, Shown, Failed]
    good, odd, best, large = answers
    assert isinstance(good, Shown)
    assert isinstance(best, Shown)
    assert good.state != best.state, "each has his own answer"
    for failed in (odd, large):
        assert isinstance(failed, Failed)
        assert failed.message.startswith("The step cannot be sent to a worker: ")
        assert not failed.public
    assert [type(answer) for answer in await worker.steps([ask(odd=object())])] == [Failed]
    assert [type(answer) for answer in await worker.steps([ask()])] == [Shown]
