"""A server that was suspended beyond its lease detects that other servers took over its work."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.states import PredictionState
from tests.harness import processes
from tests.harness.pipeline import PRICE, Options, running_pipeline


async def test_server_stopped_beyond_its_lease_writes_nothing(either: Path) -> None:
    command = (sys.executable, "-m", "tests.e2e.slow_child", str(either), "1.5")
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(processes.PATIENCE_SECONDS):
            assert (await child.stdout.readline()).strip() == b"running"
        child.send_signal(signal.SIGSTOP)
        async with running_pipeline(either, Options(lease_seconds=0.6)) as other:
            (prediction,), _ = await other.service.page(Tenant(other.payer.id), PredictionFilter(), 10, None)
            final_prediction = await other.service.wait(prediction, 60)
            assert (final_prediction.state, final_prediction.attempt) == (PredictionState.SUCCEEDED, 2)
            child.send_signal(signal.SIGCONT)
            # The child learns that another server has ended the run.
            text, _ = await processes.read_output(child)
            assert text == b"succeeded 2\n"
            after = await other.service.get(final_prediction.id, Tenant.of(final_prediction))
            assert after == final_prediction
            account = await other.account()
            assert (account.posted, account.held) == (1_000_000 - PRICE, 0)
            assert await other.faults() == ()
    finally:
        await processes.kill_and_wait(child)
