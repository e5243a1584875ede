"""Steps of sessions that are sent to a worker: each result is limited, and ends only its own session."""

from __future__ import annotations

import asyncio

import pytest

from sixfold.core.sessions.engine import Controls, PackedStepResult, StepRequest
from sixfold.core.workers.ports import RunFailed, WorkerLost
from sixfold.drivers.session_steps import SessionStepper
from sixfold.worker.protocol import StepDone, StepsDone, StepsMessage

REQUEST = StepRequest("motion-model", {}, None, Controls(), 20)
LARGEST = StepDone(bytes(2**20), [bytes(32 * 2**10)] * 100, bytes(16 * 2**20), "png", 1, 1)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (StepDone(bytes(2**20 + 1), []), "a state of more than 1,048,576 bytes (got 1,048,577)"),
        (StepDone(b"", [b"{}", bytes(2**15 + 1)]), "a pose of more than 32,768 bytes (got 32,769)"),
        (StepDone(b"", [b"{}"] * 101), "a step of more than 100 poses (got 101)"),
        (StepDone(b"", [], bytes(2**24 + 1)), "a frame of more than 16,777,216 bytes (got 16,777,217)"),
    ],
    ids=["state", "pose", "poses", "frame"],
)
async def test_a_result_that_is_too_large_ends_its_session(result: StepDone, reason: str) -> None:
    stepper = SessionStepper()
    sent: list[StepsMessage] = []
    steps = asyncio.create_task(stepper.send(7, [REQUEST, REQUEST], None, sent.append))
    await asyncio.sleep(0)
    stepper.resolve(StepsDone(sent[0].number, [result, LARGEST]))
    failed, answer = await steps
    assert failed == RunFailed(f"The model returned {reason}", public=True)
    assert isinstance(answer, PackedStepResult)
    assert answer.frame is not None
    assert (len(answer.state), len(answer.poses), len(answer.frame.data)) == (2**20, 100, 2**24)


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_false_number_of_results_loses_the_worker(count: int) -> None:
    stepper = SessionStepper()
    sent: list[StepsMessage] = []
    steps = asyncio.create_task(stepper.send(7, [REQUEST, REQUEST], None, sent.append))
    await asyncio.sleep(0)
    stepper.resolve(StepsDone(sent[0].number, [StepDone(b"", [])] * count))
    assert await steps == [WorkerLost(f"the worker returned {count} results for 2 steps")] * 2
