"""Kill −9 at every failpoint of the pipeline: nothing accepted is lost, nothing is charged twice."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.failpoints import REFUND_POINTS, SERVER_POINTS
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.states import PredictionState
from tests.e2e import pipeline_child
from tests.harness import processes
from tests.harness.cases import nightly_after
from tests.harness.pipeline import PRICE, PipelineFixture, running_pipeline
from tests.harness.waiting import wait_until

CREDIT = 1_000_000


async def _child(folder: Path, failpoints: str = "", mutant: str = "") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.e2e.pipeline_child",
        str(folder),
        failpoints,
        mutant,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def _wait_for_end(child: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Return the output of an ended process; workers that it was starting would hold its pipes open."""
    async with asyncio.timeout(processes.STORY_SECONDS):
        await wait_until(lambda: child.returncode is not None)
    await processes.kill_and_wait(child)
    return await processes.read_output(child)


def _accepted_ids(output: bytes) -> set[str]:
    return {line.split()[1] for line in output.decode().splitlines() if line.startswith("accepted")}


async def _settle(pipeline: PipelineFixture) -> list[predictions.Prediction]:
    """Return the end of every stored prediction, after the client has repeated all requests."""
    await pipeline_child.submit_all(pipeline)
    listed_predictions, _ = await pipeline.service.page(
        Tenant(pipeline.payer.id), PredictionFilter(), 1000, None
    )
    return [await pipeline.service.wait(prediction, 60) for prediction in listed_predictions]


async def _check(folder: Path, accepted: set[str]) -> None:
    async with running_pipeline(folder) as second_pipeline:
        predictions = await _settle(second_pipeline)
        assert accepted <= {prediction.id for prediction in predictions}
        assert [prediction.state for prediction in predictions] == [
            PredictionState.SUCCEEDED
        ] * pipeline_child.ORDERS
        account = await second_pipeline.account()
        assert (account.posted, account.held) == (CREDIT - pipeline_child.ORDERS * PRICE, 0)
        assert await second_pipeline.faults() == ()
        for prediction in predictions:
            assert prediction.output is not None
            assert await second_pipeline.blobs.stat(prediction.output.files[0].blob) is not None


@pytest.mark.parametrize(
    ("either", "moment"),
    nightly_after(2, [("sqlite", 1), pytest.param("postgres", 1, marks=pytest.mark.postgres), ("sqlite", 3)]),
    indirect=["either"],
)
@pytest.mark.parametrize("point", SERVER_POINTS)
async def test_kill_at_a_failpoint_loses_and_duplicates_nothing(
    either: Path, point: str, moment: int
) -> None:
    child = await _child(either, f"{point}=crash@{moment}")
    output, errors = await _wait_for_end(child)
    assert child.returncode == -signal.SIGKILL, errors.decode()
    await _check(either, _accepted_ids(output))


@pytest.mark.parametrize("point", REFUND_POINTS)
async def test_kill_at_a_refund_returns_all_or_nothing(either: Path, point: str) -> None:
    child = await _child(either, f"{point}=crash", "refund")
    output, errors = await _wait_for_end(child)
    assert child.returncode == -signal.SIGKILL, errors.decode()
    refunds = int(point == "refund.after")
    async with running_pipeline(either) as second_pipeline:
        predictions, _ = await second_pipeline.service.page(
            Tenant(second_pipeline.payer.id), PredictionFilter(), 1000, None
        )
        assert {prediction.id for prediction in predictions} == _accepted_ids(output)
        states = Counter(prediction.state for prediction in predictions)
        assert states[PredictionState.SUCCEEDED] == pipeline_child.ORDERS - refunds
        assert (
            sum(prediction.output is not None for prediction in predictions)
            == pipeline_child.ORDERS - refunds
        )
        account = await second_pipeline.account()
        assert (account.posted, account.held) == (CREDIT - (pipeline_child.ORDERS - refunds) * PRICE, 0)
        assert await second_pipeline.faults() == ()


@pytest.mark.parametrize("seed", nightly_after(1, range(4)))
async def test_kill_at_a_random_time_loses_and_duplicates_nothing(either: Path, seed: int) -> None:
    child = await _child(either)
    assert child.stdout is not None
    lines = random.Random(seed).randint(1, pipeline_child.ORDERS)  # noqa: S311 - a test that repeats
    try:
        async with asyncio.timeout(processes.STORY_SECONDS):
            output = b"".join([await child.stdout.readline() for _ in range(lines)])
    finally:
        child.kill()
    rest, _ = await _wait_for_end(child)
    await _check(either, _accepted_ids(output + rest))


@pytest.mark.parametrize("point", [p for p in SERVER_POINTS if p not in {"accept.before", "accept.after"}])
async def test_error_at_a_failpoint_leaves_no_hold(either: Path, point: str) -> None:
    child = await _child(either, f"{point}=fail")
    output, _ = await _wait_for_end(child)
    assert child.returncode == 0
    async with running_pipeline(either) as second_pipeline:
        account = await second_pipeline.account()
        predictions, _ = await second_pipeline.service.page(
            Tenant(second_pipeline.payer.id), PredictionFilter(), 1000, None
        )
        won = [prediction for prediction in predictions if prediction.state is PredictionState.SUCCEEDED]
        assert _accepted_ids(output) == {prediction.id for prediction in predictions}
        assert (account.posted, account.held) == (CREDIT - len(won) * PRICE, 0)
        assert await second_pipeline.faults() == ()


async def test_mutant_that_captures_apart_from_success_is_detected(either: Path) -> None:
    child = await _child(either, "capture.after=crash", "capture-apart")
    await _wait_for_end(child)
    assert child.returncode == -signal.SIGKILL
    async with running_pipeline(either) as second_pipeline:
        assert await second_pipeline.faults() != ()
