"""A run with large inputs: SQLite and the states of the run keep few copies of them."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from sixfold.core.concurrency.single_thread import LOOP_BYTES
from sixfold.core.media.outputs import Output
from sixfold.core.predictions import claims
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.repository import RunLease, SuccessRecord, Trace
from sixfold.core.predictions.states import PredictionState
from tests.harness import backends
from tests.harness.pipeline import Options, running_pipeline

_SIZE = 16 * 2**20
# RETURNING would need two more copies of the row than a second statement that reads it.
_SQLITE_BYTES = 8 * _SIZE


async def _run(folder: Path, size: int) -> None:
    async with running_pipeline(folder, Options(start=False)) as pipeline:
        if size == _SIZE:
            connection = cast("sqlite3.Connection", vars(pipeline.database)["_writer"])
            connection.execute(f"PRAGMA hard_heap_limit={_SQLITE_BYTES}")
        queued = await pipeline.service.submit(pipeline.request("echo", extras={"graph": "x" * size}))
        claim = claims.claim("echo", RunLease("boot_test", 30_000_000), 1, warm=False)
        (starting,) = await pipeline.database.write(claim)
        running = await pipeline.database.write(predictions.ready(queued.id, starting.attempt))
        success = SuccessRecord(Output(), "full", "1", Trace())
        ended = await pipeline.database.write(predictions.succeed(queued.id, running.attempt, success))
        states = [each.state for each in (queued, starting, running, ended)]
        assert states == [
            PredictionState.QUEUED,
            PredictionState.STARTING,
            PredictionState.RUNNING,
            PredictionState.SUCCEEDED,
        ]
        assert len({id(each.task) for each in (queued, starting, running, ended)}) == 1
        assert len(ended.task.inputs["graph"]) == size


@pytest.mark.parametrize("backend", backends.EACH_DATABASE)
async def test_states_of_a_large_run_share_its_inputs(tmp_path: Path, backend: str) -> None:
    backends.database_url(tmp_path, backend)
    await _run(tmp_path, 2 * LOOP_BYTES)


def test_sqlite_holds_few_copies_of_large_inputs(tmp_path: Path) -> None:
    # The limit on the memory of SQLite applies to a whole process, and cannot be raised again.
    command = [sys.executable, "-m", "tests.unit.predictions.test_large_inputs", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), _SIZE))
