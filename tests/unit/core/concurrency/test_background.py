"""Background tasks continue after an error, and the error is logged."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sixfold.core.concurrency import background
from sixfold.errors import StoreFailed


class Steps:
    """Steps of a background task, of which the first fails each time."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.rounds = 0
        self.second_round = asyncio.Event()

    async def fail(self) -> None:
        raise self.error

    async def later(self) -> None:
        self.rounds += 1
        if self.rounds == 2:
            self.second_round.set()


@pytest.mark.parametrize(
    ("error", "level"), [(OSError("no disk"), logging.ERROR), (StoreFailed("no disk"), logging.WARNING)]
)
async def test_failing_step_is_logged_and_the_others_run(
    error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(error)
    task = asyncio.create_task(
        background.repeat(0, {"sweep of files": steps.fail, "sweep of names": steps.later})
    )
    async with asyncio.timeout(30):
        await steps.second_round.wait()
    task.cancel()
    assert (await asyncio.gather(task, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    records = [record for record in caplog.records if record.name == "sixfold.background"]
    assert {record.levelno for record in records} == {level}
    assert all("'sweep of files'" in record.getMessage() for record in records)
    assert "no disk" in caplog.text


async def test_task_is_started_again_until_it_returns(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = [RuntimeError("first"), StoreFailed("second"), None]

    async def run() -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    async with asyncio.timeout(30):
        await background.keep_running("webhooks", run, restart_seconds=0)
    assert not outcomes
    assert "first" in caplog.text
    assert "second" in caplog.text
